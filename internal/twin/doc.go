// Package twin does the same seeded operations in two directories and compares what comes back: one is the file system
// under test, the other a reference that the kernel serves. It shares no code with the packages under test.
//
// An Op is one operation with all its arguments. A tree is one of the two directories with the files that are open in
// it, by slot. An actor is the process that works: it makes the operations from its seed, does each in both trees, and
// compares errno and data. A process that serves a FUSE mount must not touch it, and a test that touches a dead one may
// hang: so an actor is a child, made of the same test binary (call Child first thing in TestMain), which takes commands
// line by line over its standard input, ends with it, and is killed if it does not answer.
//
// The reference is told nothing that the tree under test is not told, with one exception: overlayfs of the kernel lets
// a file that was opened for reading before it is copied up show its old contents for ever, so the reference copies up
// at every open.
//
// Times: what utimensat sets lies in 2001 and is compared to the nanosecond; everything later is "now", and only that
// it is now is compared.
package twin
