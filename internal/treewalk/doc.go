// Package treewalk is the independent referee of the tests: it lists a tree as the kernel shows it and compares two
// listings. It shares no code with the packages under test.
//
// A Node is one path with everything lstat, readlink, read, listxattr and SEEK_HOLE tell about it. Hard links are one
// group, named by the first path of the group in byte order.
//
// A process that serves a FUSE mount must not walk it. Its tests call Child first thing in TestMain and then WalkApart,
// which walks in a second process made of the same test binary.
package treewalk
