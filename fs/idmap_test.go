package fs_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"snapfs/internal/testmount"
)

// idBase is what the user 0 of the files is through the mounts of these tests; 65,536 follow.
const idBase = 100000

// mappedOps are what programs do through an id-mapped mount with owners, beside userOps. Names begin with path.
var mappedOps = map[string]func(path, aux string, b []byte) error{
	"create":  func(p, _ string, _ []byte) error { return touch(p+".new", 0o644) },
	"setuid":  func(p, _ string, _ []byte) error { return touch(p+".new", 0o6755) },
	"mkdir":   func(p, _ string, _ []byte) error { return unix.Mkdir(p+".new", 0o755) },
	"fifo":    func(p, _ string, _ []byte) error { return unix.Mkfifo(p+".new", 0o644) },
	"symlink": func(p, _ string, _ []byte) error { return unix.Symlink("x", p+".new") },
	"link":    func(p, _ string, _ []byte) error { return unix.Link(p, p+".new") },
	"rename":  func(p, _ string, _ []byte) error { return unix.Rename(p, p+".new") },
	"tmpfile": func(p, _ string, _ []byte) error {
		fd, err := unix.Open(filepath.Dir(p), unix.O_TMPFILE|unix.O_RDWR, 0o640)
		if err != nil {
			return err
		}
		from := fmt.Sprintf("/proc/self/fd/%d", fd)
		return errors.Join(unix.Linkat(unix.AT_FDCWD, from, unix.AT_FDCWD, p+".new", unix.AT_SYMLINK_FOLLOW),
			unix.Close(fd))
	},
	"in setgid": func(p, _ string, _ []byte) error {
		return touch(filepath.Join(filepath.Dir(p), "setgid", filepath.Base(p)), 0o664)
	},
	"under acl": func(p, _ string, _ []byte) error {
		return unix.Mkdir(filepath.Join(filepath.Dir(p), "acl", filepath.Base(p)), 0o777)
	},
	"chown":     func(p, _ string, _ []byte) error { return unix.Chown(p, idBase+5, idBase+6) },
	"chown out": func(p, _ string, _ []byte) error { return unix.Chown(p, 5, 6) },
	"chown far": func(p, _ string, _ []byte) error { return unix.Chown(p, idBase+70000, -1) },
	"chgrp in":  func(p, _ string, _ []byte) error { return unix.Chown(p, -1, idBase+1234) },
	"acl in": func(p, _ string, _ []byte) error {
		return unix.Setxattr(p, "system.posix_acl_access", []byte(aclFor(idBase+7)), 0)
	},
	"default": func(p, _ string, _ []byte) error {
		return unix.Setxattr(filepath.Dir(p), "system.posix_acl_default", []byte(aclFor(idBase+7)), 0)
	},
}

// aclFor is someACL with another user.
func aclFor(id uint32) string {
	b := []byte(someACL)
	*(*uint32)(unsafe.Pointer(&b[16])) = id // little endian, as the tests' machines
	return string(b)
}

func touch(path string, mode uint32) error {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, mode)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// mapped mounts a directory again, its users shifted by idBase.
func mapped(t *testing.T, dir, where string) error {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: idBase, Size: 65536}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // it has done its service
		_ = cmd.Wait()
	}()
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return err
	}
	if err := os.Mkdir(where, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, where, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(where, 0); err != nil {
			t.Errorf("unmount %s: %v", where, err)
			_ = unix.Unmount(where, unix.MNT_DETACH) // the first error counts
		}
	})
	return nil
}

// owners lists a tree with modes, owners and ACLs.
func owners(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		line := fmt.Sprintf("%s %o %d:%d links %d", strings.TrimPrefix(path, dir), st.Mode, st.Uid, st.Gid, st.Nlink)
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			line = line[:strings.LastIndex(line, " links")]
		}
		for _, name := range []string{"system.posix_acl_access", "system.posix_acl_default", "security.capability"} {
			value := make([]byte, 256)
			if n, err := unix.Lgetxattr(path, name, value); err == nil {
				line += fmt.Sprintf(" %s=%x", name, value[:n])
			}
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

// TestIDMapped works through an id-mapped mount, as users that it maps and as others, and compares owners, modes, ACLs
// and errors, through that mount and through the plain one, with an id-mapped mount of the host file system.
func TestIDMapped(t *testing.T) {
	unraced(t)
	syscall.Umask(0o022)
	base := openDir(t)
	native := filepath.Join(base, "native")
	if err := os.Mkdir(native, 0o755); err != nil {
		t.Fatal(err)
	}
	fs := testmount.Start(t, testmount.Config{Dir: filepath.Join(base, "ws"), Mount: filepath.Join(base, "mnt")})
	if err := mapped(t, native, filepath.Join(base, "native-mapped")); err != nil {
		t.Skip("the host file system cannot be id-mapped: ", err)
	}
	var system unix.Utsname
	_ = unix.Uname(&system) // does not fail
	var major, minor int
	_, _ = fmt.Sscanf(unix.ByteSliceToString(system.Release[:]), "%d.%d", &major, &minor)
	if err := mapped(t, fs.Dir, filepath.Join(base, "mnt-mapped")); err != nil {
		if major < 6 || major == 6 && minor < 12 {
			t.Skip("this kernel does not id-map FUSE: ", err)
		}
		t.Fatal(err)
	}
	users := []*user{
		{name: "the files' root", cred: syscall.Credential{Uid: idBase, Gid: idBase}},
		{name: "user 1000", cred: syscall.Credential{
			Uid: idBase + 1000, Gid: idBase + 1000, Groups: []uint32{idBase + 1234},
		}},
		{name: "user outside the map", cred: syscall.Credential{Uid: 1000, Gid: 1000}},
		{name: "root"},
	}
	files := []privileged{
		{0, 0, 0o6777, false}, {1000, 1000, 0o6755, false}, {1000, 1234, 0o2775, false}, {0, 0, 0o777, true},
	}
	var ops []string
	for op := range mappedOps {
		ops = append(ops, op)
	}
	ops = append(ops, "write", "direct", "fallocate", "copy", "longer", "O_TRUNC", "chmod", "acl")
	for i, user := range users {
		user.start(t)
		for j, op := range ops {
			for k, file := range files {
				if (i+j+k)%2 > 0 && op != "write" {
					continue // half of them are enough
				}
				what := fmt.Sprintf("%s: %s of %+v", user.name, op, file)
				dir := fmt.Sprintf("%d-%d-%d", i, j, k)
				var errnos []syscall.Errno
				for _, top := range []string{"native", "mnt"} {
					plain := filepath.Join(base, top, dir)
					for _, err := range []error{
						os.Mkdir(plain, 0o777), os.Chmod(plain, 0o777), file.make(plain+"/f", 0),
						os.WriteFile(plain+"/aux", make([]byte, page), 0o644),
						os.Mkdir(plain+"/setgid", 0), os.Chown(plain+"/setgid", 0, 77), unix.Chmod(plain+"/setgid", 0o2777),
						os.Mkdir(plain+"/acl", 0), unix.Chmod(plain+"/acl", 0o777),
						unix.Setxattr(plain+"/acl", "system.posix_acl_default", []byte(someACL), 0),
					} {
						if err != nil {
							t.Fatal(err)
						}
					}
					through := filepath.Join(base, top+"-mapped", dir)
					errnos = append(errnos, user.do(t, order{op, through + "/f", through + "/aux"}))
				}
				if errnos[0] != errnos[1] {
					t.Errorf("%s: %v, want %v", what, errnos[1], errnos[0])
				}
				for _, view := range []string{"", "-mapped"} {
					want, got := owners(t, filepath.Join(base, "native"+view, dir)), owners(t, filepath.Join(base, "mnt"+view, dir))
					if got != want {
						t.Errorf("%s: seen through mount %q:\n%s\nwant:\n%s", what, view, got, want)
					}
				}
			}
		}
	}
}
