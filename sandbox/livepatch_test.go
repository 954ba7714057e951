package sandbox

import (
	"errors"
	"strings"
	"testing"
)

// TestPatchOfLiving changes files of a workspace while a patch of it is made, after it was decided what the patch can have.
func TestPatchOfLiving(t *testing.T) {
	y := newHistory(t)
	y.sh(`for f in a b c; do echo $f > $M/$f; done`)
	if _, err := y.h.Snapshot(t.Context(), SnapshotRequest{Workspace: "w"}); err != nil {
		t.Fatal(err)
	}
	patch := func(meanwhile string) (string, error) {
		y.sh(`echo new > $M/a; echo new > $M/b; rm -f $M/c; echo c > $M/c`)
		var text strings.Builder
		err := y.h.Diff(t.Context(), DiffRequest{A: "w", Patch: true, Binary: true}, func(c Change) error {
			if c.Path == "a" {
				y.sh(meanwhile)
			}
			text.Write(c.Patch)
			return nil
		})
		return text.String(), err
	}
	if got, err := patch(`printf 'b\0\n' > $M/b`); !errors.Is(err, ErrConflict) || strings.Contains(got, "binary") {
		t.Errorf("%v\n%s", err, got)
	}
	if got, err := patch(`echo b > $M/b`); err != nil || strings.Contains(got, "a/b") || !strings.Contains(got, "+new") {
		t.Errorf("%v\n%s", err, got)
	}
}

// TestSnapshotPath: PATH:NAME is the snapshot also if the path is in a mount, where this process cannot look.
func TestSnapshotPath(t *testing.T) {
	y := newHistory(t)
	s, err := y.h.Snapshot(t.Context(), SnapshotRequest{Workspace: "w", Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]string{
		y.at: "w", y.at + "/base": "w", y.at + ":s": s.ID, y.at + "/base:s": s.ID, y.at + "/base:" + s.ID: s.ID,
	} {
		o, err := y.h.Show(t.Context(), RefRequest{Ref: ref})
		got := ""
		if o.Workspace != nil {
			got = o.Workspace.ID
		} else if o.Snapshot != nil {
			got = o.Snapshot.ID
		}
		if got != want || err != nil {
			t.Errorf("%s: %s, %v, want %s", ref, got, err, want)
		}
	}
	if o, err := y.h.Show(t.Context(), RefRequest{Ref: y.at + "/base:none"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("%+v, %v", o, err)
	}
	changes := 0
	y.sh(`echo x > $M/x`)
	err = y.h.Diff(t.Context(), DiffRequest{A: y.at + "/base:s", B: y.at + "/base"}, func(Change) error { changes++; return nil })
	if err != nil || changes != 1 {
		t.Errorf("%d changes, %v", changes, err)
	}
}
