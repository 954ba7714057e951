package sandbox_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"snapfs/sandbox"
)

// TestDamage overwrites stored bytes: Check names the snapshots that are hit, they are refused or incomplete but never
// wrong, the others are whole, and the home goes on.
func TestDamage(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	home, at := filepath.Join(dir, "home"), filepath.Join(dir, "m")
	h := openHome(t, home, sandbox.Options{})
	export := func(id string) (string, error) {
		r, err := h.Export(ctx, sandbox.ExportRequest{Snapshot: id, Path: filepath.Join(dir, "image")})
		return r.Digest, err
	}
	type taken struct{ id, digest string }
	var all []taken
	var middle []byte  // of the third file
	for i := range 6 { // each in a workspace of its own, of bytes of its own
		name := fmt.Sprint("w", i)
		if err := shell(ctx, `rm -rf "$1"; mkdir -p "$1/d"; head -c 600000 /dev/urandom > "$1/d/f"; seq 3000 > "$1/same"`, filepath.Join(dir, "src")); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			text, err := os.ReadFile(filepath.Join(dir, "src/d/f"))
			if err != nil {
				t.Fatal(err)
			}
			middle = text[300_000:300_064]
		}
		if _, err := h.Create(ctx, sandbox.CreateRequest{Name: name, Source: filepath.Join(dir, "src")}); err != nil {
			t.Fatal(err)
		}
		s, err := h.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: name, WaitStored: true})
		if err != nil {
			t.Fatal(err)
		}
		digest, err := export(s.ID)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, taken{s.ID, digest})
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	packs, err := filepath.Glob(filepath.Join(home, "store/packs/*.pack"))
	if err != nil {
		t.Fatal(err)
	}
	// In the middle of a file: no chunk reaches from there to the image's tables.
	var hurt string
	place := -1
	for _, path := range packs {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if place = bytes.Index(whole, middle); place >= 0 {
			hurt = path
			break
		}
	}
	f, err := os.OpenFile(hurt, os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("the bytes of the third file are not in the packs: %v", err)
	}
	_, err = f.WriteAt([]byte("damaged"), int64(place))
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}

	h = openHome(t, home, sandbox.Options{})
	res, err := h.Check(ctx, sandbox.CheckRequest{ReadData: true})
	if err != nil || len(res.Problems) == 0 {
		t.Fatalf("check: %+v, %v", res, err)
	}
	var hit []string
	for _, p := range res.Problems {
		hit = append(hit, p.Snapshots...)
	}
	bad := 0
	for i, s := range all {
		digest, err := export(s.id)
		switch {
		case err == nil && digest != s.digest:
			t.Errorf("snapshot %d has other contents, and no error", i)
		case err == nil && slices.Contains(hit, s.id):
			t.Errorf("snapshot %d is whole, but check says it is hit", i)
		case err != nil && (!errors.Is(err, sandbox.ErrCorrupt) || !slices.Contains(hit, s.id)):
			t.Errorf("snapshot %d: %v; check says that these are hit: %v", i, err, hit)
		case err != nil:
			bad++
			// What is whole in it can still be read, the rest is an error of input and output.
			w, err := h.Restore(ctx, sandbox.RestoreRequest{Snapshot: s.id, Mountpoint: at, MakeMountpoint: true})
			if err != nil {
				t.Errorf("restore of snapshot %d: %v", i, err)
				continue
			}
			if err := shell(ctx, `test "$(tail -n 1 "$1/same")" = 3000; ! cat "$1/d/f" > /dev/null 2> "$2"; grep -q -i "input/output error" "$2"`,
				at, filepath.Join(dir, "said")); err != nil {
				t.Error(err)
			}
			if err := unmount(ctx, h, w.ID); err != nil {
				t.Error(err)
			}
		}
	}
	if bad != 1 {
		t.Errorf("%d of six snapshots are hit by one place", bad)
	}
	// Everything else goes on, collections included, and what is not hit stays whole.
	if _, err := h.Create(ctx, sandbox.CreateRequest{Name: "after", Source: filepath.Join(dir, "src")}); err != nil {
		t.Error(err)
	}
	if _, err := h.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "after", WaitStored: true}); err != nil {
		t.Error(err)
	}
	for _, s := range all {
		if slices.Contains(hit, s.id) {
			if err := h.Delete(ctx, sandbox.RefRequest{Ref: s.id}); err != nil {
				t.Error(err)
			}
		}
	}
	workspaces, err := h.Workspaces(ctx, sandbox.ListRequest{})
	if err != nil {
		t.Error(err)
	}
	for _, w := range workspaces.Workspaces {
		if w.ID != "after" {
			if _, err := h.Destroy(ctx, sandbox.DestroyRequest{Ref: w.ID, Now: true}); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := h.GC(ctx, sandbox.GCRequest{}); err != nil {
		t.Errorf("collecting: %v", err)
	}
	for i, s := range all {
		if digest, err := export(s.id); !slices.Contains(hit, s.id) && (err != nil || digest != s.digest) {
			t.Errorf("snapshot %d after the collection: %v", i, err)
		}
	}
	if res, err := h.Check(ctx, sandbox.CheckRequest{ReadData: true}); err != nil || len(res.Problems) > 0 {
		t.Errorf("check when what was hit is gone: %+v, %v", res, err)
	}
}
