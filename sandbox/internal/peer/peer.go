package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// User is a user with the groups of one of its processes. Immutable. A nil User stands for this process itself.
type User struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"` // supplementary
}

// maxGroups is how many supplementary groups Linux lets a process have.
const maxGroups = 1 << 16

// errUnmapped says that a process is of another user namespace.
var errUnmapped = errors.New("its user or group has no number in this user namespace")

// Of gives the user that connected.
func Of(conn *net.UnixConn) (*User, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var u *User
	var credErr error
	if err := raw.Control(func(fd uintptr) { u, credErr = of(int(fd)) }); err != nil {
		return nil, err
	}
	return u, credErr
}

func of(fd int) (*User, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, fmt.Errorf("credentials of a peer: %w", err)
	}
	groups, err := groupsOf(fd)
	if err != nil {
		return nil, fmt.Errorf("groups of a peer: %w", err)
	}
	u := &User{UID: cred.Uid, GID: cred.Gid, Groups: groups}
	if !wholeNamespace() {
		none := overflow()
		if u.UID == none.UID || u.GID == none.GID {
			return nil, errUnmapped
		}
		u.Groups = slices.DeleteFunc(u.Groups, func(g uint32) bool { return g == none.GID })
	}
	return u, nil
}

// groupsOf gives the supplementary groups of a peer.
func groupsOf(fd int) ([]uint32, error) {
	groups := make([]uint32, 64)
	for {
		size := uint32(4 * len(groups))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			return slices.Clip(groups[:size/4]), nil
		case errno != unix.ERANGE || len(groups) >= maxGroups:
			return nil, errno
		}
		groups = make([]uint32, maxGroups)
	}
}

// wholeNamespace reports whether all users have a number in this user namespace, as in the first one.
var wholeNamespace = sync.OnceValue(func() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && slices.Equal(strings.Fields(string(text)), []string{"0", "0", "4294967295"})
})

// overflow is how the kernel shows a user and a group that have no number here.
var overflow = sync.OnceValue(func() User {
	read := func(name string) uint32 {
		id := uint32(65534)
		if text, err := os.ReadFile("/proc/sys/kernel/" + name); err == nil {
			_, _ = fmt.Sscan(string(text), &id) // as it is by default
		}
		return id
	}
	return User{UID: read("overflowuid"), GID: read("overflowgid")}
})

// In reports whether the user is in a group.
func (u *User) In(gid uint32) bool { return u.GID == gid || slices.Contains(u.Groups, gid) }

func (u *User) String() string { return fmt.Sprintf("uid %d", u.UID) }

// userKey is the context key of the user for whom a call is made.
type userKey struct{}

// With gives a context of a call that is made for a user.
func With(ctx context.Context, u *User) context.Context { return context.WithValue(ctx, userKey{}, u) }

// From is the user for whom a call is made; nil: for this process.
func From(ctx context.Context) *User {
	u, _ := ctx.Value(userKey{}).(*User)
	return u
}
