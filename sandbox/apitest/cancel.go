package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"time"

	"snapfs/internal/testseed"
	"snapfs/sandbox"
)

// kept is how many empty uppers a home keeps ready for the next call once it was asked for one.
const kept = 4

// state is all that a home shows of itself: records, log and uppers.
func (e *env) state() string {
	e.Helper()
	var b strings.Builder
	add := func(v any) {
		text, err := json.Marshal(v)
		if err != nil {
			e.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", text)
	}
	add(must[sandbox.WorkspacePage](e)(e.api.Workspaces(e.Context(), sandbox.ListRequest{})))
	add(must[sandbox.SnapshotPage](e)(e.api.Snapshots(e.Context(), sandbox.ListRequest{})))
	if err := e.api.Events(e.Context(), sandbox.EventsRequest{}, func(ev sandbox.Event) error { add(ev); return nil }); err != nil {
		e.Fatal(err)
	}
	uppers, err := os.ReadDir(filepath.Join(e.home, "uppers"))
	if err != nil {
		e.Fatal(err)
	}
	for _, u := range uppers {
		fmt.Fprintln(&b, u.Name())
	}
	return b.String()
}

// testCancelled makes every call of the API with a context that has ended: none starts anything.
func testCancelled(e *env) {
	at := e.up("w")
	e.sh(`echo x > "$1/f"`, at)
	s := e.stored("w", "s")
	e.create("v", "")
	src := e.mkdir("src")
	file := filepath.Join(e.dir, "x.sqsh")
	e.eventually("the janitor is done", func() bool {
		left, err := os.ReadDir(filepath.Join(e.home, "uppers"))
		return err == nil && len(left) == 2
	})
	before := e.state()
	api := e.api
	w := sandbox.RefRequest{Ref: "w"}
	calls := map[string]func(ctx context.Context) error{
		"Create": func(ctx context.Context) error {
			_, err := api.Create(ctx, sandbox.CreateRequest{Name: "x", Source: src})
			return err
		},
		"Up": func(ctx context.Context) error {
			_, err := api.Up(ctx, sandbox.UpRequest{CreateRequest: sandbox.CreateRequest{Name: "x"}})
			return err
		},
		"Mount": func(ctx context.Context) error {
			_, err := api.Mount(ctx, sandbox.MountRequest{Workspace: "v", Mountpoint: src})
			return err
		},
		"Unmount": func(ctx context.Context) error {
			_, err := api.Unmount(ctx, sandbox.UnmountRequest{Workspace: "w", Force: true})
			return err
		},
		"Snapshot": func(ctx context.Context) error {
			_, err := api.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w"})
			return err
		},
		"Restore": func(ctx context.Context) error {
			_, err := api.Restore(ctx, sandbox.RestoreRequest{Snapshot: s.ID})
			return err
		},
		"Branch": func(ctx context.Context) error {
			_, err := api.Branch(ctx, sandbox.RestoreRequest{Snapshot: s.ID, Mountpoint: src + "/new", MakeMountpoint: true})
			return err
		},
		"Fork": func(ctx context.Context) error {
			_, err := api.Fork(ctx, sandbox.ForkRequest{Workspace: "w"})
			return err
		},
		"Rollback": func(ctx context.Context) error {
			_, err := api.Rollback(ctx, sandbox.RollbackRequest{Workspace: "w", Snapshot: "s"})
			return err
		},
		"Turn": func(ctx context.Context) error {
			_, err := api.Turn(ctx, sandbox.TurnRequest{Workspace: "w"})
			return err
		},
		"Turns": func(ctx context.Context) error {
			_, err := api.Turns(ctx, sandbox.TurnsRequest{Workspace: "w", Stat: true})
			return err
		},
		"Undo": func(ctx context.Context) error {
			_, err := api.Undo(ctx, sandbox.UndoRequest{Workspace: "w"})
			return err
		},
		"Redo": func(ctx context.Context) error {
			_, err := api.Redo(ctx, sandbox.UndoRequest{Workspace: "w"})
			return err
		},
		"Apply": func(ctx context.Context) error {
			_, err := api.Apply(ctx, sandbox.ApplyRequest{From: "w", To: "v", Base: s.ID})
			return err
		},
		"Base": func(ctx context.Context) error {
			_, err := api.Base(ctx, sandbox.BaseRequest{Of: []string{"w", "v"}})
			return err
		},
		"Conflicts": func(ctx context.Context) error {
			_, err := api.Conflicts(ctx, sandbox.ConflictsRequest{Base: s.ID, A: "w", B: "v"})
			return err
		},
		"Reads": func(ctx context.Context) error {
			_, err := api.Reads(ctx, w, func(sandbox.Read) error { return nil })
			return err
		},
		"Pause": func(ctx context.Context) error {
			_, err := api.Pause(ctx, sandbox.PauseRequest{Workspace: "w"})
			return err
		},
		"Resume":     func(ctx context.Context) error { _, err := api.Resume(ctx, w); return err },
		"Workspaces": func(ctx context.Context) error { _, err := api.Workspaces(ctx, sandbox.ListRequest{}); return err },
		"Snapshots":  func(ctx context.Context) error { _, err := api.Snapshots(ctx, sandbox.ListRequest{}); return err },
		"Show":       func(ctx context.Context) error { _, err := api.Show(ctx, w); return err },
		"Rename": func(ctx context.Context) error {
			_, err := api.Rename(ctx, sandbox.RenameRequest{Ref: "w", Name: "renamed"})
			return err
		},
		"Label": func(ctx context.Context) error {
			_, err := api.Label(ctx, sandbox.LabelRequest{Workspace: "w", Put: sandbox.Labels{"a": "b"}})
			return err
		},
		"Locate": func(ctx context.Context) error {
			_, err := api.Locate(ctx, sandbox.LocateRequest{Path: "/"})
			return err
		},
		"Diff": func(ctx context.Context) error {
			return api.Diff(ctx, sandbox.DiffRequest{A: "w", Patch: true}, func(sandbox.Change) error { return nil })
		},
		"Files": func(ctx context.Context) error {
			return api.Files(ctx, sandbox.FilesRequest{Ref: "w"}, func(sandbox.File) error { return nil })
		},
		"ReadFile": func(ctx context.Context) error {
			_, err := api.ReadFile(ctx, sandbox.FilesRequest{Ref: "w", Path: "f"}, io.Discard)
			return err
		},
		"CreateToken": func(ctx context.Context) error {
			_, err := api.CreateToken(ctx, sandbox.TokenRequest{})
			return err
		},
		"Tokens":      func(ctx context.Context) error { _, err := api.Tokens(ctx, sandbox.ListRequest{}); return err },
		"RevokeToken": func(ctx context.Context) error { return api.RevokeToken(ctx, sandbox.RefRequest{Ref: s.ID}) },
		"Delete":      func(ctx context.Context) error { return api.Delete(ctx, sandbox.RefRequest{Ref: s.ID}) },
		"Destroy": func(ctx context.Context) error {
			_, err := api.Destroy(ctx, sandbox.DestroyRequest{Ref: "v"})
			return err
		},
		"Export": func(ctx context.Context) error {
			_, err := api.Export(ctx, sandbox.ExportRequest{Snapshot: s.ID, Path: file})
			return err
		},
		"Extract": func(ctx context.Context) error {
			_, err := api.Extract(ctx, sandbox.ExtractRequest{Snapshot: s.ID, Path: file})
			return err
		},
		"Stats": func(ctx context.Context) error { _, err := api.Stats(ctx, sandbox.StatsRequest{}); return err },
		"Prune": func(ctx context.Context) error {
			_, err := api.Prune(ctx, sandbox.PruneRequest{OlderThan: time.Nanosecond})
			return err
		},
		"Events": func(ctx context.Context) error {
			return api.Events(ctx, sandbox.EventsRequest{}, func(sandbox.Event) error { return nil })
		},
		"SetQuota": func(ctx context.Context) error {
			size := int64(1 << 20)
			_, err := api.SetQuota(ctx, sandbox.QuotaRequest{Workspace: "w", Size: &size})
			return err
		},
		"GC": func(ctx context.Context) error { _, err := api.GC(ctx, sandbox.GCRequest{Optimize: true}); return err },
		"Check": func(ctx context.Context) error {
			_, err := api.Check(ctx, sandbox.CheckRequest{Repair: true})
			return err
		},
	}
	maps.Copy(calls, fileCalls(api))
	maps.Copy(calls, documentCalls(api))
	for m := range reflect.TypeFor[sandbox.API]().Methods() {
		if m.Name != "Close" && calls[m.Name] == nil {
			e.Errorf("%s is not tried", m.Name)
		}
	}
	ctx, cancel := context.WithCancel(e.Context())
	cancel()
	for name, call := range calls {
		if err := call(ctx); !errors.Is(err, context.Canceled) {
			e.Errorf("%s with a cancelled context: got %v", name, err)
		}
	}
	equal(e, "the home", e.state(), before)
	equal(e, "files made", e.sh(`ls -A "$1"; ls -A "$2" | grep sqsh || :`, src, e.dir), "")
}

// testCancelledMidway interrupts calls at random times: what a call says is what has happened, and nothing is left of
// what was not.
func testCancelledMidway(e *env) {
	seed := testseed.Of(e)
	r := rand.New(rand.NewPCG(seed, 1))
	src := e.mkdir("src")
	e.sh(`for i in 1 2 3 4 5 6 7 8; do head -c 500000 /dev/urandom > "$1/$i"; done`, src)
	at := e.up("w")
	e.sh(`cp "$2"/1 "$1/f"`, at, src)
	base := e.stored("w", "base")
	e.create("v", "")
	place := filepath.Join(e.dir, "place")
	workspaces := func() int {
		return len(must[sandbox.WorkspacePage](e)(e.api.Workspaces(e.Context(), sandbox.ListRequest{})).Workspaces)
	}
	snapshots := func() int {
		return len(must[sandbox.SnapshotPage](e)(e.api.Snapshots(e.Context(), sandbox.ListRequest{})).Snapshots)
	}
	destroy := func(name string) {
		e.Helper()
		if e.show(name).State != sandbox.Unmounted {
			e.unmount(name)
		}
		if _, err := e.api.Destroy(e.Context(), sandbox.DestroyRequest{Ref: name, Now: true}); err != nil {
			e.Error(err)
		}
	}
	// derived is a call that makes a workspace, mounted at place.
	derived := func(w sandbox.Workspace, err error, before int) {
		e.Helper()
		made := 0
		if err == nil {
			made = 1
		}
		equal(e, "workspaces made", workspaces()-before, made)
		if err == nil {
			destroy(w.ID)
			e.sh(`rmdir "$1"`, place)
		}
		equal(e, "the mountpoint is there", e.sh(`test ! -e "$1" || echo yes`, place), "")
	}
	calls := []struct {
		name string
		call func(ctx context.Context) error // the error of the interrupted call; everything else it checks itself
	}{
		{"create", func(ctx context.Context) error {
			w, err := e.api.Create(ctx, sandbox.CreateRequest{Name: "c", Source: src})
			_, showErr := e.api.Show(e.Context(), sandbox.RefRequest{Ref: "c"})
			equal(e, "created", showErr == nil, err == nil)
			if err == nil {
				destroy(w.ID)
			}
			return err
		}},
		{"branch", func(ctx context.Context) error {
			before := workspaces()
			w, err := e.api.Branch(ctx, sandbox.RestoreRequest{Snapshot: base.ID, Mountpoint: place, MakeMountpoint: true})
			derived(w, err, before)
			return err
		}},
		{"fork", func(ctx context.Context) error {
			e.sh(`echo "$2" >> "$1/forked"`, at, "x")
			before := workspaces()
			w, err := e.api.Fork(ctx, sandbox.ForkRequest{Workspace: "w", Mountpoint: place, MakeMountpoint: true})
			derived(w, err, before)
			return err
		}},
		{"snapshot", func(ctx context.Context) error {
			e.sh(`echo y >> "$1/y"`, at)
			before := snapshots()
			_, err := e.api.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", WaitStored: true})
			equal(e, "snapshot taken", snapshots()-before == 1, err == nil)
			return err
		}},
		{"rollback", func(ctx context.Context) error {
			e.snapshot("w", "")
			_, err := e.api.Rollback(ctx, sandbox.RollbackRequest{Workspace: "w", Snapshot: base.ID})
			equal(e, "rolled back", e.show("w").Head == base.ID, err == nil)
			return err
		}},
		{"mount", func(ctx context.Context) error {
			_, err := e.api.Mount(ctx, sandbox.MountRequest{Workspace: "v", Mountpoint: place, MakeMountpoint: true})
			equal(e, "mounted", e.show("v").State == sandbox.Mounted, err == nil)
			if err == nil {
				e.unmount("v")
				e.sh(`rmdir "$1"`, place)
			}
			equal(e, "the mountpoint is there", e.sh(`test ! -e "$1" || echo yes`, place), "")
			return err
		}},
		{"pause", func(ctx context.Context) error {
			_, err := e.api.Pause(ctx, sandbox.PauseRequest{Workspace: "v"})
			equal(e, "paused", e.show("v").Paused, err == nil)
			if err == nil {
				must[sandbox.Workspace](e)(e.api.Resume(e.Context(), sandbox.RefRequest{Ref: "v"}))
			}
			return err
		}},
		{"export", func(ctx context.Context) error {
			file := filepath.Join(e.dir, "x.sqsh")
			_, err := e.api.Export(ctx, sandbox.ExportRequest{Snapshot: base.ID, Path: file})
			equal(e, "files of an export", e.sh(`ls -A "$1" | grep -c sqsh || :`, e.dir) == "1", err == nil)
			_ = os.Remove(file)
			return err
		}},
		{"extract", func(ctx context.Context) error {
			// What an interrupted call leaves, the next one completes.
			dir := filepath.Join(e.dir, "extracted")
			_, err := e.api.Extract(ctx, sandbox.ExtractRequest{Snapshot: base.ID, Path: dir, NoSync: true})
			if err != nil {
				must[sandbox.ExtractResult](e)(e.api.Extract(e.Context(), sandbox.ExtractRequest{
					Snapshot: base.ID, Path: dir, NoSync: true,
				}))
			}
			e.sh(`cmp "$1/f" "$2/1"; test ! -e "$1/.snapfs-restore"; rm -r "$1"`, dir, src)
			return err
		}},
		{"delete", func(ctx context.Context) error {
			s := e.snapshot("v", "")
			err := e.api.Delete(ctx, sandbox.RefRequest{Ref: s.ID})
			_, showErr := e.api.Show(e.Context(), sandbox.RefRequest{Ref: s.ID})
			equal(e, "deleted", showErr != nil, err == nil)
			return err
		}},
		{"destroy", func(ctx context.Context) error {
			e.create("d", "")
			_, err := e.api.Destroy(ctx, sandbox.DestroyRequest{Ref: "d", Now: true})
			_, showErr := e.api.Show(e.Context(), sandbox.RefRequest{Ref: "d"})
			equal(e, "destroyed", showErr != nil, err == nil)
			if err != nil {
				destroy("d")
			}
			return err
		}},
		{"gc", func(ctx context.Context) error { _, err := e.api.GC(ctx, sandbox.GCRequest{}); return err }},
		{"check", func(ctx context.Context) error {
			_, err := e.api.Check(ctx, sandbox.CheckRequest{ReadData: true})
			return err
		}},
		{"diff", func(ctx context.Context) error {
			return e.api.Diff(ctx, sandbox.DiffRequest{A: base.ID, B: "w", Patch: true, Binary: true}, func(sandbox.Change) error { return nil })
		}},
	}
	goroutines := runtime.NumGoroutine()
	rounds := 5
	if os.Getenv("SNAPFS_LONG") != "" {
		rounds = 100
	}
	interrupted := 0
	for range rounds {
		for _, c := range calls {
			after := time.Duration(r.Int64N(int64(12 * time.Millisecond)))
			ctx, cancel := context.WithTimeout(e.Context(), after)
			err := c.call(ctx)
			cancel()
			if err != nil {
				interrupted++
			}
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				e.Errorf("%s, interrupted after %s: got %v", c.name, after, err)
			}
			if e.Failed() {
				e.Fatalf("seed %d: %s, interrupted after %s", seed, c.name, after)
			}
		}
	}
	e.Logf("%d of %d calls were interrupted", interrupted, rounds*len(calls))
	e.stored("w", "")
	e.stored("v", "")
	must[sandbox.GCResult](e)(e.api.GC(e.Context(), sandbox.GCRequest{}))
	res := must[sandbox.CheckResult](e)(e.api.Check(e.Context(), sandbox.CheckRequest{ReadData: true}))
	for _, p := range res.Problems {
		e.Errorf("problem: %+v", p)
	}
	e.eventually("only the uppers of the two workspaces are left, and those that are kept ready", func() bool {
		left, err := os.ReadDir(filepath.Join(e.home, "uppers"))
		return err == nil && len(left) == 2+kept
	})
	e.eventually("no goroutine is left", func() bool { return runtime.NumGoroutine() < goroutines+rounds*2 })
}
