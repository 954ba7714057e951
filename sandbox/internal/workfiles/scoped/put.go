package scoped

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

// TempPrefix is how the names of files begin that are about to get another one.
const TempPrefix = ".snapfs-put-"

// Put makes or replaces a file. temp is a name that nobody can guess: it may be seen in the directory for a moment, and
// stays if this process is killed then. What is replaced keeps its permissions, owner, ACL and user attributes; its
// other hard links keep the old contents.
func (r *Root) Put(ctx context.Context, q api.PutFileRequest, temp string, body io.Reader) (api.File, error) {
	if q.Mode&^0o7777 != 0 || q.Size < -1 {
		return api.File{}, fmt.Errorf("%w: mode %#o, size %d", api.ErrInvalid, q.Mode, q.Size)
	}
	t, err := r.target(q.Path, q.NoFollow, q.Parents)
	if err != nil {
		return api.File{}, err
	}
	defer t.close()
	if err := t.mayPut(q.Exclusive); err != nil {
		return api.File{}, err
	}
	d, err := t.draft(temp, q.Mode)
	if err != nil {
		return api.File{}, err
	}
	defer d.drop()
	n, err := d.copy(ctx, body)
	if err != nil {
		return api.File{}, err
	}
	if q.Size >= 0 && n != q.Size {
		return api.File{}, fmt.Errorf("%w: the contents have %d bytes, not %d", api.ErrInvalid, n, q.Size)
	}
	if err := ctx.Err(); err != nil {
		return api.File{}, err
	}
	return d.publish(q.Exclusive)
}

// mayPut refuses to replace what cannot be, or must not be.
func (t *target) mayPut(exclusive bool) error {
	switch {
	case t.old == nil:
		return nil
	case exclusive:
		return Fault(t.path, unix.EEXIST)
	case t.old.Mode&unix.S_IFMT == unix.S_IFLNK:
		return nil
	}
	if err := isRegular(t.old, t.path); err != nil {
		return err
	}
	// A program that may not write to a file must not replace it either.
	return Fault(t.path, unix.Faccessat(t.dir, t.name, unix.W_OK, unix.AT_EACCESS))
}

// draft is a file that has no name yet, or one that nobody knows.
type draft struct {
	*target
	file  *os.File
	temp  string // a name for it
	named bool   // it has that
}

// draft makes a file that is to get the name of the target.
func (t *target) draft(temp string, mode uint32) (*draft, error) {
	d := &draft{target: t, temp: temp}
	fd, err := openIn(t.dir, ".", unix.O_TMPFILE|unix.O_RDWR, below)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EINVAL) {
		// The kernel, or its FUSE, cannot do that yet.
		fd, err = unix.Openat(t.dir, temp, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		d.named = err == nil
	}
	if err != nil {
		return nil, Fault(t.path, err)
	}
	d.file = os.NewFile(uintptr(fd), "draft")
	if err := d.dress(mode); err != nil {
		d.drop()
		return nil, err
	}
	return d, nil
}

// dress gives the file what the one that it replaces has, or the mode that is asked for.
func (d *draft) dress(mode uint32) error {
	fd := int(d.file.Fd())
	if mode == 0 {
		mode = 0o644
	}
	if old := d.old; old != nil && old.Mode&unix.S_IFMT == unix.S_IFREG {
		mode = old.Mode & 0o7777
		var st unix.Stat_t
		err := unix.Fstat(fd, &st)
		if err == nil && (st.Uid != old.Uid || st.Gid != old.Gid) {
			if err = unix.Fchown(fd, int(old.Uid), int(old.Gid)); errors.Is(err, unix.EPERM) {
				return fmt.Errorf("%w: %s belongs to uid %d and gid %d, which a new file cannot be given: %w",
					api.ErrRefused, api.Quoted(d.path), old.Uid, old.Gid, err)
			}
		}
		if err == nil {
			err = d.copyAttributes(fd)
		}
		if err != nil {
			return Fault(d.path, err)
		}
	}
	if d.plain {
		mode &^= unix.S_ISUID | unix.S_ISGID
	}
	return Fault(d.path, unix.Fchmod(fd, mode))
}

// copy writes what body gives.
func (d *draft) copy(ctx context.Context, body io.Reader) (n int64, err error) {
	room := pieces.Get().(*[piece]byte)
	defer pieces.Put(room)
	for {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		got, readErr := body.Read(room[:])
		if _, err := d.file.Write(room[:got]); err != nil {
			return n, Fault(d.path, err)
		}
		n += int64(got)
		if errors.Is(readErr, io.EOF) {
			return n, nil
		}
		if readErr != nil {
			return n, readErr
		}
	}
}

// publish gives the file its name.
func (d *draft) publish(exclusive bool) (api.File, error) {
	err := error(unix.EEXIST)
	fresh := !d.named && (d.old == nil || exclusive)
	if fresh {
		err = d.link(d.name)
	}
	if errors.Is(err, unix.EEXIST) && (!exclusive || !fresh) {
		err = d.rename(exclusive)
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(int(d.file.Fd()), &st)
	}
	return fileOf(&st, shown(d.path)), Fault(d.path, err)
}

// rename puts the file in the place of what has its name.
func (d *draft) rename(exclusive bool) error {
	if !d.named {
		if err := d.link(d.temp); err != nil {
			return err
		}
		d.named = true
	}
	flags := uint(0)
	if exclusive {
		flags = unix.RENAME_NOREPLACE
	}
	err := unix.Renameat2(d.dir, d.temp, d.dir, d.name, flags)
	d.named = err != nil
	return err
}

// link gives a name to the file, which has none.
func (d *draft) link(name string) error {
	return unix.Linkat(unix.AT_FDCWD, procFD(int(d.file.Fd())), d.dir, name, unix.AT_SYMLINK_FOLLOW)
}

// drop closes the file, and removes it if it did not get its name.
func (d *draft) drop() {
	_ = d.file.Close() // its name counts, and the next snapshot makes it durable
	if d.named {
		_ = unix.Unlinkat(d.dir, d.temp, 0) // the error that led here is the one to tell
	}
}

// Sweep removes the name that a Put has left whose process was killed.
func (r *Root) Sweep(p, temp string) error {
	t, err := r.target(p, false, false)
	if err != nil {
		return err
	}
	defer t.close()
	if err := unix.Unlinkat(t.dir, temp, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return Fault(temp, err)
	}
	return nil
}
