package layers

import (
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"snapfs/internal/failpoint"
)

// What is created belongs to its owner from the first moment: a crash may come after any system call, and another
// user's file that is left to root for a moment may be left to root for good. So the thread takes the owner's ids for
// file systems, and no other, while it makes the inode, and keeps its capabilities. Setuid and setgid come last, once
// the owner is sure. Where the process has no right to take ids (a container without CAP_SETUID), the inode is made in
// the work directory.

// steps is told changes of the host's tree: each of those that make up a creation or a copy-up, since a crash may come
// there, and others that the host may make one wait for. Only a test listens.
var steps failpoint.Func

// fileCaps are this process's capabilities if a thread may take any user's ids and keep them.
var fileCaps = sync.OnceValues(func() ([2]unix.CapUserData, bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var caps [2]unix.CapUserData
	if UserAttributes() || unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &caps[0]) != nil {
		return caps, false
	}
	const somebody = 1
	restore := takeIDs(somebody, somebody)
	uid, _ := unix.SetfsuidRetUid(-1) // changes nothing and tells
	gid, _ := unix.SetfsgidRetGid(-1)
	err := setCaps(&caps)
	restore()
	return caps, uid == somebody && gid == somebody && err == nil
})

func setCaps(caps *[2]unix.CapUserData) error {
	return unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &caps[0])
}

// takeIDs gives the calling thread other ids for file systems, which costs it the capabilities for them if it is not
// root's; restore gives both back.
func takeIDs(uid, gid uint32) (restore func()) {
	_ = unix.Setfsgid(int(gid)) // neither reports whether it was refused
	_ = unix.Setfsuid(int(uid))
	return func() {
		_ = unix.Setfsuid(os.Geteuid()) // never refused
		_ = unix.Setfsgid(os.Getegid())
	}
}

// mayActAs reports whether actingAs makes what belongs to somebody else from the start.
func mayActAs(uid, gid uint32) bool {
	if int(uid) == os.Geteuid() && int(gid) == os.Getegid() {
		return true
	}
	_, ok := fileCaps()
	return ok
}

// actingAs has fn make an inode on behalf of its owner. fn makes system calls and nothing else: while it runs, its
// thread has the owner's ids.
func actingAs(uid, gid uint32, fn func() error) error {
	if int(uid) == os.Geteuid() && int(gid) == os.Getegid() {
		return fn()
	}
	caps, ok := fileCaps()
	if !ok {
		return fn()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer takeIDs(uid, gid)()
	if uid != 0 {
		if err := setCaps(&caps); err != nil {
			return err
		}
	}
	return fn()
}
