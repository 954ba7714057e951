package main

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

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"
)

// treeInfo is what walking a tree finds.
type treeInfo struct {
	contents [32]byte // of paths, types, contents, targets and execute bits: all that every peer keeps
	exact    [32]byte // of these and modes, owners, mtimes in nanoseconds and hard links
	files    int
	bytes    int64
}

// inspect walks a tree and digests it. Directories that hold nothing and .git at the top are left out of
// contents, as git cannot keep them.
func inspect(ctx context.Context, root string) (treeInfo, error) {
	var info treeInfo
	contents, exact := blake3.New(), blake3.New()
	buf := make([]byte, 1<<20)
	inodes := map[uint64]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		st, ok := fi.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("no stat of %s", p)
		}
		if _, err := fmt.Fprintf(exact, "%s\x00%o %d %d %d.%09d\n", rel, st.Mode, st.Uid, st.Gid, fi.ModTime().Unix(), fi.ModTime().Nanosecond()); err != nil {
			return err
		}
		if d.IsDir() {
			return nil
		}
		info.files++
		if !fi.Mode().IsRegular() {
			target := ""
			if fi.Mode()&fs.ModeSymlink != 0 {
				if target, err = os.Readlink(p); err != nil {
					return err
				}
			}
			_, err := fmt.Fprintf(io.MultiWriter(contents, exact), "%s\x00%v %s\n", rel, fi.Mode().Type(), target)
			return err
		}
		if st.Nlink > 1 {
			if first, ok := inodes[st.Ino]; ok {
				if _, err := fmt.Fprintf(exact, "link to %s\n", first); err != nil {
					return err
				}
			} else {
				inodes[st.Ino] = rel
			}
		}
		info.bytes += fi.Size()
		sum, err := fileSum(p, buf)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(contents, "%s\x00%v\x00", rel, fi.Mode()&0o100 != 0); err != nil {
			return err
		}
		_, err = io.MultiWriter(contents, exact).Write(sum[:])
		return err
	})
	if err != nil {
		return info, fmt.Errorf("inspect %s: %w", root, err)
	}
	contents.Sum(info.contents[:0])
	exact.Sum(info.exact[:0])
	return info, nil
}

func fileSum(path string, buf []byte) ([32]byte, error) {
	var sum [32]byte
	f, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	h := blake3.New()
	_, err = io.CopyBuffer(h, struct{ io.Reader }{f}, buf)
	h.Sum(sum[:0])
	return sum, errors.Join(err, f.Close())
}

// allocated is what the files below root take on disk, each inode once.
func allocated(root string) (int64, error) {
	var n int64
	seen := map[uint64]bool{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		if !seen[st.Ino] {
			seen[st.Ino] = true
			n += st.Blocks * 512
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("measure %s: %w", root, err)
	}
	return n, nil
}

// freeze copies the tree ws to next as one more state. Files that are as in prev, contents, mode and
// time, become hard links to it. Whatever was changed after since gets the time stamp first, so that
// states are the same on every machine.
func freeze(ctx context.Context, ws, prev, next string, since, stamp time.Time) error {
	type dirTime struct {
		path string
		t    time.Time
	}
	var dirs []dirTime
	err := filepath.WalkDir(ws, func(p string, d fs.DirEntry, err error) error {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		rel, err := filepath.Rel(ws, p)
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		t := fi.ModTime()
		if t.After(since) {
			t = stamp
			if err := setTime(p, t); err != nil {
				return err
			}
		}
		to := filepath.Join(next, rel)
		switch {
		case d.IsDir():
			dirs = append(dirs, dirTime{to, t})
			return os.MkdirAll(to, fi.Mode().Perm()|0o700)
		case fi.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			return cmp.Or(os.Symlink(target, to), setTime(to, t))
		case !fi.Mode().IsRegular():
			return fmt.Errorf("%s is neither file, directory nor link", p)
		}
		if prev != "" {
			old := filepath.Join(prev, rel)
			if same, err := sameFile(old, p, fi, t); err != nil {
				return err
			} else if same {
				return os.Link(old, to)
			}
		}
		return cmp.Or(copyFile(p, to, fi.Mode().Perm()), setTime(to, t))
	})
	if err != nil {
		return fmt.Errorf("freeze state: %w", err)
	}
	for _, d := range slices.Backward(dirs) { // children first, they change their parent's time
		if err := setTime(d.path, d.t); err != nil {
			return fmt.Errorf("freeze state: %w", err)
		}
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

func sameFile(old, path string, fi fs.FileInfo, t time.Time) (bool, error) {
	was, err := os.Lstat(old)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if was.Mode() != fi.Mode() || was.Size() != fi.Size() || !was.ModTime().Equal(t) {
		return false, nil
	}
	a, err := os.ReadFile(old)
	if err != nil {
		return false, err
	}
	b, err := os.ReadFile(path)
	return bytes.Equal(a, b), err
}

func copyFile(from, to string, perm fs.FileMode) error {
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
	return errors.Join(err, out.Chmod(perm), out.Close())
}

// changed lists the paths of next that are not in prev as they are, as tar would add them, and those
// that are gone.
func changed(ctx context.Context, prev, next string) (added, gone []string, err error) {
	err = filepath.WalkDir(next, func(p string, d fs.DirEntry, err error) error {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		rel, err := filepath.Rel(next, p)
		if err != nil || rel == "." {
			return err
		}
		same := false
		if prev != "" {
			same, err = unchanged(filepath.Join(prev, rel), p)
		}
		if err == nil && !same {
			added = append(added, rel)
		}
		return err
	})
	if err != nil || prev == "" {
		return added, nil, err
	}
	err = filepath.WalkDir(prev, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(prev, p)
		if err != nil {
			return err
		}
		is, err := os.Lstat(filepath.Join(next, rel))
		if errors.Is(err, fs.ErrNotExist) || err == nil && d.IsDir() && !is.IsDir() {
			gone = append(gone, rel)
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return err
	})
	return added, gone, err
}

// unchanged compares as rsync and tar do: type, mode, size, time, and for links the target.
func unchanged(old, path string) (bool, error) {
	var a, b unix.Stat_t
	if err := unix.Lstat(path, &b); err != nil {
		return false, fmt.Errorf("stat %s: %w", path, err)
	}
	if err := unix.Lstat(old, &a); err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return false, nil
		}
		return false, fmt.Errorf("stat %s: %w", old, err)
	}
	if a.Ino == b.Ino && a.Dev == b.Dev {
		return true, nil
	}
	if a.Mode != b.Mode || a.Mtim != b.Mtim || a.Uid != b.Uid || a.Gid != b.Gid {
		return false, nil
	}
	switch b.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return true, nil
	case unix.S_IFLNK:
		was, err := os.Readlink(old)
		if err != nil {
			return false, err
		}
		is, err := os.Readlink(path)
		return was == is, err
	}
	return a.Size == b.Size, nil
}
