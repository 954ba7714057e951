package sandbox

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"snapfs/chunkstore"
	"snapfs/layers"
	"snapfs/sandbox/internal/catalog"
)

// history is a home with a mounted workspace whose every state is a snapshot.
type history struct {
	t       *testing.T
	dir     string
	h       *Home
	at      string // mountpoint
	ids     []string
	digests []string // of the exports of ids
	warned  warnings
}

// warnings is a log of which the warnings and errors are kept.
type warnings struct {
	mu   sync.Mutex
	list []string // guarded by mu
}

func (w *warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (w *warnings) WithAttrs([]slog.Attr) slog.Handler { return w }
func (w *warnings) WithGroup(string) slog.Handler      { return w }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	w.list = append(w.list, line)
	return nil
}

// warnings lists what the home has warned of.
func (y *history) warnings() []string {
	y.warned.mu.Lock()
	defer y.warned.mu.Unlock()
	return slices.Clone(y.warned.list)
}

// newHistory makes a home with workspace w over a base of some files.
func newHistory(t *testing.T) *history {
	t.Helper()
	work := t.TempDir()
	src := filepath.Join(work, "src")
	for i := range 20 {
		name := filepath.Join(src, fmt.Sprintf("base/%d/file", i))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(strings.Repeat(fmt.Sprintln("line", i), 2000)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	y := &history{t: t, dir: filepath.Join(work, "home"), at: filepath.Join(work, "m")}
	y.open()
	t.Cleanup(func() {
		if err := y.h.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := y.h.Create(t.Context(), CreateRequest{Name: "w", Source: src}); err != nil {
		t.Fatal(err)
	}
	y.mount()
	return y
}

func (y *history) open() {
	y.t.Helper()
	h, err := Open(y.t.Context(), y.dir, Options{Logger: slog.New(&y.warned)})
	if err != nil {
		y.t.Fatal(err)
	}
	y.h = h
}

func (y *history) mount() {
	y.t.Helper()
	if _, err := y.h.Mount(y.t.Context(), MountRequest{Workspace: "w", Mountpoint: y.at, MakeMountpoint: true}); err != nil {
		y.t.Fatal(err)
	}
}

// sh runs a script in the mount and gives what it prints: this process serves the mount and must not touch it.
func (y *history) sh(script string) string {
	y.t.Helper()
	ctx, cancel := context.WithTimeout(y.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-ec", script)
	cmd.Dir, cmd.WaitDelay = "/", time.Second
	cmd.Env = append(os.Environ(), "M="+y.at)
	out, err := cmd.CombinedOutput()
	if err != nil {
		y.t.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
}

// grow makes n states: each adds a file, changes one, removes one of the base, and moves a directory.
func (y *history) grow(n int) {
	y.t.Helper()
	for range n {
		i := len(y.ids)
		y.sh(fmt.Sprintf(`cd "$M"; echo %d > n; mkdir -p d; echo %d > d/f%d; chmod 600 base/%d/file 2>/dev/null || :; rm -f base/%d/file
			if [ -d moving%d ]; then mv moving%d moving%d; else mkdir moving%d; fi; echo x > moving%d/%d`,
			i, i, i, i%20, (i+7)%20, i-1, i-1, i, i, i, i))
		s, err := y.h.Snapshot(y.t.Context(), SnapshotRequest{Workspace: "w", WaitStored: true})
		if err != nil {
			y.t.Fatal(err)
		}
		y.ids = append(y.ids, s.ID)
		y.digests = append(y.digests, y.export(s.ID))
	}
}

func (y *history) export(id string) string {
	y.t.Helper()
	r, err := y.h.Export(y.t.Context(), ExportRequest{Snapshot: id, Path: filepath.Join(y.t.TempDir(), "image")})
	if err != nil {
		y.t.Fatal(err)
	}
	return r.Digest
}

// same compares the snapshots from number i on with what they were when they were taken, and checks the home.
func (y *history) same(i int) {
	y.t.Helper()
	for ; i < len(y.ids); i++ {
		if got := y.export(y.ids[i]); got != y.digests[i] {
			y.t.Errorf("snapshot %d has another tree", i)
		}
	}
	r, err := y.h.Check(y.t.Context(), CheckRequest{ReadData: true})
	if err != nil {
		y.t.Fatal(err)
	}
	for _, p := range r.Problems {
		y.t.Errorf("%s: %s", p.Where, p.What)
	}
}

func (y *history) collect() {
	y.t.Helper()
	if _, err := y.h.GC(y.t.Context(), GCRequest{}); err != nil {
		y.t.Fatal(err)
	}
}

// diff lists the changes between two snapshots on one line.
func (y *history) diff(a, b string) string {
	y.t.Helper()
	var lines []string
	err := y.h.Diff(y.t.Context(), DiffRequest{A: a, B: b, Parent: b == ""}, func(c Change) error {
		lines = append(lines, c.Kind+" "+c.Path)
		return nil
	})
	if err != nil {
		y.t.Fatal(err)
	}
	return strings.Join(lines, "|")
}

// TestTiers: a deep stack opens as few lowers, and shows the same.
func TestTiers(t *testing.T) {
	y := newHistory(t)
	const depth = 2*catalog.TierFan + 3
	y.grow(depth)
	y.collect() // waits for merges
	top := y.h.catalog.Snapshot(y.ids[depth-1]).Top
	forms, err := y.h.catalog.Forms(top, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(forms) > depth/2 {
		t.Errorf("%d layers open as %d forms", depth, len(forms))
	}
	span := 0
	for _, f := range forms {
		span += f.Span()
	}
	if all, err := y.h.catalog.Stack(top); err != nil || span < len(all) { // the base went into its only child later
		t.Errorf("forms stand for %d layers of %d: %v", span, len(all), err)
	}
	if d, err := y.h.describeSnapshot(y.h.catalog.Snapshot(y.ids[depth-1]), 3); err != nil || len(d.Layers) != 3 || d.Depth <= 3 || d.Layers[0].ID != top {
		t.Errorf("of its layers, three are to be told, from %s down: %+v, %v", top, d, err)
	}
	y.same(0)
	if got, want := y.diff(y.ids[10], y.ids[11]), y.diff(y.ids[11], ""); got != want || !strings.Contains(got, "A d/f11") {
		t.Errorf("got diff %q, want %q", got, want)
	}
	if got, want := y.diff(y.ids[2], y.ids[depth-1]), "M n"; !strings.Contains(got, want) || strings.Count(got, "A d/f") != depth-3 {
		t.Errorf("got diff %q", got)
	}
	before, err := y.h.Stats(t.Context(), StatsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if before.Unique > before.Stored {
		t.Errorf("got stats %+v", before)
	}
}

// TestMergeDeleted: what deleted snapshots alone showed goes, beneath a mounted workspace, too. The directory that was
// imported stays.
func TestMergeDeleted(t *testing.T) {
	y := newHistory(t)
	y.grow(catalog.TierFan + 4)
	last := len(y.ids) - 1
	for _, id := range y.ids[:last] {
		if err := y.h.Delete(t.Context(), RefRequest{Ref: id}); err != nil {
			t.Fatal(err)
		}
	}
	before := y.sh(`cd "$M"; find . -type f | sort; cat n d/f3 moving*/5`)
	y.collect()
	stack, err := y.h.catalog.Stack(y.h.catalog.Snapshot(y.ids[last]).Top)
	if err != nil || len(stack) != 2 || stack[1].Imported == "" {
		t.Errorf("got %d layers, %v", len(stack), err)
	}
	if all, err := y.h.store.Manifests(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("got %d manifests, %v", len(all), err)
	}
	y.same(last)
	if got := y.diff(y.ids[last], ""); !strings.Contains(got, "A d/f3") || !strings.Contains(got, "D base/1/") {
		t.Errorf("diff to what is left below: %q", got)
	}

	// The mount goes on over the old layers, and what is sealed in it lies on the merged one.
	if got := y.sh(`cd "$M"; find . -type f | sort; cat n d/f3 moving*/5`); got != before {
		t.Errorf("the mount shows\n%s\ninstead of\n%s", got, before)
	}
	y.grow(3)
	y.same(last)
	if err := y.h.Close(); err != nil {
		t.Fatal(err)
	}
	y.open()
	y.same(last)
	y.mount()
	y.grow(2)
	y.same(last)
}

// TestMergeInterrupted: a merged image that no record names is gone when the home is opened again.
func TestMergeInterrupted(t *testing.T) {
	y := newHistory(t)
	y.grow(3)
	s, err := y.h.cache.Open(t.Context(), y.h.catalog.Snapshot(y.ids[2]).Top)
	if err != nil {
		t.Fatal(err)
	}
	m, err := layers.Merge(t.Context(), y.h.store, s.Lowers(), 2, layers.StoreOptions{}, func(tx *chunkstore.Tx, m chunkstore.Manifest) error {
		return catalog.NoteMerge(tx, m.ID)
	})
	s.Release()
	if err != nil {
		t.Fatal(err)
	}
	y.same(0) // a merge that is under way is no problem
	if err := y.h.Close(); err != nil {
		t.Fatal(err)
	}
	y.open()
	if _, err := y.h.store.Manifest(t.Context(), m.ID); err == nil {
		t.Error("the merged image is still there")
	}
	y.same(0)
}

// A check while layers are merged does not report what the catalog has not heard of yet: the disk has the merged image
// and its record a moment before.
func TestCheckBesideMerge(t *testing.T) {
	y := newHistory(t)
	y.grow(1)
	top := y.h.catalog.Layer(y.h.catalog.Snapshot(y.ids[0]).Top)
	remove := func(records ...string) {
		t.Helper()
		err := y.h.store.Update(t.Context(), false, func(tx *chunkstore.Tx) error {
			for _, id := range records {
				if err := tx.Delete("layers", id); err != nil {
					return err
				}
			}
			if len(records) > 0 {
				return nil
			}
			return tx.DeleteManifest(top.Manifest)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	reported := func() int {
		t.Helper()
		c := &checker{h: y.h}
		if err := c.records(t.Context(), CheckRequest{}); err != nil {
			t.Fatal(err)
		}
		return len(c.found)
	}
	remove()
	if n := reported(); n != 1 {
		t.Errorf("a lost image: %d problems, not 1", n)
	}
	remove(top.ID)
	if n := reported(); n != 0 {
		t.Errorf("a merged image: %d problems", n)
	}
}
