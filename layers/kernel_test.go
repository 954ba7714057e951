package layers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// kernelMount is the kernel's overlayfs over the same lower.
type kernelMount struct{ root int }

func mountKernel(t *testing.T, lowers ...string) (*kernelMount, string) {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"u", "w", "m"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m := filepath.Join(dir, "m")
	opts := fmt.Sprintf("lowerdir=%s,upperdir=%s/u,workdir=%s/w,redirect_dir=on,metacopy=on,index=on", strings.Join(lowers, ":"), dir, dir)
	if err := unix.Mount("overlay", m, "overlay", 0, opts); err != nil {
		t.Fatal("mount: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	fd, err := unix.Open(m, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return &kernelMount{fd}, m
}

// at runs fn with the parent directory of a path, opened without following links.
func (k *kernelMount) at(path string, fn func(fd int, name string) error) error {
	dir, name := filepath.Split(path)
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(k.root, "./"+dir, &how)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return fn(fd, name)
}

func (k *kernelMount) node(path string, mode uint32) error {
	return k.at(path, func(fd int, name string) error { return unix.Mknodat(fd, name, mode, 0) })
}

// open runs fn with an open regular file; other types give what the overlay says of them.
func (k *kernelMount) open(path string, flags int, fn func(fd int) error) error {
	return k.at(path, func(dir int, name string) error {
		var st unix.Stat_t
		if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		if isDir(st.Mode) {
			return unix.EISDIR
		}
		if !isReg(st.Mode) {
			return unix.EINVAL
		}
		fd, err := unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return fn(fd)
	})
}

// rename takes back what a failed one has changed: ext4 moves the times of the old directory when a rename that was to
// leave a whiteout finds that the target is not empty.
func (k *kernelMount) rename(s step, flags uint) error {
	return k.at(s.a, func(from int, a string) error {
		return k.at(s.b, func(to int, b string) error {
			dir := nameIn(from, ".")
			before, err := dir.stat()
			if err != nil {
				return err
			}
			err = unix.Renameat2(from, a, to, b, flags)
			if !errors.Is(err, unix.ENOTEMPTY) {
				return err
			}
			if after, serr := dir.stat(); serr != nil || after.Mtime == before.Mtime {
				return errors.Join(serr, err)
			}
			if terr := dir.utimes(timespec(before.Atime), timespec(before.Mtime)); terr != nil {
				return terr
			}
			return err
		})
	})
}

// do applies a step to the kernel's overlayfs.
func (k *kernelMount) do(s step) string {
	var data string
	var err error
	proc := func(fd int, name string) string { return nameIn(fd, name).proc() }
	switch s.kind {
	case "mkdir":
		err = k.at(s.a, func(fd int, name string) error { return unix.Mkdirat(fd, name, 0o755) })
	case "create":
		err = k.node(s.a, unix.S_IFREG|0o644)
	case "fifo":
		err = k.node(s.a, unix.S_IFIFO|0o600)
	case "write":
		err = k.open(s.a, unix.O_WRONLY, func(fd int) error { return pwriteFull(fd, []byte(s.data), s.n) })
	case "truncate":
		err = k.open(s.a, unix.O_WRONLY, func(fd int) error { return unix.Ftruncate(fd, s.n*(s.n%2)) })
	case "unlink":
		err = k.at(s.a, func(fd int, name string) error { return unix.Unlinkat(fd, name, 0) })
	case "rmdir":
		err = k.at(s.a, func(fd int, name string) error { return unix.Unlinkat(fd, name, unix.AT_REMOVEDIR) })
	case "rename":
		err = k.rename(s, 0)
	case "noreplace":
		err = k.rename(s, unix.RENAME_NOREPLACE)
	case "exchange":
		err = k.rename(s, unix.RENAME_EXCHANGE)
	case "link":
		err = k.at(s.a, func(from int, a string) error {
			return k.at(s.b, func(to int, b string) error { return unix.Linkat(from, a, to, b, 0) })
		})
	case "symlink":
		err = k.at(s.a, func(fd int, name string) error { return unix.Symlinkat(s.data, fd, name) })
	case "chmod":
		err = k.at(s.a, func(fd int, name string) error {
			return unix.Fchmodat(fd, name, uint32(s.n)&0o777, unix.AT_SYMLINK_NOFOLLOW)
		})
	case "chown":
		err = k.at(s.a, func(fd int, name string) error {
			return unix.Fchownat(fd, name, int(s.n), int(s.n+1), unix.AT_SYMLINK_NOFOLLOW)
		})
	case "utimes":
		ts := []unix.Timespec{oldTime(s.n), oldTime(s.n)}
		err = k.at(s.a, func(fd int, name string) error { return unix.UtimesNanoAt(fd, name, ts, unix.AT_SYMLINK_NOFOLLOW) })
	case "setxattr":
		err = k.at(s.a, func(fd int, name string) error {
			return unix.Lsetxattr(proc(fd, name), "trusted.t"+s.data[:1], []byte(s.data), 0)
		})
	case "rmxattr":
		err = k.at(s.a, func(fd int, name string) error { return unix.Lremovexattr(proc(fd, name), "trusted.t"+s.data[:1]) })
	case "read":
		err = k.open(s.a, unix.O_RDONLY, func(fd int) error {
			buf := make([]byte, 10000)
			n, _ := preadFull(fd, buf, 0)
			data = string(buf[:n])
			return nil
		})
	case "stat":
		err = k.at(s.a, func(fd int, name string) error {
			a, err := nameIn(fd, name).stat()
			if err == nil {
				data = statLine(a.Mode, a.Nlink, a.Size)
			}
			return err
		})
	case "list":
		err = k.at(s.a, func(fd int, name string) error {
			dir, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(dir)
			var list []string
			err = eachName(dir, func(name string, _ uint64, _ uint32) error {
				list = append(list, name)
				return nil
			})
			slices.Sort(list)
			data = strings.Join(list, " ")
			return err
		})
	}
	return errName(err) + " " + data
}

// mountLayers gives the directories that snapfs wrote to the kernel's overlayfs, read-only.
func mountLayers(t *testing.T, r *rig, lowers ...string) string {
	t.Helper()
	var dirs []string
	for i := r.seals; i >= 0; i-- {
		dirs = append(dirs, filepath.Join(r.dir, "upper"+strings.Repeat("'", i)))
	}
	m := t.TempDir()
	opts := "redirect_dir=follow,metacopy=on,lowerdir=" + strings.Join(append(dirs, lowers...), ":")
	if err := unix.Mount("overlay", m, "overlay", unix.MS_RDONLY, opts); err != nil {
		t.Fatal("mount: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return m
}
