// Package iouring is as much of io_uring(7) as a server of FUSE commands needs: one submission queue of 128-byte
// entries, one completion queue, no polling thread and no registered buffers. Layouts are those of
// include/uapi/linux/io_uring.h; Linux 6.6 is the oldest kernel that will do (IORING_SETUP_NO_SQARRAY).
//
// # Nouns
//
//   - submission: an SQE, a command for the kernel. It is queued by Next and taken by the kernel in Enter.
//   - completion: a CQE, the end of one command, taken from the ring by Pop.
//   - task work: what the kernel does on behalf of a submission when its event comes. It runs in the thread that
//     entered the submission, whenever that thread leaves the kernel, so that thread must live as long as its
//     submissions, and it never runs twice at a time.
//
// # Locks
//
// There are none. Next, Queued and Pop want one caller at a time; Enter may be called by any number of threads.
package iouring
