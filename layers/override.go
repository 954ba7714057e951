package layers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// A process without privilege on the host keeps in attributes of its own what the host refuses it: docs/FORMAT.md has
// the format. The rest of the package uses the names and the inodes that a privileged process has; the methods of
// location translate.
//
//	name for the package         name on the host
//	trusted.overlay.X            user.overlay.X
//	user.overlay.X of a caller   user.overlay.overlay.X
//	trusted.X, security.X        user.overlay.snapfs.x.trusted.X, …
//	what stat shows              user.overlay.snapfs.stat, see override
//
// The host's own labels, trusted.* and security.*, are not shown.
const (
	userPrefix   = "user.overlay."
	userEscaped  = userPrefix + "overlay."
	userStat     = userPrefix + "snapfs.stat"
	userKept     = userPrefix + "snapfs.x."
	aclAccess    = "system.posix_acl_access"
	overrideSize = 24
)

// UserAttributes reports whether uppers of this process have user.* attributes in place of trusted.* ones: it is not
// root, or root of a user namespace only.
var UserAttributes = sync.OnceValue(func() bool {
	users := ownUsers()
	return os.Geteuid() != 0 || users != "" && users != initialUsers
})

// translates reports whether attributes at p are other ones on the host.
func (p location) translates() bool { return !p.foreign && UserAttributes() }

// hostXattr is what the host calls an attribute.
func (p location) hostXattr(name string) string {
	if !p.translates() {
		return name
	}
	switch {
	case ownXattr(name):
		return userPrefix + name[len(xattrPrefix):]
	case strings.HasPrefix(name, userPrefix):
		return userEscaped + name[len(userPrefix):]
	case strings.HasPrefix(name, "trusted."), strings.HasPrefix(name, "security."):
		return userKept + name
	}
	return name
}

// shownXattr is the inverse of hostXattr; false for what is not shown.
func (p location) shownXattr(host string) (string, bool) {
	if !p.translates() {
		return host, true
	}
	rest, overlay := strings.CutPrefix(host, userPrefix)
	switch {
	case host == userStat:
		return "", false
	case strings.HasPrefix(host, userKept):
		return host[len(userKept):], true
	case strings.HasPrefix(host, userEscaped):
		return userPrefix + host[len(userEscaped):], true
	case overlay:
		return xattrPrefix + rest, true
	case strings.HasPrefix(host, "trusted."), strings.HasPrefix(host, "security."):
		return "", false
	}
	return host, true
}

// override is what callers see of an inode in place of what the host has:
//
//	mode  u32  type, setuid, setgid, and the owner's permissions; all other bits are the host's
//	uid   u32
//	gid   u32
//	zero  u32
//	rdev  u64  of devices
//
// Little endian, 24 bytes. An inode whose type the host cannot make, or cannot give attributes, is a regular file there,
// a symlink's with the target as its contents.
type override struct {
	mode, uid, gid uint32
	rdev           uint64
}

// overrideBits are those of a mode that an override has.
const overrideBits = unix.S_IFMT | unix.S_ISUID | unix.S_ISGID | 0o700

func (r override) encode() []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, overrideSize), r.mode)
	b = binary.LittleEndian.AppendUint32(b, r.uid)
	b = binary.LittleEndian.AppendUint32(b, r.gid)
	b = binary.LittleEndian.AppendUint32(b, 0)
	return binary.LittleEndian.AppendUint64(b, r.rdev)
}

func decodeOverride(p []byte) (override, error) {
	var r override
	if len(p) != overrideSize || binary.LittleEndian.Uint32(p[12:]) != 0 {
		return r, fmt.Errorf("%w: an override of %d bytes", squashfs.ErrCorrupt, len(p))
	}
	r.mode, r.uid, r.gid = binary.LittleEndian.Uint32(p), binary.LittleEndian.Uint32(p[4:]), binary.LittleEndian.Uint32(p[8:])
	r.rdev = binary.LittleEndian.Uint64(p[16:])
	if r.mode&^overrideBits != 0 {
		return r, fmt.Errorf("%w: an override with mode %o", squashfs.ErrCorrupt, r.mode)
	}
	return r, nil
}

// apply puts an override into the host's attributes.
func (r override) apply(a *Attr) {
	host := a.Mode
	a.Mode = r.mode&overrideBits | host&^overrideBits
	a.UID, a.GID = r.uid, r.gid
	switch {
	case isLnk(a.Mode):
		a.Mode |= 0o777
		a.Blocks = 0
	case isReg(host) && !isReg(a.Mode):
		a.Rdev, a.Blocks = r.rdev, 0
	}
}

// readOverride reads the override of what the host has; ok is false if there is none.
func (p location) readOverride(host *Attr) (r override, ok bool, err error) {
	if !isReg(host.Mode) && !isDir(host.Mode) {
		return r, false, nil // it can have no attributes
	}
	var buf [overrideSize + 1]byte
	n, err := p.hostGetxattr(userStat, buf[:])
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP):
		return r, false, nil
	case errors.Is(err, unix.EACCES): // made just now: what has one can be read
		return r, false, nil
	case err != nil:
		return r, false, err
	}
	r, err = decodeOverride(buf[:n])
	return r, err == nil, err
}

// needed are the permissions that this process must have of what it serves.
func needed(host uint32) uint32 {
	switch {
	case isDir(host):
		return 0o700
	case isReg(host):
		return 0o600
	}
	return 0
}

// fresh are the permissions of a new inode until it has its own: none but those that this process needs.
func fresh(typ uint32) uint32 {
	if !UserAttributes() {
		return 0
	}
	return needed(typ)
}

// show has callers see an inode of the host with another owner and mode, by an override only if that is needed. EPERM
// for what cannot have one.
func (p location) show(host Attr, had bool, want Attr) error {
	carries := isReg(host.Mode) || isDir(host.Mode)
	need := needed(host.Mode)
	differs := want.UID != host.UID || want.GID != host.GID || want.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 ||
		want.Mode&need != need || want.Mode&unix.S_IFMT != host.Mode&unix.S_IFMT
	if differs && !carries {
		return unix.EPERM
	}
	setOverride := func() error {
		switch {
		case differs:
			r := override{want.Mode & overrideBits, want.UID, want.GID, want.Rdev}
			return p.hostSetxattr(userStat, r.encode(), 0)
		case had:
			return p.hostRemovexattr(userStat)
		}
		return nil
	}
	// setuid and setgid go before others get more rights, and come after they have lost them.
	first := had && want.Mode&(unix.S_ISUID|unix.S_ISGID) == 0
	if first {
		if err := setOverride(); err != nil {
			return err
		}
	}
	if mode := want.Mode&0o1777 | need; mode != host.Mode&0o7777 && !isLnk(host.Mode) {
		if err := p.hostChmod(mode); err != nil {
			return err
		}
		steps.At("mode set")
	}
	if first {
		return nil
	}
	return setOverride()
}

// seen gives what the host has of an inode and what callers see of it.
func (p location) seen() (host, shown Attr, had bool, err error) {
	if host, err = p.hostStat(); err != nil {
		return host, shown, false, err
	}
	shown = host
	r, had, err := p.readOverride(&host)
	if had {
		r.apply(&shown)
	}
	return host, shown, had, err
}

// chmodShown is chmod where the host need not have the mode.
func (p location) chmodShown(mode uint32) error {
	host, want, had, err := p.seen()
	if err != nil {
		return err
	}
	want.Mode = want.Mode&unix.S_IFMT | mode&0o7777
	return p.show(host, had, want)
}

// chownShown is chown where the host need not have the owner. As there, it takes setuid, setgid of what a group may
// execute, and capabilities.
func (p location) chownShown(uid, gid int) error {
	host, want, had, err := p.seen()
	if err != nil {
		return err
	}
	if uid >= 0 {
		want.UID = uint32(uid)
	}
	if gid >= 0 {
		want.GID = uint32(gid)
	}
	if !isDir(want.Mode) {
		want.Mode &^= unix.S_ISUID
		if want.Mode&0o010 != 0 {
			want.Mode &^= unix.S_ISGID
		}
		if isReg(host.Mode) {
			if err := dropXattr(p, xattrCapability); err != nil {
				return err
			}
		}
	}
	return p.show(host, had, want)
}

// An access ACL names the owner's permissions, too, of which the host may have more.
const (
	aclHeader  = 4
	aclEntry   = 8
	aclUserObj = 1
)

// ownerOf gives where an access ACL has the owner's permissions; -1 for what is none.
func ownerOf(acl []byte) int {
	for at := aclHeader; at+aclEntry <= len(acl); at += aclEntry {
		if binary.LittleEndian.Uint16(acl[at:]) == aclUserObj {
			return at + 2
		}
	}
	return -1
}

// setACL sets an access ACL, with as much for the owner on the host as this process needs.
func (p location) setACL(value []byte, flags int) error {
	host, want, had, err := p.seen()
	if err != nil {
		return err
	}
	at := ownerOf(value)
	if at < 0 || !isReg(host.Mode) && !isDir(host.Mode) {
		return p.hostSetxattr(aclAccess, value, flags)
	}
	owner := uint32(binary.LittleEndian.Uint16(value[at:])) & 7
	raised := append([]byte{}, value...)
	binary.LittleEndian.PutUint16(raised[at:], uint16(owner|needed(host.Mode)>>6))
	if err := p.hostSetxattr(aclAccess, raised, flags); err != nil {
		return err
	}
	if host, err = p.hostStat(); err != nil {
		return err
	}
	want.Mode = want.Mode&(unix.S_IFMT|0o7000) | owner<<6 | host.Mode&0o077
	return p.show(host, had, want)
}

// shownACL puts what callers see of the owner's permissions into an access ACL of the host.
func (p location) shownACL(acl []byte) ([]byte, error) {
	at := ownerOf(acl)
	if at < 0 {
		return acl, nil
	}
	a, err := p.stat()
	if err == nil {
		binary.LittleEndian.PutUint16(acl[at:], uint16(a.Mode>>6&7))
	}
	return acl, err
}

// standsIn reports whether a new inode of a type is a regular file on the host: a device, and what is to have
// attributes that the host gives such a type to root only.
func standsIn(mode uint32, attributes bool) bool {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR:
		return false
	case unix.S_IFCHR, unix.S_IFBLK:
		return UserAttributes()
	}
	// Root of a user namespace may give it another owner at any time.
	return UserAttributes() && (attributes || os.Geteuid() == 0)
}

// makeStandIn makes the regular file that stands for a symlink, a device, a socket or a pipe.
func (p location) makeStandIn(mode uint32, rdev uint64, target string) error {
	fd, err := openat(p.dirfd, p.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = pwriteFull(fd, []byte(target), 0)
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return err
	}
	steps.At("inode made")
	host, err := p.hostStat()
	if err != nil {
		return err
	}
	want := host
	want.Mode, want.Rdev = mode&(unix.S_IFMT|0o1777), rdev
	return p.show(host, false, want)
}

// readTarget reads the target of a symlink that is a regular file on the host.
func (p location) readTarget() (string, error) {
	flags := unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK
	if p.name != "" {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := unix.Open(p.proc(), flags, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	buf := make([]byte, unix.PathMax)
	n, err := unix.Pread(fd, buf, 0)
	return string(buf[:max(n, 0)]), err
}
