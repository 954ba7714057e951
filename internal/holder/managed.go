package holder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// redialWait is how long a service manager may take to start the holder again.
const redialWait = 5 * time.Second

// tellServing tells the service manager that daemons can connect.
func tellServing() {
	if _, err := systemd.SdNotify(true, systemd.SdNotifyReady); err != nil {
		fmt.Fprintln(os.Stderr, "snapfs-holder: telling the service manager:", err)
	}
}

// A service manager has the program tell the holder how a daemon has ended, and wait before it starts the next one.
const (
	endedArg = "ended"
	pauseArg = "pause"
)

// After failedWait daemons in a row that did not come to serve, the next one is started after firstDelay, which doubles up
// to maxDelay.
const (
	failedWait = 3
	firstDelay = 200 * time.Millisecond
	maxDelay   = 5 * time.Second
)

// tellEnd tells the holder of a home how a daemon has ended, by what systemd says in the environment; see systemd.exec(5).
// What does not work is left out: the next daemon is to start.
func tellEnd(dir string) {
	reason := ""
	if os.Getenv("SERVICE_RESULT") != "success" {
		reason = wordsOf(os.Getenv("EXIT_CODE"), os.Getenv("EXIT_STATUS"))
	}
	_, _ = ask(context.Background(), dir, &request{Op: opEnded, Name: reason})
}

// pause waits while no daemon is to be started, as those before have failed.
func pause(dir string) {
	s, err := Ask(context.Background(), dir)
	if err == nil && s.Failures >= failedWait && len(s.Deaths) > 0 {
		at := s.Deaths[len(s.Deaths)-1].Time.Add(min(firstDelay<<min(s.Failures-failedWait, 10), maxDelay))
		time.Sleep(min(time.Until(at), maxDelay)) // the clock may have been set
	}
}

// wordsOf says how a process ended, as words does, by what systemd tells.
func wordsOf(code, status string) string {
	switch code {
	case "exited":
		return "exit status " + status
	case "killed":
		return "killed by SIG" + status
	case "dumped":
		return "killed by SIG" + status + ", core dumped"
	}
	return ""
}

// told takes word of how the last daemon has ended, "" for as it should. One that never had the role did not come to serve.
func (p *process) told(reason string) {
	p.lookForDead()
	if !p.managed || p.owner != nil {
		return
	}
	reason = strings.ToValidUTF8(reason[:min(len(reason), maxDoing)], "")
	if n := len(p.deaths); p.untold {
		if n > 0 && reason != "" { // who has waited for it knows best
			p.deaths[n-1].Reason = reason
		}
		p.untold = false
		return
	}
	if reason == "" {
		return
	}
	p.fate(Death{Time: time.Now(), Reason: reason, Message: "it did not come to ask for what it is to go on with"})
	p.failures++
}

// listenAlone makes the socket of a holder that a service manager starts. It fails if the home has a holder.
func (p *process) listenAlone(dir string) error {
	other, err := dial(context.Background(), dir)
	if err == nil {
		pid := other.pid
		return errors.Join(fmt.Errorf("%w: %s has a holder, process %d", ErrConflict, dir, pid), other.close())
	}
	if !errors.Is(err, ErrNone) && !errors.Is(err, ErrCopy) {
		return err
	}
	if p.listener, err = listen(p.home); err != nil {
		return fmt.Errorf("socket of the holder: %w", err)
	}
	return unix.SetNonblock(p.listener, true)
}

// joinAgain joins, again while the error passes, for a bounded time.
func joinAgain(ctx context.Context, o Options, wait bool, passes func(error) bool) (*wireConn, response, error) {
	conn, r, err := join(ctx, o, wait)
	for begin := time.Now(); err != nil && passes(err) && time.Since(begin) < redialWait; {
		time.Sleep(time.Millisecond) // the next attempt finds no holder, or another one
		conn, r, err = join(ctx, o, wait)
	}
	return conn, r, err
}

// rejoin takes the role at the holder that a service manager starts in the place of one that has ended. ErrNone if the
// last one was not a service manager's, or none comes.
func (c *Client) rejoin() (*wireConn, error) {
	if !c.managed {
		return nil, ErrNone
	}
	none := func(err error) bool { return errors.Is(err, ErrNone) || errors.Is(err, errEnded) }
	conn, _, err := joinAgain(context.Background(), c.Options, false, none)
	if none(err) {
		c.Log.Warn("the service manager starts no holder: this daemon does", "error", err)
		err = ErrNone
	}
	return conn, err
}

// followManaged ends a holder of a service manager, which starts one of its present program, and gives that everything.
// Should this process die in between, what was kept is gone.
func (c *Client) followManaged(old *wireConn, all []Kept) (*wireConn, error) {
	if _, err := old.call(context.Background(), &request{Op: opYield}); err != nil {
		return nil, err
	}
	_ = old.close() // it is gone
	c.managed = true
	next, err := c.rejoin()
	if errors.Is(err, ErrNone) {
		next, err = c.begin(nil)
	}
	if err != nil {
		return nil, err
	}
	for _, k := range all {
		err = errors.Join(err, next.keep(k))
	}
	if err != nil {
		c.Log.Error("the holder does not keep everything that the one before has kept", "pid", next.pid, "error", err)
	}
	return next, nil
}
