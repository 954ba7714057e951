package sandbox_test

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"snapfs/sandbox"
)

// TestHomeSize: a home at its limit freezes nothing more, and a collection deletes the oldest snapshots without a name
// until it is below, and no others.
func TestHomeSize(t *testing.T) {
	const piece, limit, most = 4 << 20, 25 << 20, 17 << 20
	dir := t.TempDir()
	h := openHome(t, filepath.Join(dir, "home"), sandbox.Options{Limits: sandbox.Limits{Home: limit}})
	var all []string
	var refused error
	for n := 0; n < 20 && refused == nil; n++ {
		// Each has data of its own, which no compression makes less.
		src := filepath.Join(dir, "src")
		data := make([]byte, piece)
		_, _ = rand.Read(data) // never fails
		if err := errors.Join(os.MkdirAll(src, 0o755), os.WriteFile(filepath.Join(src, "f"), data, 0o644)); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Create(t.Context(), sandbox.CreateRequest{Name: "w", Source: src}); err != nil {
			t.Fatal(err)
		}
		name := ""
		if n == 0 {
			name = "named"
		}
		s, err := h.Snapshot(t.Context(), sandbox.SnapshotRequest{Workspace: "w", Name: name, WaitStored: true})
		if refused = err; err == nil {
			all = append(all, s.ID)
		}
		if _, err := h.Destroy(t.Context(), sandbox.DestroyRequest{Ref: "w", Now: true}); err != nil {
			t.Fatal(err)
		}
	}
	if !errors.Is(refused, sandbox.ErrConflict) || !strings.Contains(refused.Error(), "gc --max-size") || len(all) < 3 {
		t.Fatalf("after %d snapshots: %v", len(all), refused)
	}
	if _, err := h.Create(t.Context(), sandbox.CreateRequest{Name: "stands", Source: all[1]}); err != nil {
		t.Fatal(err)
	}
	got, err := h.GC(t.Context(), sandbox.GCRequest{MaxSize: most})
	if err != nil {
		t.Fatal(err)
	}
	if got.Over || got.Size == 0 || got.Size > most || len(got.Deleted) == 0 || len(got.Deleted) > len(all)-2 {
		t.Errorf("%d of %d deleted, %d bytes left, over %t", len(got.Deleted), len(all), got.Size, got.Over)
	}
	for i, s := range got.Deleted {
		if s.ID != all[i+2] {
			t.Errorf("deleted as number %d: %s, want %s", i, s.ID, all[i+2])
		}
	}
	if _, err := h.Snapshot(t.Context(), sandbox.SnapshotRequest{Workspace: "stands"}); err != nil {
		t.Errorf("below the limit: %v", err)
	}
	if got, err = h.GC(t.Context(), sandbox.GCRequest{MaxSize: 1}); err != nil || !got.Over {
		t.Errorf("%+v, %v", got, err)
	}
	for _, ref := range []string{all[0], all[1]} {
		if _, err := h.Show(t.Context(), sandbox.RefRequest{Ref: ref}); err != nil {
			t.Errorf("what has a name, or what a workspace is at: %v", err)
		}
	}
}

// TestRoomAtOnce: what a collection has freed is there for the next snapshot.
func TestRoomAtOnce(t *testing.T) {
	const piece = 8 << 20
	dir := t.TempDir()
	h := openHome(t, filepath.Join(dir, "home"), sandbox.Options{Limits: sandbox.Limits{Home: 2 * piece}})
	var ids []string
	for _, name := range []string{"a", "b", "c"} {
		src := filepath.Join(dir, name)
		data := make([]byte, piece)
		_, _ = rand.Read(data) // never fails
		if err := errors.Join(os.Mkdir(src, 0o755), os.WriteFile(filepath.Join(src, "f"), data, 0o644)); err != nil {
			t.Fatal(err)
		}
		w, err := h.Create(t.Context(), sandbox.CreateRequest{Name: name, Source: src})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, w.Head)
	}
	if _, err := h.Snapshot(t.Context(), sandbox.SnapshotRequest{Workspace: "a"}); !errors.Is(err, sandbox.ErrConflict) {
		t.Fatalf("a home over its limit: %v", err)
	}
	for i, name := range []string{"b", "c"} {
		if _, err := h.Destroy(t.Context(), sandbox.DestroyRequest{Ref: name, Now: true}); err != nil {
			t.Fatal(err)
		}
		_ = h.Delete(t.Context(), sandbox.RefRequest{Ref: ids[i+1]}) // if it has one
	}
	if _, err := h.GC(t.Context(), sandbox.GCRequest{Full: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Snapshot(t.Context(), sandbox.SnapshotRequest{Workspace: "a"}); err != nil {
		t.Errorf("after a collection: %v", err)
	}
}
