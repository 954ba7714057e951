package holder

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHandOver: a daemon that speaks a newer protocol than the holder has a holder of its own program take its place, with
// everything.
func TestHandOver(t *testing.T) {
	home := t.TempDir()
	c := begun(t, home)
	for i := range 10 {
		if err := c.Keep("mount/"+strconv.Itoa(i), []byte("1"), memfd(t, "x")); err != nil {
			t.Fatal(err)
		}
	}
	before := c.PID()
	if err := c.Leave(true); err != nil {
		t.Fatal(err)
	}
	old := versions
	versions = span{1, 2} // the holders speak version 1
	defer func() { versions = old }()
	n := begun(t, home)
	if n.PID() == before {
		t.Error("the old holder goes on")
	}
	gone(t, before)
	if got := describe(t, n); strings.Count(got, "=1(x)") != 10 {
		t.Error(got)
	}
	if s, err := Ask(t.Context(), home); err != nil || s.PID != n.PID() || s.Kept != 10 || s.Daemon != os.Getpid() {
		t.Error(s, err)
	}
}

// TestOtherVersion: a daemon that has no version of the protocol in common with the holder is refused, and what is kept stays for one
// that has.
func TestOtherVersion(t *testing.T) {
	home := t.TempDir()
	c := begun(t, home)
	if err := errors.Join(c.Keep("mount/1", []byte("1"), memfd(t, "x")), c.Leave(true)); err != nil {
		t.Fatal(err)
	}
	old := versions
	versions = span{7, 8} // the holder speaks version 1
	_, err := Join(t.Context(), optionsOf(home, daemonName, home), false)
	versions = old
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "this holder speaks versions 1 to 1") {
		t.Error(err)
	}
	if got := describe(t, begun(t, home)); got != "mount/1=1(x)" {
		t.Error(got)
	}
}

// TestHolderDiesWhileLeaving: the holder dies after a daemon that leaves for another one has closed what is kept, or before it has
// noticed: the successor finds everything in the next holder.
func TestHolderDiesWhileLeaving(t *testing.T) {
	for _, noticed := range []bool{true, false} {
		home := t.TempDir()
		c := begun(t, home)
		file := memfd(t, "x")
		last := memfd(t, "y") // is kept when the daemon is leaving already
		if err := errors.Join(
			c.Keep("mount/1", []byte("1"), file), c.HandOver(), c.Keep("mount/2", []byte("2"), last), file.Close(), last.Close(),
		); err != nil {
			t.Fatal(err)
		}
		before := c.PID()
		if !noticed {
			c.mu.Lock() // whoever notices waits
		}
		if err := unix.Kill(before, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		gone(t, before)
		if noticed {
			eventually(t, "another holder", func() bool { pid := c.PID(); return pid != 0 && pid != before })
		} else {
			<-c.conn.gone
			r := &request{Op: opLeave}
			if err := c.leaveLocked(r); !errors.Is(err, errEnded) {
				t.Fatal(err)
			}
			c.mu.Unlock()
		}
		if err := c.Leave(true); err != nil {
			t.Fatal(err)
		}
		if got := describe(t, begun(t, home)); got != "mount/1=1(x) mount/2=2(y)" {
			t.Error(noticed, got)
		}
	}
}

// made starts a holder as a daemon does that has not asked for the role yet. It ends with what it keeps.
func made(t *testing.T, home string) (*wireConn, *exec.Cmd) {
	t.Helper()
	dir, err := os.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	fd, err := listen(int(dir.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	listener := os.NewFile(uintptr(fd), "listener")
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs, ours := os.NewFile(uintptr(pair[0]), "theirs"), os.NewFile(uintptr(pair[1]), "ours")
	holder := &exec.Cmd{Path: self(t), Args: []string{Name, home}, ExtraFiles: []*os.File{listener, theirs}}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Wait() }) // it may have been waited for
	maker, err := net.FileConn(ours)
	if err = errors.Join(err, listener.Close(), theirs.Close(), ours.Close()); err != nil {
		t.Fatal(err)
	}
	conn, err := newWireConn(t.Context(), maker.(*net.UnixConn), int(dir.Fd()), 0)
	if err != nil {
		t.Fatal(err)
	}
	return conn, holder
}

// TestMakerDies: a holder ends if the daemon that has started it dies before it has the role.
func TestMakerDies(t *testing.T) {
	conn, holder := made(t, t.TempDir())
	if err := conn.close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "end of the holder", func() bool {
		n, err := unix.Wait4(holder.Process.Pid, nil, unix.WNOHANG, nil)
		return n != 0 || err != nil
	})
}

// TestMakerFirst: the daemon that has started a holder gets the role there before all others, which may wait for it already.
func TestMakerFirst(t *testing.T) {
	home := t.TempDir()
	conn, _ := made(t, home)
	o := optionsOf(home, daemonName, home)
	joined := make(chan *Client, 1)
	go func() {
		next, err := Join(t.Context(), o, true)
		if err != nil {
			t.Error(err)
		}
		joined <- next
	}()
	select {
	case next := <-joined:
		t.Fatal("another daemon has the role", next.Leave(false))
	case <-time.After(100 * time.Millisecond): // it would have it long since
	}
	if _, err := conn.serve(t.Context(), o.Start, false); err != nil {
		t.Fatal(err)
	}
	if err := conn.keep(Kept{Name: "mount/1", Data: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.call(t.Context(), &request{Op: opLeave, To: os.Getpid()}); err != nil {
		t.Fatal(err)
	}
	next := <-joined
	if got := describe(t, next); got != "mount/1=1()" {
		t.Error(got)
	}
	if err := errors.Join(conn.close(), next.Leave(false)); err != nil {
		t.Error(err)
	}
}
