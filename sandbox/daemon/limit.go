package daemon

import (
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
	"snapfs/sandbox/internal/pace"
)

// bodyWait is for how long a client may take to send the JSON of a call, or bodyBytes of another body, and answerWait to
// take onePiece of the answer: what the daemon holds for a call, and waits with meanwhile, is not a slow client's to keep.
var (
	bodyWait   = 30 * time.Second
	answerWait = time.Minute
)

const (
	// bodyBytes must come of a body within each bodyWait. Its size may be any.
	bodyBytes = 512 << 10
	// maxCalls bounds the calls under way, see shares. A small limit of descriptors makes it less. There are as many
	// connections again, for those on which nothing is asked; those beyond wait in the socket's queue.
	maxCalls = 512
)

// callLimit is maxCalls, or a sixteenth of the descriptors.
func callLimit() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 64
	}
	return int(min(maxCalls, max(r.Cur/16, 8)))
}

// maxStrangers is how many connections those have who are only told that they may not ask.
const maxStrangers = 4

// limited is a listener that accepts so many connections at a time. Those who are bound to sessions have half of them at
// most, and each user of these as many as it leaves free there, so that others always get through.
type limited struct {
	net.Listener
	who    func(net.Conn) *asker
	room   chan struct{}
	closed chan struct{}
	once   sync.Once

	mu        lockorder.Mutex[lockorder.DaemonConns]
	strangers int            // guarded by mu
	bound     int            // guarded by mu: connections of users that are bound
	of        map[string]int // guarded by mu: these by user, none that is 0
}

func limit(l net.Listener, most int, who func(net.Conn) *asker) *limited {
	return &limited{
		Listener: l, who: who, room: make(chan struct{}, most), closed: make(chan struct{}), of: map[string]int{},
	}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.room <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			<-l.room
			return nil, err
		}
		who := l.who(c)
		if l.enter(who) {
			return &limitedConn{Conn: c, l: l, who: who}, nil
		}
		_ = c.Close() // nothing was read or written
	}
}

// enter counts a connection, or refuses it.
func (l *limited) enter(who *asker) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case who.trusted:
		return true
	case !who.bound():
		if l.strangers == maxStrangers {
			return false
		}
		l.strangers++
		return true
	}
	own, free := l.of[who.name()], cap(l.room)/2-l.bound
	if free <= 0 || own > 0 && own >= free {
		return false
	}
	l.bound++
	l.of[who.name()]++
	return true
}

// leave is the end of a connection that was counted.
func (l *limited) leave(who *asker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case who.trusted:
	case !who.bound():
		l.strangers--
	default:
		l.bound--
		if l.of[who.name()]--; l.of[who.name()] == 0 {
			delete(l.of, who.name())
		}
	}
}

// crowded reports whether half of the connections are taken: none is kept beyond its call then, so that those where
// nothing is asked are never more than the other half.
func (l *limited) crowded() bool { return len(l.room) > cap(l.room)/2 }

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	l    *limited
	who  *asker
	once sync.Once
}

func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.l.leave(c.who)
		<-c.l.room
	})
	return err
}

// askerOf is who is at the other end of an accepted connection.
func askerOf(conn net.Conn) *asker {
	if c, ok := conn.(*limitedConn); ok {
		return c.who
	}
	return &asker{}
}

// newBodyPace makes the pace of one body.
func newBodyPace() pace.Pace { return pace.New(bodyBytes, bodyWait) }

// hurry has the rest of a request come within bodyWait; the returned function ends that, because a call may take long.
func hurry(w http.ResponseWriter) (arrived func()) {
	ctl := http.NewResponseController(w)
	_ = ctl.SetReadDeadline(time.Now().Add(bodyWait)) // only a writer that is not the server's has none
	return func() { _ = ctl.SetReadDeadline(time.Time{}) }
}
