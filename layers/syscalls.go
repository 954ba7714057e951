package layers

import (
	"errors"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cName is room for a name and its terminator on the stack: the wrappers of x/sys allocate one for every call.
type cName [maxName + 1]byte

// set copies a name; EINVAL for one that no directory can hold.
func (c *cName) set(name string) error {
	if len(name) > maxName {
		return unix.ENAMETOOLONG
	}
	for i := range len(name) {
		if name[i] == 0 {
			return unix.EINVAL
		}
	}
	c[copy(c[:], name)] = 0
	return nil
}

// statx is statx(2) for a name in a directory or, with AT_EMPTY_PATH, for the descriptor itself.
func statx(dirfd int, name string, flags, mask int, sx *unix.Statx_t) error {
	var c cName
	if err := c.set(name); err != nil {
		return err
	}
	_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(dirfd), uintptr(unsafe.Pointer(&c[0])), uintptr(flags),
		uintptr(mask), uintptr(unsafe.Pointer(sx)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// System calls of Linux 6.13 that name an inode by its directory's descriptor, which the older ones reach only by a
// path through /proc. The numbers are the same on all architectures but alpha.
const (
	sysSetxattrat    = 463
	sysGetxattrat    = 464
	sysListxattrat   = 465
	sysRemovexattrat = 466
)

// xattrArgs is struct xattr_args (include/uapi/linux/xattr.h), whose value is 64 bits wide: ours is a pointer, so that
// it follows a stack that moves, and of the right size on 64-bit machines only.
type xattrArgs struct {
	value *byte
	size  uint32
	flags uint32
}

// hasXattrat reports whether the kernel, and the filter of system calls that may be around this process, offers them.
var hasXattrat = sync.OnceValue(func() bool {
	if unsafe.Sizeof(xattrArgs{}) != 16 {
		return false
	}
	root := [2]byte{'/'}
	_, _, errno := unix.Syscall6(sysListxattrat, 0, uintptr(unsafe.Pointer(&root[0])), 0, 0, 0, 0)
	return errno == 0
})

// xattrByName reports whether a location can be given to those calls: with an empty name they take no O_PATH
// descriptor.
func (p location) xattrByName() bool { return p.name != "" && hasXattrat() }

// callXattr makes one of the calls on a location, with its last arguments given.
func (p location) callXattr(call uintptr, attr string, last unsafe.Pointer, size uintptr) (int, error) {
	var file, name cName
	if err := errors.Join(file.set(p.name), name.set(attr)); err != nil {
		return 0, err
	}
	n, _, errno := unix.Syscall6(call, uintptr(p.dirfd), uintptr(unsafe.Pointer(&file[0])), unix.AT_SYMLINK_NOFOLLOW,
		uintptr(unsafe.Pointer(&name[0])), uintptr(last), size)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// lgetxattr is lgetxattr(2) of a location.
func (p location) lgetxattr(name string, buf []byte) (int, error) {
	return p.hostGetxattr(p.hostXattr(name), buf)
}

// hostGetxattr is lgetxattr by the host's name.
func (p location) hostGetxattr(name string, buf []byte) (int, error) {
	switch {
	case p.xattrByName():
		args := xattrArgs{value: unsafe.SliceData(buf), size: uint32(len(buf))}
		n, err := p.callXattr(sysGetxattrat, name, unsafe.Pointer(&args), unsafe.Sizeof(args))
		return n, err
	case p.name == "":
		return unix.Getxattr(p.proc(), name, buf)
	}
	return unix.Lgetxattr(p.proc(), name, buf)
}

// llistxattr is llistxattr(2) of a location.
func (p location) llistxattr(buf []byte) (int, error) {
	switch {
	case p.xattrByName():
		var file cName
		if err := file.set(p.name); err != nil {
			return 0, err
		}
		n, _, errno := unix.Syscall6(sysListxattrat, uintptr(p.dirfd), uintptr(unsafe.Pointer(&file[0])), unix.AT_SYMLINK_NOFOLLOW,
			uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf)), 0)
		if errno != 0 {
			return 0, errno
		}
		return int(n), nil
	case p.name == "":
		return unix.Listxattr(p.proc(), buf)
	}
	return unix.Llistxattr(p.proc(), buf)
}

func (p location) setxattr(name string, value []byte, flags int) error {
	defer steps.At("attribute set")
	if name == aclAccess && p.translates() {
		return p.setACL(value, flags)
	}
	return p.hostSetxattr(p.hostXattr(name), value, flags)
}

// hostSetxattr is setxattr by the host's name.
func (p location) hostSetxattr(name string, value []byte, flags int) error {
	switch {
	case p.xattrByName():
		args := xattrArgs{value: unsafe.SliceData(value), size: uint32(len(value)), flags: uint32(flags)}
		_, err := p.callXattr(sysSetxattrat, name, unsafe.Pointer(&args), unsafe.Sizeof(args))
		return err
	case p.name == "":
		return unix.Setxattr(p.proc(), name, value, flags)
	}
	return unix.Lsetxattr(p.proc(), name, value, flags)
}

func (p location) removexattr(name string) error { return p.hostRemovexattr(p.hostXattr(name)) }

// hostRemovexattr is removexattr by the host's name.
func (p location) hostRemovexattr(name string) error {
	switch {
	case p.xattrByName():
		_, err := p.callXattr(sysRemovexattrat, name, nil, 0)
		return err
	case p.name == "":
		return unix.Removexattr(p.proc(), name)
	}
	return unix.Lremovexattr(p.proc(), name)
}
