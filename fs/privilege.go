package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/layers"
)

// Who changes a file's contents without CAP_FSETID takes setuid and setgid from it. With HANDLE_KILLPRIV_V2 that is the server's task, and
// the kernel does not look at what became of the mode:
//
//	what the program does        what the kernel sends               how it learns the mode
//	write, of whatever kind      SETATTR of nothing; WRITE with the  notification before the answer
//	                             flag KILL_SUIDGID
//	fallocate, copy_file_range   SETATTR of nothing; the request     notification before the answer
//	truncate, O_TRUNC, chown     SETATTR with FATTR_KILL_SUIDGID     the answer has the attributes
//	setting an access ACL        SETXATTR with ACL_KILL_SGID         it asks again by itself
//	stores through mmap          WRITE without the flag              nothing changes, as on other file systems
//
// The SETATTR of nothing comes before, because the kernel has seen setuid, setgid or capabilities, and cannot be told from chown(-1, -1),
// which is no reason to change somebody else's file. Capabilities the kernel takes away itself (REMOVEXATTR), and keeps nowhere.
//
// The kernel holds the inode's lock from that SETATTR to the answer of what follows, so that no answer with the old
// mode can come after the notification: those of requests without the lock are dropped if a notification came in between.

// demote takes setuid, setgid and capabilities from a file on behalf of a caller who is about to change its contents, and has the kernel know
// before anything else happens.
func (a *adapter) demote(h *fuse.InHeader, id layers.NodeID) error {
	if _, err := a.o.SetAttr(caller(h, 0), id, layers.SetAttr{Valid: layers.KillPriv}); err != nil || a.m == nil {
		return err
	}
	return a.m.invalidateAttr(id)
}

// killPriv is demote for requests that say nothing of privileges.
func (a *adapter) killPriv(h *fuse.InHeader, id layers.NodeID) error {
	at, err := a.o.GetAttr(id)
	if err != nil || at.Mode&(unix.S_ISUID|unix.S_ISGID) == 0 || caller(h, 0).KeepsPrivileges() {
		return err
	}
	return a.demote(h, id)
}

// owns says whether a file belongs to the caller, or the caller is root.
func (a *adapter) owns(h *fuse.InHeader, id layers.NodeID) bool {
	user := caller(h, 0).User()
	if user == 0 {
		return true
	}
	at, err := a.o.GetAttr(id)
	return err == nil && user != layers.NoID && at.UID == user
}
