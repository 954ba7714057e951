package client

import (
	"bufio"
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"snapfs/internal/lockorder"
	"snapfs/sandbox/api/wire"
)

const (
	// maxIdle bounds the connections that a client keeps without a call.
	maxIdle = 4
	// idleLimit is the age at which a connection without a call is not used any more: long before the daemon closes it.
	idleLimit = wire.IdleWait / 3
	// maxHead bounds the head of a response, in bytes.
	maxHead = 1 << 20
	// connBuffer is that of a connection, in bytes. A trailer must fit in it.
	connBuffer = wire.MaxResultHeader + 8<<10
)

// transport is an http.RoundTripper over the socket of a home. It takes the place of http.Transport, whose two
// goroutines for each connection cost a tenth of the time of a short command. Safe for concurrent use.
type transport struct {
	dir  string       // immutable
	peer atomic.Int64 // process that made the socket of the last connection; 0: not known

	mu   lockorder.Mutex[lockorder.ClientConns] // guards what follows
	idle []*conn                                // oldest first
}

// conn is a connection to the daemon. One call at a time uses it.
type conn struct {
	net.Conn
	head  *io.LimitedReader // what r reads from; limited while it reads a head
	r     *bufio.Reader
	since time.Time // when it became idle
}

// RoundTrip implements http.RoundTripper. The connection is used again once the body has been read to its end.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	c, err := t.take(ctx)
	if err != nil {
		return nil, err
	}
	// A deadline that has passed ends every read and write.
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	resp, err := c.exchange(req)
	if err != nil {
		stop()
		_ = c.Close() // nothing is buffered
		return nil, err
	}
	resp.Body = &body{ReadCloser: resp.Body, t: t, c: c, stop: stop, reusable: !resp.Close}
	return resp, nil
}

// exchange sends a request and reads the head of the response.
func (c *conn) exchange(req *http.Request) (*http.Response, error) {
	w := bufio.NewWriter(c)
	if err := req.Write(w); err != nil {
		return nil, err
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	return c.response(req)
}

// response reads the head of a response.
func (c *conn) response(req *http.Request) (*http.Response, error) {
	c.head.N = maxHead
	resp, err := http.ReadResponse(c.r, req)
	c.head.N = math.MaxInt64
	return resp, err
}

// take gives an idle connection or makes one.
func (t *transport) take(ctx context.Context) (*conn, error) {
	for {
		t.mu.Lock()
		n := len(t.idle) - 1
		if n < 0 {
			t.mu.Unlock()
			break
		}
		c := t.idle[n]
		t.idle = t.idle[:n]
		t.mu.Unlock()
		if time.Since(c.since) < idleLimit && c.alive() {
			return c, nil
		}
		_ = c.Close() // nothing is buffered
	}
	nc, err := connect(ctx, t.dir)
	if err != nil {
		return nil, err
	}
	t.peer.Store(int64(listener(nc)))
	head := &io.LimitedReader{R: nc}
	return &conn{Conn: nc, head: head, r: bufio.NewReaderSize(head, connBuffer)}, nil
}

// alive reports whether the daemon has neither closed an idle connection nor sent what was not asked for.
func (c *conn) alive() bool {
	sc, ok := c.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	alive := false
	err = raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		alive = err == syscall.EAGAIN
		return true
	})
	return err == nil && alive
}

// put keeps a connection for the next call.
func (t *transport) put(c *conn) {
	c.since = time.Now()
	t.mu.Lock()
	keep := len(t.idle) < maxIdle
	if keep {
		t.idle = append(t.idle, c)
	}
	t.mu.Unlock()
	if !keep {
		_ = c.Close() // nothing is buffered
	}
}

// closeIdle closes the connections that no call uses.
func (t *transport) closeIdle() {
	t.mu.Lock()
	idle := t.idle
	t.idle = nil
	t.mu.Unlock()
	for _, c := range idle {
		_ = c.Close() // nothing is buffered
	}
}

// body is the body of a response. At its end the connection goes back to the transport; closed before, it is closed.
// One goroutine at a time uses it.
type body struct {
	io.ReadCloser
	t        *transport
	c        *conn // nil when it was given back or closed
	stop     func() bool
	reusable bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.release(err == io.EOF && b.reusable)
	}
	return n, err
}

func (b *body) Close() error {
	b.release(false)
	return nil
}

// release gives the connection back or closes it.
func (b *body) release(reusable bool) {
	c := b.c
	if c == nil {
		return
	}
	b.c = nil
	if b.stop() && reusable {
		b.t.put(c)
		return
	}
	_ = c.Close() // nothing is buffered
}
