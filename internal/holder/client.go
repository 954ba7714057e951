package holder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
)

// answerWait bounds how long a holder may take to answer.
var answerWait = 5 * time.Second

// Options are how a daemon uses the holder of its home.
type Options struct {
	Home  string
	Start Start // how the daemon is to be started again
	// Programs are those that may run the holder, best first. One that does not answer as a holder is left out.
	Programs []string
	Log      *slog.Logger
}

// Client is the connection of a daemon to its holder. If the holder dies, the client starts a new one and gives it
// everything again. Safe for concurrent use.
type Client struct {
	Options

	mu     lockorder.Mutex[lockorder.HolderClient] // guards what follows; held during an exchange
	conn   *wireConn                               // nil as long as there is no holder
	kept   map[string]Kept                         // what it has of this daemon; the files are their owners', or copies
	ready  bool
	closed bool
	copies []*os.File // see HandOver
	hands  bool       // HandOver was called

	managed bool // a service manager starts the holder
	deaths  []Death
	waits   int
	left    int64

	watchers sync.WaitGroup
}

// Join takes the role of the daemon at the home's holder, if it has one; else the first Keep starts it. With wait, a daemon
// that has the role may give it up until ctx ends. Errors: ErrConflict for another daemon, ErrGone for a holder that does
// not answer, ErrRefused for one that is of another home, or does not let this user use it.
func Join(ctx context.Context, o Options, wait bool) (*Client, error) {
	c := &Client{Options: o, kept: map[string]Kept{}}
	c.mu.Lock()
	defer c.mu.Unlock()
	conn, r, err := joinAgain(ctx, o, wait, func(err error) bool { return errors.Is(err, errEnded) })
	if errors.Is(err, ErrNone) || errors.Is(err, ErrCopy) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	c.deaths, c.left, c.waits = r.Deaths, r.Left, r.Kept
	if conn.version < versions.to {
		conn = c.handOver(conn)
	}
	c.useLocked(conn)
	return c, nil
}

// handOver has a holder of this program take the place of one that speaks an older protocol. If that fails, the old one
// goes on.
func (c *Client) handOver(old *wireConn) *wireConn {
	next, err := c.follow(old)
	if err != nil {
		c.Log.Warn("the holder of an earlier version goes on", "pid", old.pid, "error", err)
		return old
	}
	c.Log.Info("another holder took the place of one of an earlier version", "pid", next.pid, "before", old.pid)
	return next
}

// follow starts a holder, gives it everything that another one has, and ends that. Should this process die meanwhile, one
// of the two is in charge.
func (c *Client) follow(old *wireConn) (*wireConn, error) {
	fd, err := unix.PidfdOpen(old.pid, 0)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", old.pid, err)
	}
	before := os.NewFile(uintptr(fd), "holder before")
	defer func() { _ = before.Close() }()
	all, err := old.all()
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, k := range all {
			(&answer{files: k.Files}).close()
		}
	}()
	if old.managed {
		return c.followManaged(old, all)
	}
	next, err := c.begin(before)
	if err != nil {
		return nil, err
	}
	for _, k := range all {
		if err := next.keep(k); err != nil {
			return nil, errors.Join(err, next.close())
		}
	}
	if _, err := old.call(context.Background(), &request{Op: opYield}); err != nil {
		return nil, errors.Join(err, next.close())
	}
	_ = old.close() // it is gone
	_, err = next.call(context.Background(), &request{Op: opCommit})
	if err != nil {
		c.Log.Error("the holder does not answer", "pid", next.pid, "error", err)
	}
	return next, nil
}

// join takes the role of the daemon at the holder that a home has.
func join(ctx context.Context, o Options, wait bool) (*wireConn, response, error) {
	conn, err := dial(context.Background(), o.Home)
	if err != nil {
		return nil, response{}, err
	}
	r, err := conn.serve(ctx, o.Start, wait)
	if err != nil {
		_ = conn.close() // the first error is the one to tell
		return nil, response{}, err
	}
	return conn, r, nil
}

// useLocked goes on with a holder, and watches it.
func (c *Client) useLocked(conn *wireConn) {
	c.conn, c.managed = conn, conn.managed
	c.watchers.Go(func() {
		<-conn.gone
		c.lost(conn)
	})
}

// Deaths are the daemons that have died since one served, oldest first.
func (c *Client) Deaths() []Death { return c.deaths }

// Waiting counts the names that were kept when this daemon took the role, other than those of the home itself.
func (c *Client) Waiting() int { return c.waits }

// Starting tells the holder what this daemon does before it is ready. One that has taken mounts over and asks for nothing
// for startWait is killed.
func (c *Client) Starting(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return
	}
	if _, err := c.conn.call(context.Background(), &request{Op: opStarting, Name: what}); err != nil {
		c.Log.Warn("the holder is not told what this daemon does", "error", err)
	}
}

// Gap is for how long nobody has served the home: since the daemon before has left, or died. 0 if that is not known.
func (c *Client) Gap() time.Duration {
	if c.left == 0 {
		return 0
	}
	return time.Duration(uptime() - c.left)
}

// PID is the process of the holder; 0 if there is none.
func (c *Client) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return 0
	}
	return c.conn.pid
}

// Keep keeps data and copies of descriptors by a name, in the place of what was kept by it. They outlive this process. The
// files must stay open until the name is forgotten or used again, or HandOver. The first Keep starts a holder if there is none: its
// caller must hold the home's lock. Errors: ErrFull, ErrRefused for what is beyond the bounds, ErrGone.
func (c *Client) Keep(name string, data []byte, files ...*os.File) error {
	if err := check(name, data, len(files)); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.connectedLocked(); err != nil {
		return err
	}
	if c.hands {
		var err error
		if files, err = c.copyLocked(files); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	k := Kept{name, data, files}
	if err := c.askLocked(func(conn *wireConn) error { return conn.keep(k) }); err != nil {
		return err
	}
	c.kept[name] = k
	return nil
}

// Forget ends the keeping of a name, if it is kept.
func (c *Client) Forget(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kept, name)
	if c.conn == nil {
		return nil
	}
	return c.askLocked(func(conn *wireConn) error {
		_, err := conn.call(context.Background(), &request{Op: opForget, Name: name})
		return err
	})
}

// Kept gives everything that is kept, by name; nothing if the holder has just ended. The files are the caller's.
func (c *Client) Kept() ([]Kept, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return nil, nil
	}
	all, err := c.conn.all()
	if err != nil {
		return nil, unlessEnded(err)
	}
	for _, k := range all {
		if _, there := c.kept[k.Name]; !there {
			c.kept[k.Name] = k
		}
	}
	return all, nil
}

// Get gives what is kept by a name; no files if nothing is, or the holder has just ended. The files are the caller's.
func (c *Client) Get(name string) (Kept, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return Kept{}, nil
	}
	a, err := c.conn.exchange(context.Background(), &request{Op: opGet, Name: name})
	if err != nil {
		a.close()
		return Kept{}, unlessEnded(err)
	}
	return Kept{a.Name, a.Data, a.files}, nil
}

// Ready tells the holder that this daemon serves. The deaths before it are told to the next one, too, until Told.
func (c *Client) Ready() error { return c.serves(&request{Op: opReady, Untold: len(c.deaths) > 0}) }

// Told tells the holder that this daemon, which serves, has noted the deaths before it.
func (c *Client) Told() error {
	if len(c.deaths) == 0 {
		return nil
	}
	return c.serves(&request{Op: opReady})
}

func (c *Client) serves(r *request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready = true
	if c.conn == nil {
		return nil
	}
	_, err := c.conn.call(context.Background(), r)
	return err
}

// HandOver has the client open the files that are kept a second time, and those of later calls of Keep, until it leaves: their
// owners may close them, and if the holder dies, the next one gets them all the same.
func (c *Client) HandOver() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hands = true
	for _, name := range slices.Sorted(maps.Keys(c.kept)) {
		k := c.kept[name]
		files, err := c.copyLocked(k.Files)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		c.kept[name] = Kept{k.Name, k.Data, files}
	}
	return nil
}

// copyLocked opens files a second time, until the client leaves.
func (c *Client) copyLocked(files []*os.File) ([]*os.File, error) {
	opened, err := copies(files)
	c.copies = append(c.copies, opened...)
	return opened, err
}

// copies opens files a second time. With an error it returns those that it has opened.
func copies(files []*os.File) (opened []*os.File, err error) {
	for _, f := range files {
		raw, err := f.SyscallConn()
		if err != nil {
			return opened, err
		}
		fd := -1
		if e := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) }); e != nil || err != nil {
			return opened, errors.Join(e, err)
		}
		opened = append(opened, os.NewFile(uintptr(fd), f.Name()))
	}
	return opened, nil
}

// Leave gives up the role of the daemon. The holder waits for a successor, or ends with all that it keeps.
func (c *Client) Leave(successor bool) error { return c.leave(&request{Op: opLeave, End: !successor}) }

// LeaveTo gives up the role of the daemon to a process, which waits for it.
func (c *Client) LeaveTo(pid int) error { return c.leave(&request{Op: opLeave, To: pid}) }

func (c *Client) leave(r *request) error {
	c.mu.Lock()
	err := c.leaveLocked(r)
	if !r.End && c.conn != nil && errors.Is(err, errEnded) { // it has just died
		if c.replaceLocked(); c.conn != nil {
			err = c.leaveLocked(r)
		}
	}
	conn := c.conn
	c.closed, c.conn = true, nil
	if conn != nil {
		err = errors.Join(err, conn.close())
	}
	(&answer{files: c.copies}).close()
	c.copies = nil
	c.mu.Unlock()
	c.watchers.Wait()
	return err
}

// leaveLocked tells the holder, if there is one.
func (c *Client) leaveLocked(r *request) error {
	conn := c.conn
	if conn == nil {
		return nil
	}
	_, err := conn.call(context.Background(), r)
	hangs := errors.Is(err, ErrGone) && !errors.Is(err, errEnded)
	if r.End && !conn.managed && (err == nil || hangs && conn.kill(c.Home)) {
		conn.awaitEnd()
	}
	return err
}

// connectedLocked starts a holder if there is none.
func (c *Client) connectedLocked() error {
	if c.closed {
		return fmt.Errorf("%w: this daemon has left it", ErrGone)
	}
	if c.conn != nil {
		return nil
	}
	conn, err := c.rejoin()
	if errors.Is(err, ErrNone) {
		conn, err = c.begin(nil)
	}
	if err != nil {
		return err
	}
	c.useLocked(conn)
	return nil
}

// lost starts a holder in the place of one that has died, and gives it everything, if this daemon has had it keep
// anything.
func (c *Client) lost(conn *wireConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.conn != conn {
		return
	}
	if len(c.kept) == 0 { // the home may be another daemon's, and the holder, too: the first Keep starts one
		_ = conn.close()
		c.conn = nil
		return
	}
	c.replaceLocked()
}

// replaceLocked has another holder take the place of one that has ended, or does not answer and was killed.
func (c *Client) replaceLocked() {
	c.Log.Warn("the holder has ended: another one takes its place", "pid", c.conn.pid)
	err := c.conn.close()
	c.conn = nil
	if err == nil {
		err = c.connectedLocked()
	}
	if err == nil {
		err = c.giveLocked(c.conn)
	}
	if err != nil {
		c.Log.Error("nothing keeps the mounts should this daemon die", "error", err)
	}
}

// giveLocked gives a holder everything that this daemon has had the last one keep. What cannot be kept is left out.
func (c *Client) giveLocked(conn *wireConn) error {
	var errs error
	for _, name := range slices.Sorted(maps.Keys(c.kept)) {
		if err := conn.keep(c.kept[name]); err != nil {
			errs = errors.Join(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	if c.ready {
		_, err := conn.call(context.Background(), &request{Op: opReady})
		errs = errors.Join(errs, err)
	}
	return errs
}
