package daemon_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/daemon"
)

// TestServiceSocket: a socket for one service answers that and nothing else, for who may do everything.
func TestServiceSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "t.sock")
	socket, err := daemon.ListenService(path, []string{"/t/"})
	if err != nil {
		t.Fatal(err)
	}
	d := serving(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "served") }, func(o *daemon.Options) {
		o.Services = append(o.Services, daemon.Service{Pattern: "/other/", Handler: o.Services[0].Handler})
		o.Socket = socket
	})
	if fi, err := os.Lstat(path); err != nil || fi.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", path)
	}}}
	for _, tc := range []struct {
		client *http.Client
		path   string
		status int
		want   string
	}{
		{c, "/t/x", 200, "served"},
		{c, "/other/x", 404, "nothing at this path"},
		{c, "/v1/info", 404, "nothing at this path"},
		{c, "/t/../v1/info", 404, "nothing at this path"},
		{overSocket(d), "/other/x", 200, "served"},
		{overSocket(d), "/t/x", 200, "served"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://snapfs"+tc.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tc.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != tc.status || !strings.Contains(string(body), tc.want) {
			t.Errorf("%s: %d %s, %v, want %d %s", tc.path, resp.StatusCode, body, err, tc.status, tc.want)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket after the end: %v", err)
	}
}

// TestServiceSocketPlace: a socket takes the place of one that nobody serves, and of nothing else.
func TestServiceSocketPlace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "t.sock")
	first, err := daemon.ListenService(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := daemon.ListenService(path, nil); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("where another one is: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	next, err := daemon.ListenService(path, nil)
	if err != nil {
		t.Fatalf("where a dead one is: %v", err)
	}
	if err := errors.Join(next.Close(), next.Close(), (*daemon.ServiceSocket)(nil).Close()); err != nil {
		t.Error(err)
	}
	if next, err = daemon.ListenService(path, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".mine"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(path, nil, 0o600), next.Close(), os.Remove(path+".mine")); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]error{
		path: sandbox.ErrConflict, "t.sock": sandbox.ErrInvalid, filepath.Join(path, "t.sock"): sandbox.ErrUnavailable,
		filepath.Join(dir, strings.Repeat("x", 108)): sandbox.ErrInvalid,
	} {
		if _, err := daemon.ListenService(at, nil); !errors.Is(err, want) {
			t.Errorf("%s: %v", at, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}
