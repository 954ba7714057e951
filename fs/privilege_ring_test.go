package fs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/iouring"
	"snapfs/internal/testmount"
)

// otherUserPersonality is the number under which the ring of the other user has the rights of user nobody.
var otherUserPersonality uint16

// ringOps are what a program with a ring of io_uring does, beside userOps.
var ringOps = map[string]func(path, aux string, b []byte) error{
	"ring fallocate": func(p, _ string, _ []byte) error {
		return onFile(p, 0, func(fd int) error { return ringFallocate(fd, 0) })
	},
	"ring punch": func(p, _ string, _ []byte) error {
		return onFile(p, 0, func(fd int) error {
			return ringFallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE)
		})
	},
	"become nobody": func(_, _ string, _ []byte) error {
		const id = 65534
		return errors.Join(syscall.Setgroups(nil), syscall.Setresgid(id, id, id), syscall.Setresuid(id, id, id))
	},
	"act for nobody": func(_, _ string, _ []byte) error {
		const registerPersonality = 9
		ring, err := ringDescriptor()
		if err != nil {
			return err
		}
		if err := errors.Join(unix.Setfsgid(65534), unix.Setfsuid(65534)); err != nil {
			return err
		}
		n, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(ring), registerPersonality, 0, 0, 0, 0)
		otherUserPersonality = uint16(n)
		err = errors.Join(unix.Setfsuid(0), unix.Setfsgid(0))
		if errno != 0 {
			return errno
		}
		return err
	},
}

// ringDescriptor is that of the other user's ring, the only one of the process.
func ringDescriptor() (int, error) {
	const dir = "/proc/self/fd/"
	list, err := os.ReadDir(dir)
	for _, e := range list {
		if to, _ := os.Readlink(dir + e.Name()); to == "anon_inode:[io_uring]" {
			return strconv.Atoi(e.Name())
		}
	}
	return -1, errors.Join(err, unix.ENOENT)
}

func ringFallocate(fd int, mode uint32) error {
	const opFallocate = 17
	return onRing(iouring.SQE{
		Opcode: opFallocate, FD: int32(fd), Addr: page, Len: mode, Personality: otherUserPersonality,
	})
}

// TestPrivilegesOfRings: the kernel's threads of a ring may have rights that their process has given up, or that it
// does not use for what it asks for. What they do takes privileges as on the host file system.
func TestPrivilegesOfRings(t *testing.T) {
	for _, writeback := range []bool{false, true} {
		base := openDir(t)
		native := filepath.Join(base, "native")
		if err := os.Mkdir(native, 0o755); err != nil {
			t.Fatal(err)
		}
		fs := testmount.Start(t, testmount.Config{
			Dir: filepath.Join(base, "ws"), Mount: filepath.Join(base, "mnt"), Writeback: writeback,
		})
		for _, how := range []string{"become nobody", "act for nobody"} {
			by := &user{name: "root"}
			by.start(t)
			warm := filepath.Join(base, "warm "+how)
			if err := os.WriteFile(warm, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			// The first one makes a thread with root's rights.
			for _, o := range []order{{"ring fallocate", warm, ""}, {how, warm, ""}} {
				if errno := by.do(t, o); errno != 0 {
					t.Fatalf("%s: %v", o.Op, errno)
				}
			}
			for _, op := range []string{"ring fallocate", "ring punch"} {
				for k, file := range privilegedFiles {
					name := strings.ReplaceAll(fmt.Sprint(how, op, k), " ", "-")
					what := fmt.Sprintf("%s, %s of %+v (write-back %v)", how, op, file, writeback)
					var left [2]privilegeState
					for i, dir := range []string{native, fs.Dir} {
						path := filepath.Join(dir, name)
						if err := file.make(path, 0); err != nil {
							t.Fatal(err)
						}
						_ = look(t, path) // the kernel has seen it
						if errno := by.do(t, order{op, path, ""}); errno != 0 && errno != unix.EACCES {
							t.Fatalf("%s: %v", what, errno)
						}
						left[i] = look(t, path)
					}
					if how == "act for nobody" && file.mode&unix.S_IXGRP == 0 {
						left[1].mode &^= unix.S_ISGID // no privilege: whether a lender is of the group cannot be seen
						left[0].mode &^= unix.S_ISGID
					}
					if left[1] != left[0] {
						t.Errorf("%s: left is %o, %+v, want %o, %+v", what, left[1].mode, left[1], left[0].mode, left[0])
					}
				}
			}
		}
	}
}

// TestPrivilegesOfWaitingWrite: another user's write that is waiting while the file gets setuid or capabilities takes
// them: it comes afterwards.
func TestPrivilegesOfWaitingWrite(t *testing.T) {
	for _, writeback := range []bool{false, true} {
		fs := testmount.Start(t, testmount.Config{Dir: openDir(t), Writeback: writeback})
		for op, call := range map[string]int{"chmod": unix.SYS_FCHMODAT, "setcap": unix.SYS_SETXATTR} {
			path := filepath.Join(fs.Dir, op)
			if err := (privileged{mode: 0o666}).make(path, 0); err != nil {
				t.Fatal(err)
			}
			all := otherUsers(t)
			nobody, root := all[0], all[3]
			t.Cleanup(func() { _ = fs.Resume() }) // they could not end else
			if err := fs.Pause(); err != nil {
				t.Fatal(err)
			}
			changed, written := make(chan syscall.Errno), make(chan syscall.Errno)
			go func() { changed <- root.do(t, order{op, path, ""}) }()
			until(t, "a change under way", func() bool { return root.sleeps(call) })
			go func() { written <- nobody.do(t, order{"write", path, ""}) }()
			until(t, "a write that waits", func() bool { return nobody.sleeps(unix.SYS_WRITE) })
			if err := fs.Resume(); err != nil {
				t.Fatal(err)
			}
			if a, b := <-changed, <-written; a != 0 || b != 0 {
				t.Fatal(a, b)
			}
			if got := look(t, path); got.mode&(unix.S_ISUID|unix.S_ISGID) != 0 || got.caps {
				t.Errorf("%s, then another user's write (write-back %v): left is %o, %+v", op, writeback, got.mode, got)
			}
		}
	}
}

// until waits for something that comes to be.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s", what)
		}
	}
}

// sleeps reports whether a thread sleeps in a system call.
func (s *user) sleeps(call int) bool {
	names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", s.pid))
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(text), strconv.Itoa(call)+" ") {
			return true
		}
	}
	return false
}
