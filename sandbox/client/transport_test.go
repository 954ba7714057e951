package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"snapfs/sandbox/api"
)

// service is an HTTP server on the socket of a home that counts its connections.
type service struct {
	*http.Server
	conns atomic.Int32
	done  chan struct{}
}

// serve starts a service in dir.
func serve(t *testing.T, dir string, h http.HandlerFunc) *service {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(dir, api.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	s := &service{done: make(chan struct{})}
	s.Server = &http.Server{Handler: h, ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.conns.Add(1)
		}
	}}
	go func() {
		defer close(s.done)
		_ = s.Serve(l) // ends with Close
	}()
	t.Cleanup(s.end)
	return s
}

// end closes the service and its connections.
func (s *service) end() {
	_ = s.Close() // of a listener
	<-s.done
}

// roundTrip makes a request and returns the body of the response.
func roundTrip(ctx context.Context, tr *transport, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://snapfs/", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return "", err
	}
	got, err := io.ReadAll(resp.Body)
	return string(got), errors.Join(err, resp.Body.Close())
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // the client sees what is missing
	_, _ = w.Write(body)
}

// TestTransportReuse: one call after the other goes over one connection, and no more than maxIdle are kept.
func TestTransportReuse(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, dir, echo)
	tr := &transport{dir: dir}
	defer tr.closeIdle()
	long := strings.Repeat("long ", 50_000) // comes in chunks
	for range 10 {
		for _, body := range []string{"short", "", long} {
			got, err := roundTrip(t.Context(), tr, body)
			if err != nil || got != body {
				t.Fatalf("%d bytes, %v; want %d", len(got), err, len(body))
			}
		}
	}
	if n := s.conns.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	var all sync.WaitGroup
	for range 5 * maxIdle {
		all.Go(func() {
			if got, err := roundTrip(t.Context(), tr, long); err != nil || got != long {
				t.Errorf("%d bytes, %v; want %d", len(got), err, len(long))
			}
		})
	}
	all.Wait()
	if n := len(tr.idle); n == 0 || n > maxIdle {
		t.Errorf("%d idle connections, want 1 to %d", n, maxIdle)
	}
}

// TestTransportRestart: a connection that the daemon has closed is replaced.
func TestTransportRestart(t *testing.T) {
	dir := t.TempDir()
	tr := &transport{dir: dir}
	defer tr.closeIdle()
	for range 3 {
		s := serve(t, dir, echo)
		if got, err := roundTrip(t.Context(), tr, "x"); err != nil || got != "x" {
			t.Fatalf("%q, %v", got, err)
		}
		s.end()
		_ = os.Remove(filepath.Join(dir, api.SocketName)) // gone with its listener
	}
	if _, err := roundTrip(t.Context(), tr, "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a daemon: %v, want that the socket does not exist", err)
	}
}

// TestTransportEnds: a call whose context ends, and one whose response is not read to its end, leave no connection.
func TestTransportEnds(t *testing.T) {
	dir := t.TempDir()
	hold := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := serve(t, dir, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
		_ = http.NewResponseController(w).Flush()
		if string(body) == "hold" {
			cancel()
			<-hold
		}
	})
	defer s.end()
	defer close(hold)
	tr := &transport{dir: dir}
	if _, err := roundTrip(ctx, tr, "hold"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a call whose context ended: %v", err)
	}
	if _, err := roundTrip(ctx, tr, "late"); err == nil {
		t.Error("a call whose context had ended was made")
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://snapfs/", strings.NewReader("unread"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	if n := len(tr.idle); n != 0 {
		t.Errorf("%d idle connections, want none", n)
	}
}

// TestTransportAge: an idle connection that is too old is not used.
func TestTransportAge(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, dir, echo)
	tr := &transport{dir: dir}
	defer tr.closeIdle()
	for want := int32(1); want <= 3; want++ {
		if got, err := roundTrip(t.Context(), tr, "x"); err != nil || got != "x" {
			t.Fatalf("%q, %v", got, err)
		}
		if n := s.conns.Load(); n != want {
			t.Errorf("%d connections, want %d", n, want)
		}
		tr.idle[0].since = time.Now().Add(-idleLimit)
	}
}

// TestTransportHead: a response whose head has no end is an error, not a growing buffer.
func TestTransportHead(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, api.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, err = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		for err == nil { // until the client gives up
			_, err = io.WriteString(c, "X-More: "+strings.Repeat("x", 1000)+"\r\n")
		}
	}()
	if got, err := roundTrip(t.Context(), &transport{dir: dir}, "x"); err == nil {
		t.Errorf("got %d bytes", len(got))
	}
	_ = l.Close() // of a listener
	<-done
}
