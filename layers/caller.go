package layers

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"snapfs/internal/processes"
)

// NoID is a user or group that a request does not name: the kernel sends ids only with what creates an inode once
// id-mapped mounts are negotiated, and none where the mapping of the mount has none for the caller. It never becomes an
// owner.
const NoID = ^uint32(0)

// ErrPrivileged says that a file has setuid or setgid which must be cleared before the caller may change its contents;
// nothing was changed.
var ErrPrivileged = errors.New("setuid or setgid must be cleared first")

// Caller is who made a request, as the kernel sends it, in numbers of the server's own user and process name spaces:
// owner of what is created. UID and GID may be NoID. Permission checks are the kernel's (default_permissions).
type Caller struct {
	UID, GID, PID uint32
	// Umask is taken off the mode of what is created, unless the directory has a default ACL.
	Umask uint32
}

// creates reports whether the caller has ids that what it creates can belong to, the error being the kernel's own.
func (c Caller) creates() error {
	if c.UID == NoID || c.GID == NoID {
		return unix.EOVERFLOW
	}
	return nil
}

// capFsetid is CAP_FSETID.
const capFsetid = 4

// initialUsers is what the kernel shows as the initial user name space. Capabilities there count for every file system.
const initialUsers = "user:[4026531837]"

// ownUsers is the user name space of this process, which is where its mounts are made. A capability there counts for
// whether somebody is of a file's group, but saves setuid on no file system.
var ownUsers = sync.OnceValue(func() string {
	users, _ := os.Readlink("/proc/self/ns/user") // "" is nobody's
	return users
})

// credentials are what the kernel goes by when a process changes a file. Requests carry neither supplementary groups
// nor capabilities: /proc has them as long as the caller waits for its answer.
type credentials struct {
	uid, gid uint32 // those for file systems; NoID if unknown
	groups   []uint32
	fsetid   bool // CAP_FSETID
	initial  bool // in the initial user name space
	lent     bool // the thread's own may not be what it does this with
}

// Flags of a thread, of linux/sched.h, as in /proc/PID/stat.
const (
	pfIOWorker = 0x10
	pfKthread  = 0x200000
)

// credentials looks the caller up. Of one that cannot be seen nothing is known, and it has no rights of an owner or
// group to any file. A thread of io_uring does what programs have asked for with rights that need not be its own: it
// may be of a time before its process gave up some, and a ring may have been lent those of others. What it has counts
// as far as its process has it now. Nothing is known of whom a thread of the kernel works for.
func (c Caller) credentials() credentials {
	out, flags, process := c.thread()
	switch {
	case flags&pfKthread != 0:
		return credentials{uid: c.UID, gid: c.GID, lent: true}
	case flags&pfIOWorker == 0:
		return out
	}
	now, _, _ := Caller{UID: NoID, GID: NoID, PID: process}.thread()
	if out.uid != now.uid {
		out.uid = NoID
	}
	out.fsetid, out.initial, out.lent = out.fsetid && now.fsetid, out.initial && now.initial, true
	out.groups = slices.DeleteFunc(append(out.groups, out.gid), func(gid uint32) bool {
		return gid != now.gid && !slices.Contains(now.groups, gid)
	})
	out.gid = NoID
	return out
}

// thread is what /proc says of the calling thread: what it has, its flags, and the process that it is of.
func (c Caller) thread() (out credentials, flags uint64, process uint32) {
	out = credentials{uid: NoID, gid: NoID}
	dir := "/proc/" + strconv.Itoa(int(c.PID))
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return credentials{uid: c.UID, gid: c.GID}, 0, 0
	}
	fields := func(key string) [][]byte {
		_, rest, _ := bytes.Cut(status, []byte("\n"+key+":"))
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		return bytes.Fields(line)
	}
	id := func(text []byte) uint32 {
		n, err := strconv.ParseUint(string(text), 10, 32)
		if err != nil {
			return NoID
		}
		return uint32(n)
	}
	if f := fields("Tgid"); len(f) == 1 {
		process = id(f[0])
	}
	if f := fields("Uid"); len(f) == 4 {
		out.uid = id(f[3])
	}
	if f := fields("Gid"); len(f) == 4 {
		out.gid = id(f[3])
	}
	for _, f := range fields("Groups") {
		out.groups = append(out.groups, id(f))
	}
	if f := fields("CapEff"); len(f) == 1 {
		caps, err := strconv.ParseUint(string(f[0]), 16, 64)
		if err == nil && caps>>capFsetid&1 != 0 {
			users, err := os.Readlink(dir + "/ns/user")
			out.initial = err == nil && users == initialUsers
			out.fsetid = err == nil && (out.initial || users == ownUsers())
		}
	}
	return out, threadFlags(dir), process
}

// threadFlags reads the flags of the thread with that directory of /proc; all of them if they cannot be read.
func threadFlags(dir string) uint64 {
	s, ok := processes.StatOf(dir)
	if !ok {
		return ^uint64(0)
	}
	return s.Flags
}

// inGroup reports whether the caller belongs to a group, or may act as if it did.
func (c Caller) inGroup(gid uint32) bool {
	if c.GID == gid && gid != NoID {
		return true
	}
	cr := c.credentials()
	return cr.fsetid && !cr.lent || gid != NoID && (cr.gid == gid || slices.Contains(cr.groups, gid))
}

// KeepsPrivileges reports whether setuid and setgid survive what the caller does to a file's contents (CAP_FSETID),
// beyond doubt.
func (c Caller) KeepsPrivileges() bool {
	cr := c.credentials()
	return cr.fsetid && cr.initial && !cr.lent
}

// MayKeepPrivileges is KeepsPrivileges, with the benefit of doubt for a thread of io_uring.
func (c Caller) MayKeepPrivileges() bool {
	cr := c.credentials()
	return cr.fsetid && cr.initial
}

// User is the caller's user id, NoID if unknown.
func (c Caller) User() uint32 {
	if c.UID != NoID {
		return c.UID
	}
	return c.credentials().uid
}

// leftOver is what remains of a file's mode when the caller changes its contents or owner: no setuid, and setgid only
// if the group may not execute the file and is the caller's.
func (c Caller) leftOver(mode, gid uint32) uint32 {
	mode &^= unix.S_ISUID
	if mode&unix.S_ISGID != 0 && (mode&unix.S_IXGRP != 0 || !c.inGroup(gid)) {
		mode &^= unix.S_ISGID
	}
	return mode
}
