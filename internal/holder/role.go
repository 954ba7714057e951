package holder

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/processes"
)

const (
	// maxFailures is how many daemons in a row may fail to serve before no more are started, and maxAsked how many when
	// somebody has asked for one.
	maxFailures = 6
	maxAsked    = 2
	// maxDeaths is how many are told, the newest.
	maxDeaths = 16
	// firstPause is the least time between two starts; it doubles with each failure.
	firstPause = 50 * time.Millisecond
	// mostDoublings is how often it doubles at most, and killedDoublings if the last one was killed from outside: programs
	// wait for the next one.
	mostDoublings   = 6
	killedDoublings = 2
	// successorWait is how long the holder waits for the successor of a daemon that has left for one.
	successorWait = 5 * time.Second
	// managedWait is how long the holder waits for a service manager to start the daemon.
	managedWait = 10 * time.Second
	// stuckWait is how often the holder looks whether a daemon was killed that has not ended.
	stuckWait = 500 * time.Millisecond
	// maxDoing bounds what a daemon tells that starts, in bytes.
	maxDoing = 200
	// takeWait is how long a daemon may take to ask for the role.
	takeWait = 2 * time.Minute
	// maxReport bounds what is read of a daemon's messages, in bytes.
	maxReport = 4 << 10
)

// startWait is how long a daemon may take to serve, from when it has the role or has last asked for something, while mounts
// wait for it.
var startWait = 2 * time.Minute

// startWaits is startWait for a daemon that does this, for tests.
var startWaits = func(string) time.Duration { return startWait }

// owner is the process that has the role of the daemon.
type owner struct {
	recipe
	conn  *conn // nil when it was closed
	pid   int
	pidfd int
	ready bool

	doing    string    // what it has told, until it is ready
	deadline time.Time // when it is killed unless it is ready
	hung     bool      // it was killed for that
}

// role is who is the daemon, and who becomes it next.
type role struct {
	owner      *owner
	good       recipe // of the last daemon that served
	last       recipe // of the last one, until one has served
	child      *child
	unended    []int     // children that were killed, and have not ended yet
	left       int64     // as in response
	since      time.Time // when the last one that served has ended; zero if one serves
	due        time.Time // when a daemon is started; zero: not
	awaited    bool      // due is until when a successor must have come
	before     *owner    // who has left for a successor, until one serves
	started    time.Time // when the last one was started
	failures   int       // daemons in a row that did not come to serve
	attempts   int       // since the last one served, or somebody asked for one
	most       int       // attempts before no more are started
	deaths     []Death
	untold     bool // the service manager has not said yet how the last daemon that had the role has ended
	terminated bool // SIGTERM has come
}

// watched are the descriptors that become readable when something has happened.
func (p *process) watched() []int {
	var fds []int
	if p.owner != nil {
		fds = append(fds, p.owner.pidfd)
	}
	if p.child != nil {
		fds = append(fds, p.child.pidfd)
	}
	if p.awaits() {
		fds = append(fds, p.before.pidfd)
	}
	return fds
}

// awaits reports whether a successor is awaited of a daemon that has left for it.
func (p *process) awaits() bool {
	return p.before != nil && p.awaited && p.owner == nil && p.child == nil
}

// timeout is how long poll(2) may wait, in milliseconds; -1 for ever.
func (p *process) timeout() int {
	at := p.due
	if p.child != nil && !p.child.took && (at.IsZero() || p.child.deadline.Before(at)) {
		at = p.child.deadline
	}
	if o := p.owner; o != nil && !o.ready && !o.hung && p.alive() > 0 && (at.IsZero() || o.deadline.Before(at)) {
		at = o.deadline
	}
	if look := time.Now().Add(stuckWait); (len(p.unended) > 0 || p.owner != nil && p.alive() > 0) && (at.IsZero() || look.Before(at)) {
		at = look
	}
	if at.IsZero() {
		return -1
	}
	return int(max(0, time.Until(at).Milliseconds()+1))
}

// look does what is due: a daemon has died, or is to be started.
func (p *process) look() {
	if c := p.child; c != nil && !c.took && time.Now().After(c.deadline) {
		_ = unix.PidfdSendSignal(c.pidfd, unix.SIGKILL, nil, 0) // it is reaped next
	}
	if o := p.owner; o != nil && !o.ready && !o.hung && p.alive() > 0 && time.Now().After(o.deadline) {
		o.hung = true
		_ = unix.PidfdSendSignal(o.pidfd, unix.SIGKILL, nil, 0) // its end is noticed next
	}
	p.lookForDead()
	if p.awaits() && ended(p.before.pidfd) { // it was to become the successor, or that is not there any more
		at := time.Now()
		if p.before.start.Managed {
			at = at.Add(managedWait)
		}
		p.plan(at)
		p.awaited = false
	}
	if !p.end && p.owner == nil && p.child == nil && !p.due.IsZero() && !time.Now().Before(p.due) {
		p.due = time.Time{}
		if p.awaited && p.alive() == 0 {
			p.giveUp() // the successor does without a holder, and nothing waits for it
			return
		}
		p.startDaemon()
	}
}

// lookForDead notices the end of a daemon.
func (p *process) lookForDead() {
	p.unended = slices.DeleteFunc(p.unended, func(pid int) bool {
		n, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
		return n == pid || errors.Is(err, unix.ECHILD)
	})
	reason := ""
	if c := p.child; c != nil && dead(c.pid, c.pidfd) {
		reason = p.reap()
	}
	if o := p.owner; o != nil && dead(o.pid, o.pidfd) {
		p.died(reason)
	}
}

// dead reports whether the process of a pidfd has ended, or was killed. A thread that waits in the kernel, perhaps for an
// answer of the next daemon, keeps a process from ending.
func dead(pid, pidfd int) bool {
	if ended(pidfd) {
		return true
	}
	began, alive := processes.Life(pid)
	if began == 0 || alive {
		return false
	}
	// As a rule it is just ending, and then tells how. Its threads are killed for that, whatever it ends of. Where others
	// want the processors too, that takes a while.
	for most := time.Now().Add(mostEndWait); ; {
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(endWait.Milliseconds()))
		if ended(pidfd) || !processes.Runnable(pid) || time.Now().After(most) {
			return true
		}
	}
}

// endWait is for how long a process that is ending is waited for.
const endWait = 50 * time.Millisecond

// mostEndWait is the same as long as one of its threads waits for nothing but a processor.
var mostEndWait = time.Second

// stuck is how a process ended whose threads have not all ended; stuckToo is added where it is known how the others did.
const (
	stuck    = "killed, with a thread that waits in the kernel"
	stuckToo = ", with a thread that waits in the kernel"
)

// ended reports whether the process of a pidfd has ended.
func ended(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}

// reap takes the status of the child, and gives it in words. One that never had the role has failed.
func (p *process) reap() string {
	c := p.child
	p.child = nil
	var status unix.WaitStatus
	n, err := unix.Wait4(c.pid, &status, unix.WNOHANG, nil)
	reason := ""
	switch {
	case err == nil && n == c.pid:
		reason = words(status)
	case err == nil:
		reason = stuckFate(c.pid)
		p.unended = append(p.unended, c.pid)
	}
	report, final := readSome(c.report), readSome(c.final)
	closeAll([]int{c.pidfd, c.report, c.final})
	var said struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(report, &said) == nil && said.Error != "" {
		final = []byte(said.Error)
	}
	message, _, _ := strings.Cut(strings.TrimSpace(string(final)), "\n")
	if o := p.owner; o != nil && o.pid == c.pid {
		if o.hung {
			message = o.late()
		}
		p.fate(Death{Time: time.Now(), PID: c.pid, Reason: reason, Message: message, Served: p.owner.ready})
		return reason
	}
	if p.owner == nil && !c.took {
		d := Death{Time: time.Now(), PID: c.pid, Reason: reason, Message: message}
		p.fate(d)
		p.failed(d.killed() && d.Time.Before(c.deadline))
	}
	return ""
}

// readSome reads the beginning of a file or pipe without waiting.
func readSome(fd int) []byte {
	buf := make([]byte, maxReport)
	n, err := unix.Pread(fd, buf, 0)
	if err != nil { // a pipe
		n, err = unix.Read(fd, buf)
	}
	if err != nil || n < 0 {
		return nil
	}
	return buf[:n]
}

// fate remembers a death.
func (p *process) fate(d Death) {
	p.deaths = append(p.deaths, d)
	if n := len(p.deaths) - maxDeaths; n > 0 {
		p.deaths = slices.Delete(p.deaths, 0, n)
	}
}

// late says why a daemon was killed that did not come to serve.
func (o *owner) late() string {
	if o.doing == "" {
		return fmt.Sprintf("it did nothing for %v", startWaits(""))
	}
	return fmt.Sprintf("it made no progress for %v: %s", startWaits(o.doing), o.doing)
}

// died is the end of a daemon that has not said a word. How a child ended is known already.
func (p *process) died(reason string) {
	o := p.owner
	p.owner = nil
	if n := len(p.deaths); n == 0 || p.deaths[n-1].PID != o.pid {
		if reason == "" {
			reason = fateOf(o.pid, o.pidfd)
		}
		message := ""
		if o.hung {
			message = o.late()
		}
		p.fate(Death{Time: time.Now(), PID: o.pid, Reason: reason, Message: message, Served: o.ready})
	}
	_ = unix.Close(o.pidfd)
	if o.conn != nil {
		p.drop(o.conn)
	}
	p.remember(o)
	p.left = uptime()
	if o.ready {
		p.since = time.Now()
	}
	switch {
	case !p.inCharge(), p.terminated:
		p.end = true
	case p.grant():
	case p.alive() == 0 && (p.before == nil || p.before.start.Managed):
		if o.ready && !p.managed {
			writeDeaths(p.home, p.deaths)
		}
		p.end = !p.managed
	case o.ready && o.start.Managed:
		p.plan(time.Now().Add(managedWait))
	case o.ready:
		p.plan(later(p.started.Add(firstPause)))
	default:
		p.failed(p.deaths[len(p.deaths)-1].killed() && !o.hung)
	}
}

// remember takes the program and the arguments of the daemon that had the role. Those of one that served are known.
func (p *process) remember(o *owner) {
	old := o.recipe
	switch {
	case o.ready:
		return
	case p.good.start == nil:
		old, p.last = p.last, o.recipe
	}
	if old.start != nil {
		_ = unix.Close(old.exe)
	}
}

// inCharge reports whether a holder that follows another one is on its own: the one before has ended.
func (p *process) inCharge() bool {
	if p.follows < 0 {
		return true
	}
	fds := []unix.PollFd{{Fd: int32(p.follows), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, int(yieldWait.Milliseconds()))
	return err == nil && n == 1
}

// failed plans the next start after one that did not come to serve. One that was killed from outside says nothing against
// the program: it is tried again however often that happens.
func (p *process) failed(killed bool) {
	p.failures++
	if killed {
		p.attempts = max(0, p.attempts-1)
	}
	p.due = time.Time{}
	if p.terminated {
		p.end = true
		return
	}
	switch {
	case p.attempts < p.most:
		if !p.grant() {
			p.plan(later(p.started.Add(startPause(p.failures, killed))))
		}
	case p.alive() == 0 && !p.managed: // nothing waits for it
		writeDeaths(p.home, p.deaths)
		p.end = true
	}
}

// startPause is the least time from one start to the next, after so many failures.
func startPause(failures int, killed bool) time.Duration {
	most := mostDoublings
	if killed {
		most = killedDoublings
	}
	return firstPause << min(failures, most)
}

// plan has the daemon started at a time, unless a service manager starts it.
func (p *process) plan(at time.Time) {
	if !p.managed {
		p.due = at
	}
}

// later is a time that is not over.
func later(t time.Time) time.Time {
	if now := time.Now(); t.Before(now) {
		return now
	}
	return t
}

// serve gives a client the role, or has it wait for it. exe is the program of the client.
func (p *process) serve(c *conn, r *request, exe int) {
	p.lookForDead() // the daemon may have died just now
	err := error(nil)
	switch {
	case r.Start == nil || len(r.Start.Args) == 0 || c.pid <= 0:
		err = fmt.Errorf("%w: serve by process %d without a way to start it again", ErrRefused, c.pid)
	case p.owner != nil && p.owner.conn == c, c.waits != nil:
		err = fmt.Errorf("%w: serve was said before", ErrRefused)
	case p.owner != nil && !r.Wait:
		err = fmt.Errorf("%w: process %d", ErrConflict, p.owner.pid)
	}
	if err != nil {
		_ = unix.Close(exe)
		p.answer(c, r.Seq, fail(err), nil)
		return
	}
	if p.end { // it finds no holder, or another one
		_ = unix.Close(exe)
		return
	}
	c.waits, c.exe = r, exe
	if p.owner == nil {
		p.grant()
	}
}

// grant gives the role to the first client that waits for it, and reports whether there was one.
func (p *process) grant() bool { return p.grantTo(0) }

// grantTo is grant to a process before others, unless that is 0.
func (p *process) grantTo(pid int) bool {
	all := slices.Clone(p.conns)
	slices.SortStableFunc(all, func(a, b *conn) int { return cmp.Compare(distance(a.pid, pid), distance(b.pid, pid)) })
	for _, c := range all {
		if c.waits == nil {
			continue
		}
		r := c.waits
		c.waits = nil
		pidfd, err := c.pidfd()
		if err != nil {
			p.answer(c, r.Seq, fail(err), nil)
			continue
		}
		p.untold = true
		p.owner = &owner{
			recipe: recipe{r.Start, c.exe}, conn: c, pid: c.pid, pidfd: pidfd, deadline: time.Now().Add(startWaits("")),
		}
		p.awaited, p.maker = false, nil
		c.exe = -1
		p.due = time.Time{}
		if p.child != nil && p.child.pid == c.pid {
			p.child.took = true
		}
		p.answer(c, r.Seq, response{Left: p.left, Deaths: p.deaths, Kept: p.alive()}, nil)
		return true
	}
	return false
}

// distance is 0 for equal numbers, else 1.
func distance(a, b int) int {
	if a == b {
		return 0
	}
	return 1
}

// starting notes what a daemon does that does not serve yet.
func (p *process) starting(what string) {
	p.owner.doing = strings.ToValidUTF8(what[:min(len(what), maxDoing)], "")
	p.owner.deadline = time.Now().Add(startWaits(p.owner.doing))
}

// ready notes that the daemon serves, and unless they are untold yet, that it has noted the deaths before it.
func (p *process) ready(untold bool) {
	o := p.owner
	if !untold {
		p.deaths = nil
	}
	if o.ready {
		return
	}
	o.ready, p.since = true, time.Time{}
	for _, old := range []recipe{p.good, p.last} {
		if old.start != nil {
			_ = unix.Close(old.exe)
		}
	}
	p.good, p.last = o.recipe, recipe{}
	p.forgetBefore()
	p.failures, p.attempts, p.most, p.left = 0, 0, maxFailures, 0
}

// forgetBefore ends the wait for a successor that serves.
func (p *process) forgetBefore() {
	if p.before != nil {
		_ = unix.Close(p.before.pidfd)
		p.before = nil
	}
}

// leave ends the role of the daemon. If its successor does not come to serve, or it ends and there is none, the last program
// that served is started again.
func (p *process) leave(end bool, to int) {
	o := p.owner
	p.owner = nil
	p.remember(o)
	p.forgetBefore()
	p.before = o
	if end || p.terminated {
		p.giveUp()
		return
	}
	p.left = uptime()
	if o.ready {
		p.since = time.Now()
	}
	if !p.grantTo(to) {
		p.plan(time.Now().Add(successorWait))
		p.awaited = true
	}
}

// giveUp ends the holder, with all that it keeps. One of a service manager goes on for the next daemon.
func (p *process) giveUp() {
	if p.child != nil {
		_ = unix.PidfdSendSignal(p.child.pidfd, unix.SIGKILL, nil, 0) // it has not begun
	}
	for _, name := range slices.Clone(p.names) {
		p.forget(name)
	}
	p.end = !p.managed
}

// giveUpAsked gives everything up. A daemon that does not serve is killed; the client looks after one that does.
func (p *process) giveUpAsked() error {
	if o := p.owner; o != nil {
		if o.ready || p.alive() == 0 {
			return fmt.Errorf("%w: process %d", ErrConflict, o.pid)
		}
		_ = unix.PidfdSendSignal(o.pidfd, unix.SIGKILL, nil, 0) // what it has done is undone by the next one
	}
	p.giveUp()
	return nil
}

// status is what the holder does.
func (p *process) status() *Status {
	s := &Status{
		PID: os.Getpid(), Managed: p.managed, Kept: p.alive(), Failures: p.failures, Deaths: p.deaths, Next: p.due, Since: p.since,
	}
	if p.owner != nil {
		s.Daemon, s.Ready, s.Doing = p.owner.pid, p.owner.ready, p.owner.doing
	}
	s.GivenUp = p.owner == nil && p.child == nil && p.due.IsZero() && !p.managed
	return s
}
