package dirapply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/layers"
	"snapfs/sandbox/internal/threeway"
)

// Tree is what a root has, as a plan looks at it.
type Tree struct{ r *Root }

// Tree presents the root.
func (r *Root) Tree() Tree { return Tree{r} }

// Lstat implements threeway.Tree.
func (t Tree) Lstat(path string) (threeway.File, error) {
	st, err := t.r.lstat(path)
	if st == nil || err != nil {
		return nil, described(path, err)
	}
	return file{t.r, path, st}, nil
}

// List implements threeway.Tree. What is mounted in the directory has nothing in it.
func (t Tree) List(path string) ([]string, error) {
	all, err := t.r.list(path)
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	return names, described(path, err)
}

// described says of an error where it happened.
func described(path string, err error) error {
	switch {
	case errors.Is(err, unix.EXDEV):
		return fmt.Errorf("%q is in what is mounted inside the directory: unmount it first: %w", shortened(path), err)
	case err != nil:
		return fmt.Errorf("%q: %w", shortened(path), err)
	}
	return nil
}

// shortened is a path as an error has it.
func shortened(path string) string {
	const most = 1024
	if len(path) > most {
		return path[:most/2] + "..." + path[len(path)-most/2:]
	}
	return path
}

// file is what a path of a root leads to.
type file struct {
	r    *Root
	path string
	st   *stat
}

// Stat implements threeway.File.
func (f file) Stat() layers.Attr { return f.st.Attr }

// open opens the file as what it is, without what a device or a pipe does when it is opened.
func (f file) open(flags int) (h *os.File, err error) {
	err = f.r.in(f.path, func(dir int, name string) error {
		fd, err := unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if err == nil {
			h = os.NewFile(uintptr(fd), f.path)
		}
		return err
	})
	return h, described(f.path, err)
}

// Target implements threeway.File.
func (f file) Target() (target string, err error) {
	err = f.r.in(f.path, func(dir int, name string) error {
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(dir, name, buf)
		target = string(buf[:max(n, 0)])
		return err
	})
	return target, described(f.path, err)
}

// Read implements threeway.File.
func (f file) Read() ([]byte, error) {
	h, err := f.open(unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer h.Close() //nolint:errcheck // nothing is written
	data := make([]byte, f.st.Size)
	n, err := io.ReadFull(h, data)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%q: %w: it became shorter", f.path, ErrChanged)
	}
	return data[:n], err
}

// CopyTo implements threeway.File.
func (f file) CopyTo(ctx context.Context, w io.Writer) error {
	h, err := f.open(unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer h.Close() //nolint:errcheck // nothing is written
	buf := make([]byte, 256<<10)
	for left := int64(f.st.Size); left > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := h.Read(buf[:min(left, int64(len(buf)))])
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			left -= int64(n)
		}
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%q: %w: it became shorter", f.path, ErrChanged)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Xattrs implements threeway.File.
func (f file) Xattrs() (all map[string]string, err error) {
	err = f.r.in(cmp.Or(f.path, "."), func(dir int, name string) error {
		fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd) //nolint:errcheck // O_PATH
		all, err = xattrsOf(fd)
		return err
	})
	return all, described(f.path, err)
}

// fdPath names what is open, even if only for its path, where a system call takes a path. It is no symbolic link that
// leads on from there.
func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// xattrsOf reads all attributes that this process may see.
func xattrsOf(fd int) (map[string]string, error) {
	path := fdPath(fd)
	n, err := unix.Listxattr(path, nil)
	if err != nil || n == 0 {
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPERM) {
			err = nil
		}
		return nil, err
	}
	names := make([]byte, n)
	if n, err = unix.Listxattr(path, names); err != nil {
		return nil, err
	}
	all := map[string]string{}
	for xattr := range strings.SplitSeq(strings.TrimRight(string(names[:n]), "\x00"), "\x00") {
		if xattr == "" {
			continue
		}
		size, err := unix.Getxattr(path, xattr, nil)
		value := make([]byte, max(size, 0))
		if err == nil && size > 0 {
			size, err = unix.Getxattr(path, xattr, value)
		}
		switch {
		case errors.Is(err, unix.ENODATA), denied(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("attribute %s: %w", xattr, err)
		}
		all[xattr] = string(value[:size])
	}
	return all, nil
}

// missing reports that a path leads to nothing, or through what is no directory.
func missing(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// denied reports that the host, or the rights of this process, do not allow something.
func denied(err error) bool {
	for _, e := range []error{unix.EPERM, unix.EACCES, unix.EOPNOTSUPP, unix.EINVAL, unix.ENOSYS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
