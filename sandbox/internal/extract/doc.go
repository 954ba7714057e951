// Package extract writes a tree, as a squashfs.Source presents it, into a directory of the host: everything that lstat,
// readlink, listxattr, read and SEEK_HOLE show.
//
// # Nouns
//
//   - The target is the directory that the tree is written into. It is empty before, or has what an interrupted
//     extraction of the same snapshot has left.
//   - The marker is a file in the target that says whose tree is being written. It exists as long as the tree is
//     incomplete, and is locked while somebody works.
//   - A dir is a directory of the tree in the target. It is under way until everything in it exists; then it gets its
//     attributes, and its parent has one thing less to wait for.
//   - A job is a name that is not a directory. Jobs are gathered in windows, and those of a window are sorted by where
//     their data is kept, so that what is compressed together is decoded once.
//   - A skip is something that the target or the rights of this process do not allow: an owner, a device, an attribute.
//     It is counted and listed, and the rest is written.
//
// # Order of work
//
//	walk ──mkdir──▶ dirs        one goroutine, and several that describe the names of a directory with many
//	 └─jobs─▶ window ─sort─▶ batches ─▶ workers: create, write, attributes
//	                                     └─ the last thing in a dir: attributes of the dir, and so on upwards
//	everything is written ─▶ syncfs ─▶ attributes of the root, marker removed
//
// The windows begin small, so that there is work at once, and grow up to a bound. So do not memory and descriptors
// grow with the tree, but for the names of inodes that have several (as in a writer of images), and the names of the
// directories above the present one. Buffers, names in windows and descriptors are those of the process, shared fairly by
// all calls, besides a few that each has of its own.
//
// # Others in the target
//
// Every system call names one element relative to an open directory and follows no symbolic link; files are made with
// O_EXCL. A directory that is opened again must be the inode that was made. Directories belong to this process and have
// mode 0700 until they are complete, and so has the target. So neither names of a hostile image nor programs that
// rename things in the target lead out of it.
//
// # Interruption
//
// A file gets its modification time last. If the target has a regular file with the size and the modification time of
// the tree's, it is complete, and kept. That holds as long as the machine runs: after a crash of the machine the marker
// is of another boot, and files are written again.
//
// A target without a marker may have the whole tree: who did not get the answer of a call repeats it. Then nothing is
// written; contents are not compared, but sizes and times are.
//
// # Damage
//
// A source may be a damaged image. A name that no directory can have, a name that is there twice and a directory that
// contains itself end the call.
//
// # Locks
//
//	linked.mu         the names of one inode
//	├─ dirs.mu        open directories
//	├─ telling        while Options.Progress is called
//	├─ pieces.mu      what is left to be copied of a large file; a leaf
//	└─ skips.mu       a leaf
package extract
