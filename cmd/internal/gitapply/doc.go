// Package gitapply makes a git commit of what was changed in a workspace, or in a snapshot: the client's half of
// 'snapfs apply --to-git'. What has changed is asked of the service, package gitcommit writes to the repository.
//
// # Nouns
//
//   - From is what is committed, the base the snapshot that it is compared with.
//   - The parent is the commit that was checked out in the base, and the new commit's parent.
//   - The prefix is where in the repository the root of From lies.
//
// # Steps
//
// Base, snapshot of the workspace, parent and prefix are found first. Then the changes are listed, the contents of those
// that git may take are fetched into gitcommit's work directory, and what git ignores, submodules, repositories inside
// From and special files are left out. Last come tree, commit and branch.
package gitapply
