package fs_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"snapfs/internal/iouring"
	"snapfs/internal/testchild"
	"snapfs/internal/testmount"
)

// otherUserEnv tells the test binary to change files on command, as the user it was started as; its value is the
// capabilities to do without, as a mask.
const otherUserEnv = "SNAPFS_TEST_OTHER_USER"

const page = 4096

// userOps are the ways to change a file that take privileges from it, or might. b is the first page of the file, at
// an aligned address: what is written is what was there. aux is another name of the same file system.
var userOps = map[string]func(path, aux string, b []byte) error{
	"write": func(p, _ string, b []byte) error {
		return onFile(p, 0, func(fd int) error { return wrote(unix.Write(fd, b[:1])) })
	},
	"pwritev2": func(p, _ string, b []byte) error {
		return onFile(p, 0, func(fd int) error { return wrote(unix.Pwritev2(fd, [][]byte{b[:9]}, 0, 0)) })
	},
	"append": func(p, _ string, b []byte) error {
		return onFile(p, unix.O_APPEND, func(fd int) error { return wrote(unix.Write(fd, b[:1])) })
	},
	"direct": func(p, _ string, b []byte) error {
		return onFile(p, unix.O_DIRECT, func(fd int) error { return wrote(unix.Pwrite(fd, b, 0)) })
	},
	"aio": func(p, _ string, b []byte) error { return onFile(p, 0, func(fd int) error { return aioWrite(fd, b) }) },
	"aio direct": func(p, _ string, b []byte) error {
		return onFile(p, unix.O_DIRECT, func(fd int) error { return aioWrite(fd, b) })
	},
	"io_uring": func(p, _ string, b []byte) error { return onFile(p, 0, func(fd int) error { return ringWrite(fd, b) }) },
	"fallocate": func(p, _ string, _ []byte) error {
		return onFile(p, 0, func(fd int) error { return unix.Fallocate(fd, 0, 0, page) })
	},
	"punch": func(p, _ string, _ []byte) error {
		return onFile(p, 0, func(fd int) error {
			return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 1<<30, page)
		})
	},
	"ftruncate": func(p, _ string, _ []byte) error {
		return onFile(p, 0, func(fd int) error { return unix.Ftruncate(fd, sizeOf(fd)) })
	},
	"longer":   func(p, _ string, _ []byte) error { return unix.Truncate(p, 3<<20) },
	"O_TRUNC":  func(p, _ string, _ []byte) error { return onFile(p, unix.O_TRUNC, func(int) error { return nil }) },
	"copy":     copyFromAux,
	"splice":   spliceIn,
	"sendfile": sendFromAux,
	"mmap": func(p, _ string, b []byte) error {
		return onFile(p, 0, func(fd int) error {
			m, err := unix.Mmap(fd, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				return err
			}
			m[0] = b[0]
			return unix.Munmap(m) // closing the file writes it
		})
	},
	"chown none": func(p, _ string, _ []byte) error { return unix.Chown(p, -1, -1) },
	"chgrp":      func(p, _ string, _ []byte) error { return unix.Chown(p, -1, 1234) },
	"chmod":      func(p, _ string, _ []byte) error { return unix.Chmod(p, 0o6775) },
	"setcap":     func(p, _ string, _ []byte) error { return unix.Setxattr(p, "security.capability", []byte(noCaps), 0) },
	"acl": func(p, _ string, _ []byte) error {
		return unix.Setxattr(p, "system.posix_acl_access", []byte(someACL), 0)
	},
}

const (
	noCaps  = "\x00\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	someACL = "\x02\x00\x00\x00" + "\x01\x00\x07\x00\xff\xff\xff\xff" + "\x02\x00\x06\x00\x07\x00\x00\x00" +
		"\x04\x00\x07\x00\xff\xff\xff\xff" + "\x10\x00\x07\x00\xff\xff\xff\xff" + "\x20\x00\x07\x00\xff\xff\xff\xff"
)

func onFile(path string, flags int, f func(fd int) error) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return err
	}
	return errors.Join(f(fd), unix.Close(fd))
}

func wrote(_ int, err error) error { return err }

func sizeOf(fd int) int64 {
	var st unix.Stat_t
	_ = unix.Fstat(fd, &st) // an open file
	return st.Size
}

func fromAux(path, aux string, f func(in, out int) error) error {
	return onFile(path, 0, func(out int) error {
		in, err := unix.Open(aux, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return errors.Join(f(in, out), unix.Close(in))
	})
}

func copyFromAux(path, aux string, _ []byte) error {
	return fromAux(path, aux, func(in, out int) error { return wrote(unix.CopyFileRange(in, nil, out, nil, page, 0)) })
}

func sendFromAux(path, aux string, _ []byte) error {
	return fromAux(path, aux, func(in, out int) error { return wrote(unix.Sendfile(out, in, nil, page)) })
}

func spliceIn(path, _ string, b []byte) error {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer func() { _, _ = unix.Close(pipe[0]), unix.Close(pipe[1]) }()
	if err := wrote(unix.Write(pipe[1], b[:100])); err != nil {
		return err
	}
	return onFile(path, 0, func(fd int) error {
		_, err := unix.Splice(pipe[0], nil, fd, nil, 100, 0)
		return err
	})
}

// iocb is struct iocb, of asynchronous I/O as libaio does it.
type iocb struct {
	_          uint64
	_, _       uint32
	opcode     uint16
	_          int16
	fd         uint32
	buf, bytes uint64
	offset     int64
	_          uint64
	_, _       uint32
}

// ioEvent is struct io_event.
type ioEvent struct {
	data, _ uint64
	res     int64
	_       int64
}

const (
	aioRead     = 0
	aioWriteCmd = 1
)

// aioContext is an io_context_t for depth requests.
func aioContext(depth int) (ctx uintptr, done func(), err error) {
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, uintptr(depth), uintptr(unsafe.Pointer(&ctx)), 0); errno != 0 {
		return 0, nil, errno
	}
	return ctx, func() { _, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, ctx, 0, 0) }, nil
}

func aioSubmit(ctx uintptr, cb *iocb) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, ctx, 1, uintptr(unsafe.Pointer(&cb)))
		if errno == 0 {
			return nil
		}
		if errno != unix.EINTR {
			return errno
		}
	}
}

// aioWait waits for at least one completion.
func aioWait(ctx uintptr, events []ioEvent) (int, error) {
	for {
		n, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS,
			ctx, 1, uintptr(len(events)), uintptr(unsafe.Pointer(&events[0])), 0, 0)
		if errno == 0 {
			return int(n), nil
		}
		if errno != unix.EINTR {
			return 0, errno
		}
	}
}

// otherUserAIO and otherUserRing are what another user does asynchronous I/O with: setting them up takes longer than
// all else.
var (
	otherUserAIO  = sync.OnceValues(func() (uintptr, error) { ctx, _, err := aioContext(1); return ctx, err })
	otherUserRing = sync.OnceValues(func() (*iouring.Ring, error) { return iouring.New(2, 0) })
)

func aioWrite(fd int, b []byte) error {
	ctx, err := otherUserAIO()
	if err != nil {
		return err
	}
	cb := &iocb{opcode: aioWriteCmd, fd: uint32(fd), buf: uint64(uintptr(unsafe.Pointer(&b[0]))), bytes: uint64(len(b))}
	if err := aioSubmit(ctx, cb); err != nil {
		return err
	}
	events := make([]ioEvent, 1)
	if _, err := aioWait(ctx, events); err != nil {
		return err
	}
	if events[0].res < 0 {
		return syscall.Errno(-events[0].res)
	}
	return nil
}

func ringWrite(fd int, b []byte) error {
	const opWrite = 23
	return onRing(iouring.SQE{
		Opcode: opWrite, FD: int32(fd), Addr: uint64(uintptr(unsafe.Pointer(&b[0]))), Len: uint32(len(b)),
	})
}

// onRing submits an operation to the ring of the other user.
func onRing(e iouring.SQE) error {
	r, err := otherUserRing()
	if err != nil {
		return err
	}
	*r.Next() = e
	r.Publish()
	for n := uint32(1); ; n = 0 {
		if errno := r.Enter(n); errno != 0 && errno != unix.EINTR {
			return errno
		}
		c, ok := r.Pop()
		switch {
		case ok && c.Res < 0:
			return syscall.Errno(-c.Res)
		case ok:
			return nil
		}
	}
}

// order is one line to such a process.
type order struct{ Op, Path, Aux string }

// otherUser obeys orders, if this process is meant to; TestMain calls it first.
func otherUser() {
	mask := os.Getenv(otherUserEnv)
	if mask == "" {
		return
	}
	runtime.LockOSThread()
	if drop, _ := strconv.ParseUint(mask, 10, 32); drop != 0 {
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&hdr, &data[0]); err != nil {
			panic(err)
		}
		data[0].Effective &^= uint32(drop)
		if err := unix.Capset(&hdr, &data[0]); err != nil {
			panic(err)
		}
	}
	b, err := unix.Mmap(-1, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		panic(err)
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var o order
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			panic(err)
		}
		if f, err := os.Open(o.Path); err == nil {
			_, _ = io.ReadFull(f, b) // shorter ones are written longer
			_ = f.Close()            // read only
		}
		op := userOps[o.Op]
		if op == nil {
			op = mappedOps[o.Op]
		}
		if op == nil {
			op = ringOps[o.Op]
		}
		err := op(o.Path, o.Aux, b)
		var errno syscall.Errno
		if err != nil && !errors.As(err, &errno) {
			panic(err)
		}
		fmt.Println(int(errno))
	}
	os.Exit(0)
}

// user is a kind of program that changes files.
type user struct {
	name   string
	cred   syscall.Credential
	raise  []uintptr // capabilities it has although it is not root
	lower  uint32    // capabilities it does without
	pid    int
	orders io.WriteCloser
	says   *bufio.Reader
}

const capFsetid = 4

func (s *user) start(t *testing.T) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = testchild.Env(testchild.User, fmt.Sprintf("%s=%d", otherUserEnv, s.lower), "GOCOVERDIR="+os.TempDir())
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &s.cred, AmbientCaps: s.raise}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.orders, s.says = in, bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.pid = cmd.Process.Pid
	t.Cleanup(func() {
		_ = in.Close() // ends it
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
	})
}

func (s *user) do(t *testing.T, o order) syscall.Errno {
	t.Helper()
	if err := json.NewEncoder(s.orders).Encode(o); err != nil {
		t.Fatal(err)
	}
	line, err := s.says.ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v: %v", s.name, o, err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return syscall.Errno(n)
}

// otherUsers are those whose writes are compared, each as a running process.
func otherUsers(t *testing.T) []*user {
	all := []*user{
		{name: "nobody", cred: syscall.Credential{Uid: 65534, Gid: 65534}},
		{name: "member", cred: syscall.Credential{Uid: 65534, Gid: 65534, Groups: []uint32{1234}}},
		{name: "nobody with CAP_FSETID", cred: syscall.Credential{Uid: 65534, Gid: 65534}, raise: []uintptr{capFsetid}},
		{name: "root"},
		{name: "root without CAP_FSETID", lower: 1 << capFsetid},
	}
	for _, s := range all {
		s.start(t)
	}
	return all
}

// privileged is a file that something may be taken from.
type privileged struct {
	uid, gid int
	mode     uint32
	caps     bool
}

var privilegedFiles = []privileged{
	{0, 0, 0o6777, false},
	{0, 0, 0o2767, false}, // setgid and no executable group
	{0, 1234, 0o2767, false},
	{0, 1234, 0o6767, false},
	{0, 0, 0o777, true},
	{0, 0, 0o6777, true},
	{65534, 1234, 0o6767, true},
	{65534, 65534, 0o4755, false},
	{65534, 1234, 0o6775, false},
	{65534, 0, 0o2765, false},
}

func (p privileged) make(path string, size int64) error {
	b := bytes.Repeat([]byte("snap"), 3*page/4)
	err := errors.Join(
		os.WriteFile(path, b, 0o600), os.Truncate(path, max(size, int64(len(b)))),
		os.Chown(path, p.uid, p.gid), unix.Chmod(path, p.mode))
	if err == nil && p.caps {
		err = unix.Setxattr(path, "security.capability", []byte(noCaps), 0)
	}
	return err
}

// privilegeState is what lstat and listxattr report of a file's privileges.
type privilegeState struct {
	mode     uint32
	uid, gid uint32
	caps     bool
}

// look stats as programs do that want the mode alone: the kernel may know it.
func look(t *testing.T, path string) privilegeState {
	t.Helper()
	var sx, all unix.Statx_t
	err := errors.Join(unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MODE|unix.STATX_UID|unix.STATX_GID, &sx),
		unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &all))
	if err != nil {
		t.Fatal(err)
	}
	if sx.Mode != all.Mode || sx.Uid != all.Uid || sx.Gid != all.Gid {
		t.Errorf("%s: the kernel knows mode %o and owner %d:%d, the server %o and %d:%d", path,
			sx.Mode, sx.Uid, sx.Gid, all.Mode, all.Uid, all.Gid)
	}
	_, err = unix.Getxattr(path, "security.capability", nil)
	return privilegeState{uint32(sx.Mode), sx.Uid, sx.Gid, err == nil}
}

// TestPrivileges has all kinds of programs change all kinds of privileged files in all ways, and compares what is left
// of the privileges, in the kernel's eyes and in the server's, with the host file system and with the kernel's
// overlayfs.
func TestPrivileges(t *testing.T) {
	unraced(t)
	for _, writeback := range []bool{false, true} {
		t.Run(fmt.Sprintf("writeback=%v", writeback), func(t *testing.T) { testPrivileges(t, writeback) })
	}
}

func testPrivileges(t *testing.T, writeback bool) {
	base := openDir(t)
	dirs := map[string]string{}
	for _, name := range []string{"native", "low", "stack"} {
		dirs[name] = filepath.Join(base, name)
		if err := os.Mkdir(dirs[name], 0o755); err != nil {
			t.Fatal(err)
		}
	}
	type change struct {
		by   *user
		op   string
		file privileged
		name string
	}
	var changes []change
	for i, by := range otherUsers(t) {
		for op := range userOps {
			for k, file := range privilegedFiles {
				if i > 0 && (k+i)%4 > 0 || writeback && k%4 > 1 {
					continue // not every operation for every user
				}
				changes = append(changes, change{by, op, file, fmt.Sprintf("%d-%s-%d", i, strings.ReplaceAll(op, " ", "-"), k)})
			}
		}
	}
	seed := func(dir, prefix string, size int64, link bool) {
		t.Helper()
		if err := errors.Join(os.WriteFile(filepath.Join(dir, prefix+"aux"), make([]byte, page), 0o644)); err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			path := filepath.Join(dir, prefix+c.name)
			err := c.file.make(path, size)
			if err == nil && link {
				err = os.Link(path, path+"=")
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	seed(dirs["native"], "", 0, false)
	seed(dirs["low"], "low-", 0, false)
	seed(dirs["low"], "part-", 2<<20, false)
	seed(dirs["low"], "link-", 0, true)
	over, _ := stackOverlay(t, dirs["low"], dirs["stack"])
	fs := testmount.Start(t, testmount.Config{
		Dir: filepath.Join(base, "ws"), Mount: filepath.Join(base, "mnt"),
		Sealed: []string{dirs["low"]}, Writeback: writeback,
	})
	if err := os.Chmod(base+"/ws", 0o755); err != nil {
		t.Fatal(err)
	}
	seed(fs.Dir, "up-", 0, false)
	type location struct{ dir, prefix string }
	lowers := []location{{fs.Dir, "low-"}, {fs.Dir, "part-"}, {fs.Dir, "link-"}, {over, "low-"}}
	for i, c := range changes {
		what := fmt.Sprintf("%s: %s of %+v", c.by.name, c.op, c.file)
		path := filepath.Join(dirs["native"], c.name)
		errno := c.by.do(t, order{c.op, path, filepath.Join(dirs["native"], "aux")})
		want := look(t, path)
		for _, p := range []location{{fs.Dir, "up-"}, lowers[i%len(lowers)]} {
			path := filepath.Join(p.dir, p.prefix+c.name)
			_ = look(t, path) // the kernel has seen it
			gotErrno := c.by.do(t, order{c.op, path, filepath.Join(p.dir, p.prefix+"aux")})
			// A change of nothing, which other file systems refuse other users, does not say what it was.
			if gotErrno != errno && c.op != "chown none" {
				t.Errorf("%s on %s%s: %v, want %v", what, p.prefix, filepath.Base(p.dir), gotErrno, errno)
			}
			got := look(t, path)
			if c.op == "chown none" && errno != 0 {
				got.caps = want.caps // the kernel removes capabilities without having asked whose file it is
			}
			if got != want {
				t.Errorf("%s on %s%s: left is %o, %+v, want %o, %+v",
					what, p.prefix, filepath.Base(p.dir), got.mode, got, want.mode, want)
			}
			if p.prefix == "link-" {
				if other := look(t, path+"="); other.mode != want.mode {
					t.Errorf("%s: the other name has %o, want %o", what, other.mode, want.mode)
				}
			}
		}
	}
}

// TestPrivilegedProgram runs a program right after another user has changed it: it must not be the owner's any more.
func TestPrivilegedProgram(t *testing.T) {
	id, err := exec.LookPath("id")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(id)
	if err != nil {
		t.Fatal(err)
	}
	nobody := otherUsers(t)[0]
	for _, writeback := range []bool{false, true} {
		base := openDir(t)
		fs := testmount.Start(t, testmount.Config{
			Dir: filepath.Join(base, "ws"), Mount: filepath.Join(base, "mnt"), Writeback: writeback,
		})
		aux := filepath.Join(fs.Dir, "aux")
		if err := os.WriteFile(aux, text[:page], 0o644); err != nil {
			t.Fatal(err)
		}
		user := func(path string) string {
			cmd := exec.Command(path, "-u")
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &nobody.cred}
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
			return strings.TrimSpace(string(out))
		}
		for _, op := range []string{
			"write", "pwritev2", "append", "direct", "aio", "aio direct", "io_uring", "fallocate", "punch",
			"ftruncate", "longer", "copy", "splice", "sendfile",
		} {
			path := filepath.Join(fs.Dir, op)
			if err := errors.Join(os.WriteFile(path, text, 0o755), unix.Chmod(path, 0o6777)); err != nil {
				t.Fatal(err)
			}
			if got := user(path); got != "0" {
				t.Fatalf("%s: a setuid program runs as %s", op, got)
			}
			if errno := nobody.do(t, order{op, path, aux}); errno != 0 {
				t.Fatalf("%s: %v", op, errno)
			}
			if got := user(path); got != "65534" {
				t.Errorf("%s (write-back %v): the program of another user runs as %s", op, writeback, got)
			}
		}
	}
}
