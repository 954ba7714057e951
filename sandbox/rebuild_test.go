package sandbox_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"snapfs/internal/testseed"
	"snapfs/sandbox"
)

// TestRebuildMarker damages the marker of a home, one byte at a time and as a whole. Open refuses it and names the
// command, or does not need the byte; rebuilding mends it. A home of a later version is refused by both.
func TestRebuildMarker(t *testing.T) {
	dir := makeHome(t)
	path := filepath.Join(dir, "snapfs-home")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The marker may be lost when a daemon has left its files.
	for _, name := range []string{"daemon.log", "daemon.sock"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(testseed.Of(t), 1))
	bad := map[string][]byte{"empty": {}, "cut": good[:len(good)/2], "another": []byte("something else\n"), "missing": nil}
	for range 6 {
		b := []byte(string(good))
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		bad[string(b)] = b
	}
	for _, digit := range "0379" {
		b := strings.Replace(string(good), `"version":1`, `"version":`+string(digit), 1)
		bad[b] = []byte(b)
	}
	for what, b := range bad {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if b != nil {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, o := range []sandbox.Options{{}, {MustExist: true}} {
			if h, err := sandbox.Open(t.Context(), dir, o); err == nil {
				if err := h.Close(); err != nil {
					t.Fatal(err)
				}
			} else if !errors.Is(err, sandbox.ErrCorrupt) || !strings.Contains(err.Error(), "check --rebuild-index") {
				t.Errorf("%q: got %v, want corrupt and the command", what, err)
			}
		}
		if _, err := sandbox.RebuildIndex(t.Context(), dir, sandbox.RebuildRequest{}); err != nil {
			t.Fatalf("%q: rebuild: %v", what, err)
		}
		h := openHome(t, dir, sandbox.Options{MustExist: true})
		if _, err := h.Show(t.Context(), sandbox.RefRequest{Ref: "w"}); err != nil {
			t.Error(err)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != string(good) {
			t.Errorf("%q: became %q, %v", what, now, err)
		}
	}

	later := "snapfs home\n{\"version\":2,\"id\":\"x\"}\n"
	if err := os.WriteFile(path, []byte(later), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, dir, sandbox.ErrInvalid, "version 2")
	if _, err := sandbox.RebuildIndex(t.Context(), dir, sandbox.RebuildRequest{}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a later version is rebuilt: %v", err)
	}
	foreign := t.TempDir()
	if _, err := sandbox.RebuildIndex(t.Context(), foreign, sandbox.RebuildRequest{}); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("not a home: got %v", err)
	}
}
