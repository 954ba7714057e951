package layers

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// NoID is a user or group that a request does not name: the kernel sends ids only with what creates an inode once id-mapped mounts are
// negotiated, and none where the mapping of the mount has none for the caller. It never becomes an owner.
const NoID = ^uint32(0)

// ErrPrivileged says that a file has setuid or setgid which must be cleared before the caller may change its contents; nothing was changed.
var ErrPrivileged = errors.New("setuid or setgid is to be cleared first")

// Caller is who made a request, as the kernel sends it, in numbers of the server's own user and process name spaces: owner of what is
// created. UID and GID may be NoID. Permission checks are the kernel's (default_permissions).
type Caller struct {
	UID, GID, PID uint32
	// Umask is taken off the mode of what is created, unless the directory has a default ACL.
	Umask uint32
}

// creates says whether the caller has ids that what it creates can belong to, the error being the kernel's own.
func (c Caller) creates() error {
	if c.UID == NoID || c.GID == NoID {
		return unix.EOVERFLOW
	}
	return nil
}

// capFsetid is CAP_FSETID.
const capFsetid = 4

// initialUsers is what the kernel shows as the initial user name space. A capability counts for a file system where that was mounted,
// and there.
const initialUsers = "user:[4026531837]"

// ownUsers is the user name space of this process, which is where its mounts are made.
var ownUsers = sync.OnceValue(func() string {
	users, _ := os.Readlink("/proc/self/ns/user") // "" is nobody's
	return users
})

// credentials are what the kernel goes by when a process changes a file. Requests carry neither supplementary groups nor capabilities:
// /proc has them as long as the caller waits for its answer.
type credentials struct {
	uid, gid uint32 // those for file systems; NoID if unknown
	groups   []uint32
	fsetid   bool // CAP_FSETID
}

// credentials looks the caller up. Of one that cannot be seen nothing is known, and it is a stranger to every file.
func (c Caller) credentials() credentials {
	out := credentials{uid: NoID, gid: NoID}
	dir := "/proc/" + strconv.Itoa(int(c.PID))
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		out.uid, out.gid = c.UID, c.GID
		return out
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
			out.fsetid = err == nil && (users == initialUsers || users == ownUsers())
		}
	}
	return out
}

// inGroup says whether the caller belongs to a group, or may act as if it did.
func (c Caller) inGroup(gid uint32) bool {
	if c.GID == gid && gid != NoID {
		return true
	}
	cr := c.credentials()
	return cr.fsetid || gid != NoID && (cr.gid == gid || slices.Contains(cr.groups, gid))
}

// KeepsPrivileges says whether setuid and setgid survive what the caller does to a file's contents (CAP_FSETID).
func (c Caller) KeepsPrivileges() bool { return c.credentials().fsetid }

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
