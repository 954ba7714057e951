package tree

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"
)

// Info is what walking a tree finds.
type Info struct {
	// Plain is of what every peer keeps: paths, contents, targets and execute bits of files and links outside of
	// repositories.
	Plain    [32]byte
	Contents [32]byte // of these, of devices and the like, and of repositories
	Exact    [32]byte // of these and modes, owners, mtimes in nanoseconds and hard links
	Files    int
	Special  int // of files, those that are in contents only
	Bytes    int64
}

// Inspect walks a tree and digests it. Directories are in exact only.
func Inspect(ctx context.Context, root string) (Info, error) {
	var info Info
	plain, contents, exact := blake3.New(), blake3.New(), blake3.New()
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
		if _, err := fmt.Fprintf(
			exact, "%s\x00%o %d %d %d.%09d\n", rel, st.Mode, st.Uid, st.Gid, fi.ModTime().Unix(),
			fi.ModTime().Nanosecond(),
		); err != nil {
			return err
		}
		if d.IsDir() {
			return nil
		}
		info.Files++
		// What git leaves out: it keeps files and links, and nothing that is in a repository of its own.
		outer := []io.Writer{contents, plain}
		if !fi.Mode().IsRegular() && fi.Mode()&fs.ModeSymlink == 0 ||
			slices.Contains(strings.Split(filepath.Dir(rel), "/"), ".git") {
			info.Special++
			outer = outer[:1]
		}
		if !fi.Mode().IsRegular() {
			target := ""
			if fi.Mode()&fs.ModeSymlink != 0 {
				if target, err = os.Readlink(p); err != nil {
					return err
				}
			}
			_, err := fmt.Fprintf(
				io.MultiWriter(append(outer, exact)...), "%s\x00%v %s\n", rel, fi.Mode().Type(), target,
			)
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
		info.Bytes += fi.Size()
		sum, err := fileSum(p, buf)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(io.MultiWriter(outer...), "%s\x00%v\x00", rel, fi.Mode()&0o100 != 0); err != nil {
			return err
		}
		_, err = io.MultiWriter(append(outer, exact)...).Write(sum[:])
		return err
	})
	if err != nil {
		return info, fmt.Errorf("inspect %s: %w", root, err)
	}
	plain.Sum(info.Plain[:0])
	contents.Sum(info.Contents[:0])
	exact.Sum(info.Exact[:0])
	return info, nil
}

// FirstDifference describes, for an error, where two trees differ first: ": PATH ..."; "" where nothing is found.
func FirstDifference(want, got string, exact bool) string {
	text := ""
	for _, pair := range [][2]string{{want, got}, {got, want}} {
		_ = filepath.WalkDir(
			pair[0],
			func(p string, d fs.DirEntry, err error) error { // what cannot be read is left out
				if err != nil || d.IsDir() && !exact {
					return nil
				}
				rel, err := filepath.Rel(pair[0], p)
				if err != nil {
					return err
				}
				if what := difference(p, filepath.Join(pair[1], rel), exact); what != "" {
					text = fmt.Sprintf(": %q %s", rel, what)
					return fs.SkipAll
				}
				return nil
			},
		)
		if text != "" {
			break
		}
	}
	return text
}

// difference describes how two files differ; hard links within a tree are not compared.
func difference(a, b string, exact bool) string {
	var x, y unix.Stat_t
	if unix.Lstat(a, &x) != nil || unix.Lstat(b, &y) != nil {
		return "is not in both"
	}
	switch regular := x.Mode&unix.S_IFMT == unix.S_IFREG; {
	case x.Mode&(unix.S_IFMT|0o100) != y.Mode&(unix.S_IFMT|0o100) || exact && x.Mode != y.Mode:
		return fmt.Sprintf("has mode %o and %o", x.Mode, y.Mode)
	case regular && x.Size != y.Size:
		return fmt.Sprintf("has %d and %d bytes", x.Size, y.Size)
	case exact && (x.Uid != y.Uid || x.Gid != y.Gid):
		return "has different owners"
	case exact && x.Mtim != y.Mtim:
		return fmt.Sprintf("is of %d.%09d and %d.%09d", x.Mtim.Sec, x.Mtim.Nsec, y.Mtim.Sec, y.Mtim.Nsec)
	case regular:
		buf := make([]byte, 1<<20)
		s, err := fileSum(a, buf)
		o, oerr := fileSum(b, buf)
		if err == nil && oerr == nil && s != o {
			return "has different contents"
		}
	}
	return ""
}

// Digest is the digest of a history: of all that is seen of its states.
func Digest(infos []Info) string {
	h := blake3.New()
	for _, in := range infos {
		_, _ = h.Write(in.Contents[:]) // never fails
		_, _ = h.Write(in.Exact[:])
	}
	return hex.EncodeToString(h.Sum(nil))
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

// Allocated is what the files below root take on disk, each inode once.
func Allocated(root string) (int64, error) {
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

// Changed lists the paths of next that are not in prev as they are, as tar would add them, and those
// that are gone.
func Changed(ctx context.Context, prev, next string) (added, gone []string, err error) {
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
