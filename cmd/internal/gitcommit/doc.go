// Package gitcommit makes a commit on a new branch of a git repository, by git's own commands, and touches nothing else
// there: no index, no work tree, no HEAD, no other ref.
//
// # Nouns
//
//   - The parent is the commit that the new one follows; "" for a commit without one.
//   - The work directory is a temporary directory in which the changed files are put, at the paths that they have in the
//     repository. git takes it for the work tree, so that attributes, filters and ends of lines apply as in 'git add'.
//   - The index is a temporary file: the parent's tree, and then the new one.
//
// # Order
//
// Objects are written first, and the branch last, only if there is none of that name then. Whatever ends a process
// before that leaves objects that nothing names, which git removes in time, and a temporary directory.
//
// # What a repository can do
//
// git refuses repositories of other users. Hooks, the file system monitor and what fetches objects do not run. Filters
// that the configuration has for files do, as in 'git add'.
package gitcommit
