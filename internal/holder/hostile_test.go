package holder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// raw connects to the holder without the client.
func raw(t *testing.T, home string) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: filepath.Join(home, SocketName)}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// TestHostile: whatever clients send, the holder goes on, keeps what it has, and leaks nothing.
func TestHostile(t *testing.T) {
	home := t.TempDir()
	c := begun(t, home)
	f := memfd(t, "x")
	if err := c.Keep("mount/a", nil, f); err != nil {
		t.Fatal(err)
	}
	if err := c.Ready(); err != nil { // one that serves is not killed
		t.Fatal(err)
	}
	before := descriptors(t, c.PID())
	id, err := identityOfPath(home)
	if err != nil {
		t.Fatal(err)
	}
	hello, err := json.Marshal(request{Op: opHello, From: 1, To: 9, Home: &id})
	if err != nil {
		t.Fatal(err)
	}
	many := make([]int, 200)
	for i := range many {
		many[i] = int(f.Fd())
	}
	for _, m := range []struct {
		text []byte
		fds  []int
	}{
		{[]byte("{"), nil},
		{bytes.Repeat([]byte("a"), maxMessage), nil},
		{bytes.Repeat([]byte("a"), maxMessage+1), many},
		{[]byte(`{"op":"next"}`), many},
		{[]byte(`{"op":"keep","name":"mount/a"}`), many[:3]},
		{[]byte(`{"op":"keep","name":"../x","data":"!"}`), many[:3]},
		{[]byte(`{"op":"serve","start":{}}`), many[:1]},
		{[]byte(`{"op":"serve","start":{"args":["x"]}}`), many[:1]},
		{[]byte(`{"op":"leave","end":true}`), nil},
		{[]byte(`{"op":"yield"}`), nil},
		{[]byte(`{"op":"drop"}`), nil},
		{[]byte(`{"op":"hello","from":7,"to":2}`), nil},
		{[]byte(`null`), nil},
		{[]byte(`[]`), nil},
		{[]byte{0}, nil},
	} {
		for _, greeted := range []bool{false, true} {
			fd := raw(t, home)
			if greeted {
				if err := unix.Sendmsg(fd, hello, nil, nil, 0); err != nil {
					t.Fatal(err)
				}
			}
			var oob []byte
			if m.fds != nil {
				oob = unix.UnixRights(m.fds...)
			}
			if err := unix.Sendmsg(fd, m.text, oob, nil, unix.MSG_NOSIGNAL); err != nil {
				t.Logf("%.40q: %v", m.text, err)
			}
		}
	}
	// Those who ask and never read, and those who only connect.
	for range 3 * maxConns {
		fd := raw(t, home)
		for range 2000 {
			if err := unix.Sendmsg(fd, hello, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT); err != nil {
				break
			}
		}
	}
	if got := describe(t, c); got != "mount/a=(x)" {
		t.Error(got)
	}
	if err := c.Forget("mount/a"); err != nil {
		t.Error(err)
	}
	if err := c.Keep("mount/b", nil, f); err != nil {
		t.Error(err)
	}
	eventually(t, "descriptors closed", func() bool { return descriptors(t, c.PID()) <= before+maxConns })
}

func identityOfPath(path string) (identity, error) {
	f, err := os.Open(path)
	if err != nil {
		return identity{}, err
	}
	defer func() { _ = f.Close() }()
	return identityOf(int(f.Fd()))
}

func descriptors(t *testing.T, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestStranger: another user gets nothing, even where the modes of the home let it in.
func TestStranger(t *testing.T) {
	home := t.TempDir()
	c := begun(t, home)
	if err := c.Keep("mount/a", nil, memfd(t, "x")); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(filepath.Join(home, SocketName))
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatal(fi.Mode(), err)
	}
	for dir := home; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(home, SocketName), 0o777); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends, and its user with it
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65533, 65533, 65533)
		if errno != 0 {
			done <- errno
			return
		}
		done <- unix.Connect(fd, &unix.SockaddrUnix{Name: filepath.Join(home, SocketName)})
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	id, err := identityOfPath(home)
	if err != nil {
		t.Fatal(err)
	}
	hello, err := json.Marshal(request{Op: opHello, From: 1, To: 1, Home: &id})
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Sendmsg(fd, hello, nil, nil, unix.MSG_NOSIGNAL) // it may be disconnected already
	if n, err := unix.Read(fd, make([]byte, 100)); n > 0 || err == nil && n < 0 {
		t.Errorf("a stranger got %d bytes", n)
	}
	if got := describe(t, c); got != "mount/a=(x)" {
		t.Error(got)
	}
}

// TestFull: a holder that has no descriptors left refuses more, and keeps what it has.
func TestFull(t *testing.T) {
	home := t.TempDir()
	c := begun(t, home)
	f := memfd(t, "x")
	if err := c.Keep("mount/a", nil, f); err != nil {
		t.Fatal(err)
	}
	open := uint64(descriptors(t, c.PID()))
	if err := unix.Prlimit(c.PID(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: open + 3, Max: open + 3}, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Keep("mount/b", nil, f, f, f, f, f, f); !errors.Is(err, ErrFull) {
		t.Errorf("got %v, want ErrFull", err)
	}
	if err := c.Keep("mount/b", nil, f); err != nil {
		t.Error(err)
	}
	if got := describe(t, c); got != "mount/a=(x) mount/b=(x)" {
		t.Error(got)
	}
}
