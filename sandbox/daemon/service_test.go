package daemon_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"snapfs/sandbox"
	"snapfs/sandbox/api/caller"
	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/daemon"
	"snapfs/sandbox/daemon/daemontest"
)

// serving starts a daemon with a service at /t/.
func serving(t testing.TB, h http.HandlerFunc, set func(*daemon.Options)) *daemontest.Daemon {
	return daemontest.Start(t, func(o *daemon.Options) {
		o.Services = []daemon.Service{{Pattern: "/t/", Handler: h}}
		if set != nil {
			set(o)
		}
	})
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// overSocket makes requests over the socket of a home.
func overSocket(d *daemontest.Daemon) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		var c net.Conn
		err := wire.WithSocket(d.Dir, func(path string) (err error) { c, err = net.Dial("unix", path); return err })
		return c, err
	}}}
}

func TestServiceKnowsWhoAsks(t *testing.T) {
	d := serving(t, func(w http.ResponseWriter, r *http.Request) {
		c := caller.From(r.Context())
		if err := c.Need("writing", sandbox.ScopeWrite); err != nil {
			w.WriteHeader(403)
		}
		_, _ = fmt.Fprintf(w, "%s trusted %v remotely %v id %v", c.Access().Session, c.Trusted, c.Remotely(), c.ID() != "")
	}, nil)
	all, reads := d.Token(t, "a"), d.Token(t, "a", sandbox.ScopeRead)
	for _, tc := range []struct {
		secret, session string
		status          int
		want            string
	}{
		{all.Secret, "", 200, "a trusted false remotely true id true"},
		{all.Secret, "a", 200, "a trusted false remotely true id true"},
		{all.Secret, "b", 403, "may not use session"},
		{reads.Secret, "", 403, "a trusted false"},
		{"", "", 401, "a token is needed"},
	} {
		r := d.Do(t, "GET", "/t/x", tc.secret, nil, daemon.SessionHeader, tc.session)
		if r.Status != tc.status || !strings.Contains(string(r.Body), tc.want) {
			t.Errorf("%+v: %d %s", tc, r.Status, r.Body)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://snapfs/t/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(daemon.SessionHeader, "c")
	resp, err := overSocket(d).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil || string(body) != "c trusted true remotely false id true" {
		t.Errorf("on the socket: %s, %v", body, err)
	}
}

// TestServiceErrors: refusals come in the service's form, a panic is an error, and too large a body is noticed.
func TestServiceErrors(t *testing.T) {
	d := daemontest.Start(t, func(o *daemon.Options) {
		o.Limits = func() daemon.Limits { return daemon.Limits{Upload: 1000} }
		o.Services = []daemon.Service{{
			Pattern: "POST /t/{what}", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.PathValue("what") == "panic" {
					panic("on purpose")
				}
				if _, err := io.Copy(io.Discard, r.Body); errors.As(err, new(*http.MaxBytesError)) {
					w.WriteHeader(413)
				}
			}),
			Refuse: func(w http.ResponseWriter, _ *http.Request, status int, e *wire.Error) {
				w.WriteHeader(status)
				_, _ = fmt.Fprintf(w, "own form: %s", e.Class)
			},
		}}
	})
	secret := d.Token(t, "a").Secret
	for _, tc := range []struct {
		path, secret, body string
		status             int
		want               string
	}{
		{"/t/x", "", "", 401, "own form: refused"},
		{"/t/panic", secret, "", 500, "own form: failed"},
		{"/t/x", secret, strings.Repeat("x", 1000), 200, ""},
		{"/t/x", secret, strings.Repeat("x", 1001), 413, ""},
	} {
		if r := d.Do(t, "POST", tc.path, tc.secret, tc.body); r.Status != tc.status || string(r.Body) != tc.want {
			t.Errorf("%s: %d %s", tc.path, r.Status, r.Body)
		}
	}
}

// TestGoneClientEndsItsCall: who closes its connection cancels what it asked for, in a service and in a call.
func TestGoneClientEndsItsCall(t *testing.T) {
	begun, ended := make(chan bool, 1), make(chan error, 1)
	d := serving(t, func(_ http.ResponseWriter, r *http.Request) {
		begun <- true
		<-r.Context().Done()
		ended <- r.Context().Err()
	}, nil)
	secret := d.Token(t, "a").Secret
	ctx, cancel := context.WithCancel(t.Context())
	ask := func(path, body string) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL+path, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("Authorization", "Bearer "+secret)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
	left := make(chan bool, 2)
	for _, call := range [][2]string{{"/t/", ""}, {"/v1/events", `{"follow":true}`}} {
		go func() { ask(call[0], call[1]); left <- true }()
	}
	<-begun
	eventually(t, "two requests are not under way", func() bool { return underWay(t, d) >= 2 })
	cancel()
	<-left
	<-left
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	eventually(t, "the requests of a client that is gone go on", func() bool { return underWay(t, d) == 0 })
}

// underWay is how many requests are being answered.
func underWay(t testing.TB, d *daemontest.Daemon) int {
	t.Helper()
	families, err := d.Home.Metrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "snapfs_http_requests_under_way" {
			return int(f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	t.Fatal("no metric of requests under way")
	return 0
}

// TestSlowReader: what a client does not read is not held in memory, and what waits for it ends.
func TestSlowReader(t *testing.T) {
	daemon.SetWaits(t, 10*time.Second, 10*time.Second, 300*time.Millisecond)
	const all = 1 << 30
	var wrote atomic.Int64
	ended := make(chan error, 1)
	d := serving(t, func(w http.ResponseWriter, _ *http.Request) {
		piece := make([]byte, 1<<20)
		for wrote.Load() < all {
			n, err := w.Write(piece)
			wrote.Add(int64(n))
			if err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}, nil)
	secret := d.Token(t, "a").Secret
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	c := dial(t, d)
	_, err := fmt.Fprintf(c, "GET /t/ HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %s\r\n\r\n", secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("a gigabyte was taken by who reads nothing")
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 32<<20 {
		t.Errorf("%d bytes were held, of %d that were written", grown, wrote.Load())
	}
}

// TestDrainedSlowly: who takes a little of an answer now and then is given up, too.
func TestDrainedSlowly(t *testing.T) {
	daemon.SetWaits(t, 10*time.Second, 10*time.Second, 300*time.Millisecond)
	const all = 8 << 20
	ended := make(chan error, 1)
	d := serving(t, func(w http.ResponseWriter, _ *http.Request) {
		piece := make([]byte, 4<<10)
		for range all / len(piece) {
			if _, err := w.Write(piece); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}, nil)
	var c net.Conn
	err := wire.WithSocket(d.Dir, func(path string) (err error) { c, err = net.Dial("unix", path); return err })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // the daemon closes it
	if _, err := io.WriteString(c, "GET /t/ HTTP/1.1\r\nHost: snapfs\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	for room := make([]byte, 4<<10); ; time.Sleep(10 * time.Millisecond) { // some 400 KB per second
		if _, err := c.Read(room); err != nil {
			break
		}
	}
	if err := <-ended; !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("the answer ended with %v", err)
	}
}

// dial connects to the listener of a daemon, until the test ends.
func dial(t testing.TB, d *daemontest.Daemon) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(d.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestSlowSenders: who begins a header or a body and does not go on is given up.
func TestSlowSenders(t *testing.T) {
	var wrong []string
	for wait := 300 * time.Millisecond; wait < 10*time.Second; wait *= 5 {
		if wrong = slowSenders(t, wait); len(wrong) == 0 {
			return
		}
		t.Logf("with %v: %q", wait, wrong) // a busy machine may send too slowly what should come in time
	}
	t.Errorf("%q", wrong)
}

// slowSenders tells what is wrong with a daemon that waits for so long.
func slowSenders(t *testing.T, most time.Duration) (wrong []string) {
	t.Helper()
	daemon.SetWaits(t, most, most, 10*time.Second)
	read := make(chan error, 10)
	d := serving(t, func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		read <- err
	}, nil)
	secret := d.Token(t, "a").Secret
	head := "Host: localhost\r\nX-API-Key: " + secret + "\r\n"
	for _, tc := range []struct{ what, send, status string }{
		{"a header", "POST /v1/info HTTP/1.1\r\nHost: loc", ""},
		{"the body of a call", "POST /v1/info HTTP/1.1\r\n" + head + "Content-Length: 10\r\n\r\n{", "400"},
		{"the body for a service", "POST /t/ HTTP/1.1\r\n" + head + "Content-Length: 10\r\n\r\n{", "200"},
		{"the body of a stranger", "POST /v1/info HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{", "401"},
		{"the body for nothing", "POST /none HTTP/1.1\r\n" + head + "Content-Length: 10\r\n\r\n{", "404"},
		{"a body about health", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{", "200"},
	} {
		c := dial(t, d)
		_, err := io.WriteString(c, tc.send)
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		var answer []byte
		if err == nil {
			answer, err = io.ReadAll(c) // to its end: the connection is closed
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !strings.Contains(err.Error(), "reset") {
			wrong = append(wrong, tc.what+": "+err.Error())
		}
		if tc.status != "" && !strings.HasPrefix(string(answer), "HTTP/1.1 "+tc.status) {
			wrong = append(wrong, tc.what+": the answer is "+string(answer))
		}
	}
	if len(wrong) == 0 && <-read == nil {
		wrong = append(wrong, "the service has read a body that did not come")
	}
	if err := d.Close(); err != nil {
		t.Errorf("the end: %v", err)
	}
	return wrong
}

// TestTrickle: a body that comes a byte now and then is given up.
func TestTrickle(t *testing.T) {
	daemon.SetWaits(t, 10*time.Second, time.Second, 10*time.Second)
	read := make(chan error, 1)
	d := serving(t, func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		read <- err
	}, nil)
	c := dial(t, d)
	_, err := io.WriteString(c, "POST /t/ HTTP/1.1\r\nHost: localhost\r\nX-API-Key: "+d.Token(t, "a").Secret+
		"\r\nContent-Length: 100000000\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a trickle is taken", func() bool {
		time.Sleep(20 * time.Millisecond)
		_, err := io.WriteString(c, "x")
		return err != nil || len(read) > 0
	})
	if err := <-read; !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a trickle ended with %v", err)
	}
}

// TestServiceWaits: requests for which there is no room wait as long as their service says.
func TestServiceWaits(t *testing.T) {
	end := make(chan struct{})
	long := func(*http.Request) daemon.Lane { return daemon.LongLane }
	d := daemontest.Start(t, func(o *daemon.Options) {
		o.Services = []daemon.Service{
			{Pattern: "/patient/", Wait: time.Minute, Lane: long, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end })},
			{Pattern: "/hasty/", Wait: time.Nanosecond, Lane: long, Handler: http.NotFoundHandler()},
		}
	})
	secret := d.Token(t, "a").Secret
	const requests = 100
	got := make(chan int, requests)
	for range requests {
		go func() { got <- d.Do(t, "POST", "/patient/", secret, nil).Status }()
	}
	eventually(t, "there is no room", func() bool { return d.Do(t, "POST", "/hasty/", secret, nil).Status == http.StatusServiceUnavailable })
	close(end)
	for range requests {
		if status := <-got; status != http.StatusOK {
			t.Errorf("a request that waits has %d", status)
		}
	}
}

// TestStreamsEndWithTheDaemon: a connection that was taken over, and a stream that is followed, end when the daemon does.
func TestStreamsEndWithTheDaemon(t *testing.T) {
	d := daemontest.Start(t, func(o *daemon.Options) {
		o.Services = []daemon.Service{{
			Pattern: "/t/", Lane: func(*http.Request) daemon.Lane { return daemon.FollowLane },
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c, rw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close() //nolint:errcheck // the other end looks
				_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\n\r\n")
				_ = rw.Flush()
				_, _ = io.Copy(io.Discard, rw) // does not look at the context
			}),
		}}
	})
	secret := d.Token(t, "a").Secret
	taken, followed := dial(t, d), dial(t, d)
	for c, path := range map[net.Conn]string{taken: "/t/", followed: "/v1/events?follow=1"} {
		if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %s\r\n\r\n", path, secret); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 ") {
			t.Fatalf("%s: %q, %v", path, line, err)
		}
	}
	if err := d.Close(); err != nil {
		t.Errorf("the end: %v", err)
	}
	for _, c := range []net.Conn{taken, followed} {
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("it goes on: %v", err)
		}
	}
	// A daemon of another test may have the port by now.
	c, err := net.Dial("tcp", strings.TrimPrefix(d.URL, "http://"))
	if err != nil {
		return
	}
	defer c.Close() //nolint:errcheck // it was read
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = fmt.Fprintf(c, "GET /v1/info HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %s\r\n\r\n", secret)
	if line, _ := bufio.NewReader(c).ReadString('\n'); strings.HasPrefix(line, "HTTP/1.1 ") && !strings.Contains(line, " 401 ") {
		t.Errorf("somebody still listens: %q", line)
	}
}
