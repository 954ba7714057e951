package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
	"snapfs/layers"
)

// A caller without CAP_FSETID that changes a file's contents takes setuid and setgid from it. With HANDLE_KILLPRIV_V2
// that is the server's task, and the kernel does not look at what became of the mode:
//
//	what the program does        what the kernel sends               how it learns the mode
//	write, of any kind           SETATTR of nothing; WRITE with the  notification before the answer
//	                             flag KILL_SUIDGID
//	fallocate, copy_file_range   SETATTR of nothing; the request     notification before the answer
//	truncate, O_TRUNC, chown     SETATTR with FATTR_KILL_SUIDGID     the answer has the attributes
//	setting an access ACL        SETXATTR with ACL_KILL_SGID         it asks for them by itself
//	stores through mmap,         WRITE with the flag CACHE           nothing changes, as on other file systems;
//	pages written back                                               of a write to the cache the rest came before
//
// The SETATTR of nothing comes first, because the kernel has seen setuid, setgid or capabilities, and is the same as
// that of chown(-1, -1), which must not change another user's file. Capabilities the kernel removes itself
// (REMOVEXATTR), and caches nowhere. Of a file that has some, the SETATTR comes with every write, also of callers that
// keep setuid: see removals.
//
// The kernel holds the inode's lock from that SETATTR to the answer of what follows, so that no answer with the old
// mode can come after the notification: those of requests without the lock are dropped if a notification came in
// between.

// demote takes setuid, setgid and capabilities from a file on behalf of a caller that is about to change its contents,
// and tells the kernel before anything else happens.
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

// removals tells a write to a file with capabilities from chown(-1, -1), which clears setuid and setgid also for
// callers that keep them in a write. The kernel asks for the attribute, without room for its value, once to decide
// whether a write takes something away, and in both cases once more when it is about to; then it removes it. So a write
// has asked twice. Another program that asks like that and then calls chown(-1, -1) keeps setuid, which POSIX leaves
// open: no contents have changed.
type removals struct {
	mu lockorder.Mutex[lockorder.Removals]
	m  map[uint32]removal // by thread; guarded by mu
}

// removal is what a thread has asked last.
type removal struct {
	node    uint64
	asked   int
	removed bool
}

// mostRemovals bounds the table. The SETATTR of a thread that is forgotten is taken for that of a chown.
const mostRemovals = 1024

// asks notes that a thread has found capabilities.
func (r *removals) asks(h *fuse.InHeader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m == nil || len(r.m) >= mostRemovals {
		r.m = map[uint32]removal{}
	}
	was := r.m[h.Pid]
	if was.node != h.NodeId || was.removed {
		was = removal{node: h.NodeId}
	}
	was.asked++
	r.m[h.Pid] = was
}

// removes notes that a thread has taken capabilities away.
func (r *removals) removes(h *fuse.InHeader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if was := r.m[h.Pid]; was.node == h.NodeId {
		was.removed = true
		r.m[h.Pid] = was
	}
}

// write reports whether the SETATTR of nothing is that of a write; setuid and setgid are then cleared, if at all, by
// what follows.
func (r *removals) write(h *fuse.InHeader) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.m[h.Pid]
	delete(r.m, h.Pid)
	return was.node == h.NodeId && was.removed && was.asked > 1
}

// strips reports whether a SETATTR of nothing clears setuid and setgid: as the chown(-1, -1) of the file's owner, which
// the kernel has not checked, or as a write of a caller that does not keep them. What follows need not clear them:
// where the kernel collects writes, it has decided about that before it had the inode's lock, and may have got the lock
// after a chmod. There the two differ in the time that a chown brings.
func (a *adapter) strips(in *fuse.SetAttrIn) bool {
	write := a.removals.write(&in.InHeader)
	at, err := a.o.GetAttr(layers.NodeID(in.NodeId))
	if err != nil {
		return false
	}
	if a.writeback && in.Valid&fuse.FATTR_CTIME == 0 && at.Mode&unix.S_IFMT == unix.S_IFREG {
		return !write || !caller(&in.InHeader, 0).MayKeepPrivileges()
	}
	return !write && a.owns(&in.InHeader, layers.NodeID(in.NodeId))
}

// owns reports whether a file belongs to the caller, or the caller is root.
func (a *adapter) owns(h *fuse.InHeader, id layers.NodeID) bool {
	user := caller(h, 0).User()
	if user == 0 {
		return true
	}
	at, err := a.o.GetAttr(id)
	return err == nil && user != layers.NoID && at.UID == user
}
