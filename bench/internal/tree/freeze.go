package tree

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// freezer copies one state of a workspace. Used by one goroutine.
type freezer struct {
	ws, prev, next string
	since, stamp   time.Time
	links          map[uint64]string // a hard-linked file of ws: its first name in next
	taken          map[uint64]uint64 // a file of prev: the one of ws that is a link to it
	dirs           []dirTime
}

type dirTime struct {
	path string
	t    time.Time
}

// Freeze copies the tree ws to next as one more state. Files that are as in prev, contents, mode, owner and
// time, become hard links to it. Whatever was changed after since gets the time stamp first, so that
// states are the same on every machine.
func Freeze(ctx context.Context, ws, prev, next string, since, stamp time.Time) error {
	f := &freezer{
		ws: ws, prev: prev, next: next, since: since, stamp: stamp, links: map[uint64]string{},
		taken: map[uint64]uint64{},
	}
	err := filepath.WalkDir(ws, func(p string, d fs.DirEntry, err error) error {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		return f.entry(p, d)
	})
	if err != nil {
		return fmt.Errorf("freeze state: %w", err)
	}
	for _, d := range slices.Backward(f.dirs) { // children first, they change their parent's time
		if err := setTime(d.path, d.t); err != nil {
			return fmt.Errorf("freeze state: %w", err)
		}
	}
	return nil
}

func (f *freezer) entry(p string, d fs.DirEntry) error {
	rel, err := filepath.Rel(f.ws, p)
	if err != nil {
		return err
	}
	fi, err := d.Info()
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("no stat of %s", p)
	}
	t := fi.ModTime()
	if t.After(f.since) {
		t = f.stamp
		if err := setTime(p, t); err != nil {
			return err
		}
	}
	to := filepath.Join(f.next, rel)
	switch {
	case d.IsDir():
		f.dirs = append(f.dirs, dirTime{to, t})
		if err := os.MkdirAll(to, 0o700); err != nil {
			return err
		}
		return ownAs(to, st)
	case fi.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(p)
		if err != nil {
			return err
		}
		if err := os.Symlink(target, to); err != nil {
			return err
		}
		return cmp.Or(ownAs(to, st), setTime(to, t))
	case !fi.Mode().IsRegular():
		return fmt.Errorf("%s is neither file, directory nor link", p)
	}
	if st.Nlink > 1 {
		if first, ok := f.links[st.Ino]; ok {
			return os.Link(first, to)
		}
		f.links[st.Ino] = to
	}
	if f.prev != "" {
		old := filepath.Join(f.prev, rel)
		if same, err := f.sameFile(old, p, st, t); err != nil {
			return err
		} else if same {
			return os.Link(old, to)
		}
	}
	return cmp.Or(copyFile(p, to), ownAs(to, st), setTime(to, t))
}

// ownAs gives owner and mode; the mode last, for a change of owner clears set-user-id.
func ownAs(path string, st *syscall.Stat_t) error {
	if err := os.Lchown(path, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if st.Mode&syscall.S_IFMT == syscall.S_IFLNK {
		return nil
	}
	if err := unix.Chmod(path, st.Mode&0o7777); err != nil {
		return fmt.Errorf("set mode of %s: %w", path, err)
	}
	return nil
}

// setTime sets a file's, or a link's own, times.
func setTime(path string, t time.Time) error {
	ts := unix.NsecToTimespec(t.UnixNano())
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set time of %s: %w", path, err)
	}
	return nil
}

// sameFile reports whether old can be linked as a file of the workspace. A file of the state before is linked as one
// file only, or what is linked there would be linked here.
func (f *freezer) sameFile(old, path string, is *syscall.Stat_t, t time.Time) (bool, error) {
	var was syscall.Stat_t
	if err := syscall.Lstat(old, &was); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("stat %s: %w", old, err)
	}
	if was.Mode != is.Mode || was.Uid != is.Uid || was.Gid != is.Gid || was.Size != is.Size ||
		!time.Unix(was.Mtim.Unix()).Equal(t) {
		return false, nil
	}
	if ino, ok := f.taken[was.Ino]; ok && ino != is.Ino {
		return false, nil
	}
	a, err := os.ReadFile(old)
	if err != nil {
		return false, err
	}
	b, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(a, b) {
		return false, err
	}
	f.taken[was.Ino] = is.Ino
	return true, nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
