package daemon_test

import (
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/daemon"
)

func TestObserve(t *testing.T) {
	home, err := sandbox.Open(t.Context(), filepath.Join(t.TempDir(), "home"), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := home.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, bad := range []string{"", "9180", "0.0.0.0:0", "[::]:0", "example.com:80", ":0"} {
		if _, _, err := daemon.Observe(t.Context(), bad, home); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%q: got %v", bad, err)
		}
	}
	at, stop, err := daemon.Observe(t.Context(), "127.0.0.1:0", home)
	if err != nil {
		t.Fatal(err)
	}
	look := func(path, want string) {
		t.Helper()
		resp, err := http.Get("http://" + at.String() + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q: %.300s", path, want, text)
		}
	}
	look("/metrics", `snapfs_events_total{kind="created"} 0`)
	if _, err := home.Create(t.Context(), sandbox.CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	look("/metrics", `snapfs_events_total{kind="created"} 1`)
	look("/debug/pprof/", "goroutine")
	if err := stop(); err != nil {
		t.Error(err)
	}
}
