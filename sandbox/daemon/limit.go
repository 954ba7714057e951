package daemon

import (
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// bodyWait is for how long a client may take to send a request's body, and answerWait to take a line of the answer:
	// what the daemon holds for a call, and waits with meanwhile, is not a slow client's to keep.
	bodyWait   = 30 * time.Second
	answerWait = time.Minute
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

// limited is a listener that accepts so many connections at a time.
type limited struct {
	net.Listener
	room   chan struct{}
	closed chan struct{}
	once   sync.Once
}

func limit(l net.Listener, most int) *limited {
	return &limited{Listener: l, room: make(chan struct{}, most), closed: make(chan struct{})}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.room <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.room
		return nil, err
	}
	return &limitedConn{Conn: c, l: l}, nil
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
	once sync.Once
}

func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.l.room })
	return err
}

// hurry has the rest of a request come within bodyWait; the returned function ends that, because a call may take long.
func hurry(w http.ResponseWriter) (arrived func()) {
	ctl := http.NewResponseController(w)
	_ = ctl.SetReadDeadline(time.Now().Add(bodyWait)) // only a writer that is not the server's has none
	return func() { _ = ctl.SetReadDeadline(time.Time{}) }
}
