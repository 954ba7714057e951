package daemon

import (
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// bodyWait is for how long a client may take to send a request's body, and answerWait to take a line of the answer: what the daemon
	// holds for a call, and waits with meanwhile, is not a slow client's to keep.
	bodyWait   = 30 * time.Second
	answerWait = time.Minute
	// maxClients bounds the connections; those beyond wait in the socket's queue. A small limit of descriptors makes it less.
	maxClients = 512
)

// clientLimit is maxClients, or an eighth of the descriptors.
func clientLimit() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 64
	}
	return int(min(maxClients, max(r.Cur/8, 8)))
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
