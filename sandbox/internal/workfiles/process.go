package workfiles

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
	"snapfs/internal/processes"
	"snapfs/sandbox/api"
)

const (
	// endWait is how long a child may take to end by itself.
	endWait = 3 * time.Second
	// lookEvery is how often a child with calls is looked at.
	lookEvery = time.Second
)

// errChildGone says that the child has ended.
var errChildGone = fmt.Errorf("%w: the process for files ended during the call", api.ErrUnavailable)

// child is a process that makes calls. Safe for concurrent use.
type child struct {
	cmd    *exec.Cmd
	parent *net.UnixConn // the control socket
	died   chan struct{} // closed when it has ended, or is about to and answers no more
	ended  chan struct{} // closed when it has ended

	mu    lockorder.Mutex[lockorder.WorkFileCalls]
	calls map[*exchange]bool // guarded by mu
	over  bool               // guarded by mu: died is closed
}

// startChild starts a child.
func startChild(log *slog.Logger) (*child, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }() // the child has a copy
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{Name}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = lines{log}
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	c := &child{
		cmd: cmd, parent: ours, died: make(chan struct{}), ended: make(chan struct{}), calls: map[*exchange]bool{},
	}
	go func() { // ends with the process; end waits for it
		defer close(c.ended)
		if err := cmd.Wait(); err != nil {
			log.Warn("the process for files ended", "error", err)
		}
		c.die()
	}()
	go c.look() // ends with the process
	return c, nil
}

// lines logs what a child says.
type lines struct{ log *slog.Logger }

func (l lines) Write(p []byte) (int, error) {
	l.log.Warn("the process for files says", "text", string(bytes.TrimSpace(p)))
	return len(p), nil
}

// pair makes two sockets that are connected, the second for another process.
func pair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs := os.NewFile(uintptr(fds[1]), "call")
	f := os.NewFile(uintptr(fds[0]), "call")
	conn, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return conn.(*net.UnixConn), theirs, nil //nolint:errcheck // of the family AF_UNIX
}

// look finds a child that was killed while one of its threads hangs: it does not end before that, and answers nothing.
func (c *child) look() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-c.died:
			return
		case <-tick.C:
		}
		if s, ok := processes.StatOfProcess(c.cmd.Process.Pid); ok && (s.State == 'Z' || s.State == 'X' || s.Killed()) {
			c.die()
		}
	}
}

// die ends all calls.
func (c *child) die() {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return
	}
	c.over = true
	close(c.died)
	calls := c.calls
	c.calls = nil
	c.mu.Unlock()
	for x := range calls {
		x.close()
	}
	_ = c.parent.Close()     // nothing more is sent
	_ = c.cmd.Process.Kill() // it may have ended
}

func (c *child) dead() bool {
	select {
	case <-c.died:
		return true
	default:
		return false
	}
}

// dial passes a new socket to the child.
func (c *child) dial() (*exchange, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", api.ErrUnavailable, err)
	}
	defer func() { _ = theirs.Close() }() // the child has a copy
	x := &exchange{child: c, conn: ours, in: newReader(ours), out: newWriter(ours)}
	x.close = sync.OnceFunc(func() {
		_ = ours.Close() // all was read, or nothing more is wanted
		c.forget(x)
	})
	c.mu.Lock()
	over := c.over
	if !over {
		c.calls[x] = true
	}
	c.mu.Unlock()
	if !over {
		_, _, err = c.parent.WriteMsgUnix([]byte{1}, unix.UnixRights(int(theirs.Fd())), nil)
	}
	if over || err != nil {
		x.close()
		return nil, errChildGone
	}
	return x, nil
}

func (c *child) forget(x *exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, x)
}

// end has the child end, by force if it takes long, and waits for that. One that hangs is left: it ends when what it
// waits for is there.
func (c *child) end() {
	_ = c.parent.CloseWrite() // as if this process had ended
	select {
	case <-c.ended:
		return
	case <-time.After(endWait):
	}
	c.die()
	select {
	case <-c.ended:
	case <-time.After(lookEvery):
	}
}
