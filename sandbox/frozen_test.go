package sandbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"snapfs/sandbox"
)

// TestFrozenLeft takes a copy of the home, as a killed process leaves it, at every point of the calls that freeze and
// thaw processes: who opens it thaws them, unless the workspace is paused.
func TestFrozenLeft(t *testing.T) {
	dir := t.TempDir()
	group, home := filepath.Join(dir, "group"), filepath.Join(dir, "home")
	control := filepath.Join(group, "cgroup.freeze")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}
	if err := os.Mkdir(group, 0o700); err != nil {
		t.Fatal(err)
	}
	write(control, "0")
	write(filepath.Join(group, "cgroup.events"), "populated 1\nfrozen 1\n")

	var mu sync.Mutex
	looking, looks, frozen := "", 0, 0
	look := func(point string) {
		mu.Lock()
		defer mu.Unlock()
		if looking == "" || point == "entry appended" || point == "transaction begun" { // as before the call
			return
		}
		looks++
		before, err := os.ReadFile(control)
		if err != nil {
			t.Error(err)
		}
		if string(before) == "1" {
			frozen++
		}
		copied := filepath.Join(dir, fmt.Sprint("copy", looks))
		if err := shell(t.Context(), `cp -a "$1" "$2"`, home, copied); err != nil {
			t.Error(err)
			return
		}
		h, err := sandbox.Open(t.Context(), copied, sandbox.Options{})
		if err != nil {
			t.Errorf("%s: %s: %v", looking, point, err)
			return
		}
		o, err := h.Show(t.Context(), sandbox.RefRequest{Ref: "w"})
		after, rerr := os.ReadFile(control)
		if err != nil || rerr != nil || string(after) != "0" && !o.Workspace.Paused {
			t.Errorf("%s: %s: the group has %q after a crash, %v, %v", looking, point, after, err, rerr)
		}
		if o.Workspace.Paused && string(after) != string(before) {
			t.Errorf("%s: %s: the group of a paused workspace had %q, and has %q", looking, point, before, after)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		write(control, string(before))
	}
	h := openHome(t, home, sandbox.WithPoints(sandbox.Options{}, func(point string) {
		done := make(chan struct{})
		go func() { // it opens another home, and this goroutine holds locks of the first
			defer close(done)
			look(point)
		}()
		<-done
	}))
	if _, err := h.Create(t.Context(), sandbox.CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	// Nothing goes on in the background later: nothing changes.
	if _, err := h.Snapshot(t.Context(), sandbox.SnapshotRequest{Workspace: "w", WaitStored: true}); err != nil {
		t.Fatal(err)
	}
	if err := h.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, call := range []struct {
		name string
		run  func() error
	}{
		{"consistent snapshot", func() error {
			_, err := h.Snapshot(t.Context(), sandbox.SnapshotRequest{Workspace: "w", Consistent: true, Cgroup: group})
			return err
		}},
		{"pause", func() error {
			_, err := h.Pause(t.Context(), sandbox.PauseRequest{Workspace: "w", Cgroup: group})
			return err
		}},
		{"resume", func() error {
			_, err := h.Resume(t.Context(), sandbox.RefRequest{Ref: "w"})
			return err
		}},
		{"pause again", func() error {
			_, err := h.Pause(t.Context(), sandbox.PauseRequest{Workspace: "w"})
			return err
		}},
	} {
		set := func(name string) {
			mu.Lock()
			defer mu.Unlock()
			looking = name
		}
		set(call.name)
		err := call.run()
		set("")
		if err != nil {
			t.Fatalf("%s: %v", call.name, err)
		}
	}
	if frozen < 4 {
		t.Errorf("%d looks, %d of them while the processes were frozen", looks, frozen)
	}
	if _, err := h.Destroy(t.Context(), sandbox.DestroyRequest{Ref: "w", Now: true}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(control); err != nil || string(text) != "0" {
		t.Errorf("destroyed while paused: the group has %q, %v", text, err)
	}
}
