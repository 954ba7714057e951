package layers

import (
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
