// Package mountns attaches, changes and takes away mounts for a process that must not, or cannot, do so itself: because
// the directory is in another mount namespace, or in a file system that the process serves. A process that waits for
// itself can hang for good.
//
// A child process does it: the program of the daemon under the name Name. It gets descriptors of the mount, of the
// namespace and of the root directory there, and one request in JSON on its standard input; the answer is JSON on its
// standard output. The descriptors are:
//
//	namespace  /proc/PID/ns/mnt of a process of the namespace
//	root       /proc/PID/root of a process, in which paths are looked up
//	mount      what is to be attached: a mount that is in no tree yet
//	from       the namespace that has a copy of what is to be attached
package mountns
