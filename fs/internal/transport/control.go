package transport

import (
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// controlDir is where the kernel's control files of all connections are, a directory for each. See
// Documentation/filesystems/fuse.rst, "Control filesystem".
const (
	controlDir   = "/sys/fs/fuse/connections"
	controlMagic = 0x65735543 // of statfs(2)
)

// control opens the control file system: where it is mounted, or else, which needs privilege, a mount of its own that
// is not attached anywhere.
var control = sync.OnceValues(func() (*os.File, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(controlDir, &st); err == nil && st.Type == controlMagic {
		return os.Open(controlDir)
	}
	fail := func(err error) (*os.File, error) { return nil, &os.PathError{Op: "mount", Path: "fusectl", Err: err} }
	ctx, err := unix.Fsopen("fusectl", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(ctx) //nolint:errcheck // nothing is written that could fail late
	if err := unix.FsconfigCreate(ctx); err != nil {
		return fail(err)
	}
	fd, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	return os.NewFile(uintptr(fd), "fusectl"), nil
})

// openAbort opens the file that ends a connection when it is written to.
func openAbort(dev uint64) (int, error) {
	dir, err := control()
	if err != nil {
		return -1, err
	}
	name := strconv.FormatUint(uint64(unix.Minor(dev)), 10) + "/abort"
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: "fusectl/" + name, Err: err}
	}
	return fd, nil
}

// mayAbort gives the reason why abortConnection would not work.
func mayAbort(dev uint64) error {
	fd, err := openAbort(dev)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// abortConnection ends the connection of a mount at once. Once it has ended by itself another mount may have its
// number: ended is called when the file is open, which then is that of the connection or of none.
func abortConnection(dev uint64, ended func() bool) error {
	fd, err := openAbort(dev)
	if ended() {
		if err == nil {
			_ = unix.Close(fd) // nothing was written
		}
		return nil
	}
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte("1"))
	_ = unix.Close(fd) // the kernel keeps nothing back
	return err
}
