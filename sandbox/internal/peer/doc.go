// Package peer knows the user at the other end of a unix socket, and does things with that user's rights to files.
//
// # Who it is
//
// The kernel keeps the user, the group and the supplementary groups of the process that called connect(2)
// (SO_PEERCRED, SO_PEERGROUPS). They do not change when that process does, and no process id is looked at. They are
// numbers of this process's user namespace: root of another one is seen as the user that it is mapped to. A user or
// group that has no number here is nobody, however its number is shown.
//
// # Rights
//
// A thread that acts for a user is locked to its goroutine. It takes the user's fsuid, fsgid and supplementary groups,
// gives up all capabilities, and ends without getting them back. Its other ids stay those of this process: if it had
// the user's, the user could send it signals. So kill, ptrace and the like are not checked as the user; opening,
// making, linking, renaming and removing files is, and what is made belongs to the user. Descriptors are those of the
// process: the rights count when a file is opened.
package peer
