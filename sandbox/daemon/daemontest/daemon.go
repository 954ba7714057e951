package daemontest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"snapfs/sandbox"
	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/client"
	"snapfs/sandbox/daemon"
)

// Daemon is a daemon of a home of its own, which ends with the test. It serves its socket, for Client, and URL.
type Daemon struct {
	*client.Client
	Home *sandbox.Home
	Dir  string // of the home
	URL  string // without a slash at the end

	cancel context.CancelFunc
	served chan error
}

// Start starts a daemon; set, unless it is nil, may change its options, such as Services.
func Start(t testing.TB, set func(*daemon.Options)) *Daemon {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "home")
	home, err := sandbox.Open(t.Context(), dir, sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return Serve(t, dir, home, set)
}

// Serve is Start for a home that is open, and that the daemon closes.
func Serve(t testing.TB, dir string, home *sandbox.Home, set func(*daemon.Options)) *Daemon {
	t.Helper()
	n, err := daemon.ListenNetwork(t.Context(), daemon.NetworkOptions{Addresses: []string{"0"}})
	if err != nil {
		t.Fatal(err)
	}
	o := daemon.Options{Dir: dir, Version: "v1-of-tests", Home: home, Network: n}
	if set != nil {
		set(&o)
	}
	ctx, cancel := context.WithCancel(context.Background()) // not the test's: that ends before the clean-ups
	d := &Daemon{Home: home, Dir: dir, URL: n.URLs()[0], cancel: cancel, served: make(chan error, 1)}
	go func() { d.served <- daemon.Serve(ctx, o) }()
	for end := time.Now().Add(time.Minute); d.Client == nil; time.Sleep(time.Millisecond) {
		if d.Client, err = client.Dial(t.Context(), dir); err != nil && time.Now().After(end) {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("the end of the daemon: %v", err)
		}
	})
	return d
}

// Close ends the daemon and waits for it. Idempotent.
func (d *Daemon) Close() error {
	d.cancel()
	err := errors.Join(<-d.served, d.Client.Close())
	d.served <- nil
	return err
}

// Token makes a token for a session, of some scopes or of all.
func (d *Daemon) Token(t testing.TB, session string, scopes ...sandbox.Scope) sandbox.NewToken {
	t.Helper()
	made, err := d.CreateToken(t.Context(), sandbox.TokenRequest{Access: sandbox.Access{Session: session}, Scopes: scopes})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// Reply is an answer.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// Error is the error in an answer of the daemon's own form, nil for none.
func (r Reply) Error(t testing.TB) *wire.Error {
	t.Helper()
	var f wire.Frame
	if err := json.Unmarshal(r.Body, &f); err != nil {
		t.Errorf("%q is no JSON: %v", r.Body, err)
	}
	return f.Error
}

// Do makes a request with the secret of a token, "" for none. The body is nil, a reader, a text, or what is sent as JSON.
// headers are names and values.
func (d *Daemon) Do(t testing.TB, method, path, secret string, body any, headers ...string) Reply {
	t.Helper()
	var send io.Reader
	switch b := body.(type) {
	case nil:
	case io.Reader:
		send = b
	case string:
		send = bytes.NewBufferString(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		send = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, d.URL+path, send)
	if err != nil {
		t.Fatal(err)
	}
	if secret != "" {
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return Reply{resp.StatusCode, resp.Header, text}
}

// Call makes a call of package wire.
func (d *Daemon) Call(t testing.TB, name, secret string, request any) Reply {
	t.Helper()
	return d.Do(t, http.MethodPost, wire.Route(name), secret, request)
}
