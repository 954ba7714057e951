// Package dirapply changes a directory of the host into what another tree has, so that it can be interrupted anywhere
// and gone on with, or taken back.
//
// # Nouns
//
//   - A root is the directory. Everything in it is reached from its descriptor, through no symbolic link and into no
//     mount; nothing outside of it is changed.
//   - A step is one thing that is different: added, deleted, renamed, or modified where it is. Steps lead from the old
//     tree to the new one; reversed, they lead back.
//   - The stage is a directory in the root, for the time of a run. What is new is made there, whole and with its
//     attributes, and is then renamed to its place; what goes is renamed into it before it is removed.
//
// # A run
//
//  1. Everything new is made in the stage, and written to the disk. A disk that is full is noticed here.
//  2. What is deleted or renamed is taken from its place, what is in a directory before the directory.
//  3. What is added or renamed is put to its place, directories first, further names of files last.
//  4. Modified files are exchanged with what is in the stage.
//  5. Directories get their attributes and times; the stage is removed.
//
// Each move is preceded and followed by a look at what is moved: it has to be what the step says, or the run ends with
// ErrChanged. A run may begin with a directory in which another one, in either direction, has ended anywhere. It passes
// over what is done, which it knows by inode numbers that were noted before, or by comparing contents; a directory that is
// moved, and the stage, by their inode numbers only.
//
// Others may work in the directory at the same time. What has come to be where something is to be put stays. A run that
// goes back puts the latter beside it, under a name that ends with asideEnd: nothing stays in the stage.
package dirapply
