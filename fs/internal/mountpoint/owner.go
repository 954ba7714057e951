package mountpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openPath opens a directory to name things in it, which needs no right to read it.
const openPath = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC

// inside names something in an open directory for system calls that take a path.
func inside(dir int, name string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", dir, name) }

// attachFor opens a connection and mounts it on the directory that its owner has opened. The path must lead there
// before and afterwards: its owner may rename what is above.
func (p *Mountpoint) attachFor(opts Options) (_ *Mountpoint, fd int, err error) {
	dir := int(opts.Owner.Dir.Fd())
	if fd, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return nil, -1, noFUSE(err, p.path)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd) // never used
		}
	}()
	if err := mountDirect(fd, fmt.Sprintf("/proc/self/fd/%d", dir), opts); err != nil {
		return nil, -1, noFUSE(err, p.path)
	}
	p.direct = true
	// A mountpoint keeps its name as long as something is mounted on it.
	up, err := unix.Openat(dir, "..", openPath, 0)
	if err != nil {
		return nil, -1, &os.PathError{Op: "mount", Path: p.path, Err: err}
	}
	defer func() { _ = unix.Close(up) }() // nothing is written
	now, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir))
	if err != nil {
		return nil, -1, err
	}
	at := inside(up, filepath.Base(now))
	if p.dev, _, err = identify(at); err == nil && now != p.path {
		err = fmt.Errorf("mount %s: it was renamed meanwhile: %w", p.path, unix.EBUSY)
	}
	if err != nil {
		return nil, -1, errors.Join(err, unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
	}
	return p, fd, nil
}

// Detach unmounts the file system of a device if it is what is mounted at a path, and reports whether it was. EBUSY
// while in use unless lazy. Whoever may rename what is above the path cannot have another mount taken away.
func Detach(path string, dev uint64, lazy bool) (found bool, err error) {
	dir, err := unix.Open(filepath.Dir(path), openPath, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, &os.PathError{Op: "unmount", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(dir) }() // nothing is written
	at := inside(dir, filepath.Base(path))
	now, root, err := identify(at)
	if err == nil && (!root || now != dev) || errors.Is(err, fs.ErrNotExist) {
		return false, nil // it was unmounted by other means
	}
	flags := unix.UMOUNT_NOFOLLOW
	if lazy {
		flags |= unix.MNT_DETACH
	}
	err = unix.Unmount(at, flags)
	if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 { // nobody else may rename what leads to a user's mount
		return true, unmountHelper(path, lazy)
	}
	if err != nil {
		return true, &os.PathError{Op: "unmount", Path: path, Err: err}
	}
	return true, nil
}
