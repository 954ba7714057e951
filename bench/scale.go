package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"snapfs/sandbox"
)

// scaleSizes say how far the suite goes.
type scaleSizes struct {
	snapshots, branches int
	files               []int
	logical, fileSize   int64 // bytes: of all files, and of each
}

func scaleOf(full bool) scaleSizes {
	if full {
		return scaleSizes{10_000, 1000, []int{1000, 10_000, 100_000, 1_000_000}, 100 << 30, 1 << 30}
	}
	return scaleSizes{500, 200, []int{1000, 10_000, 30_000}, 2 << 30, 256 << 20}
}

// scaleSuite shows time, memory and store as work grows.
func scaleSuite() suite {
	return suite{
		name: "scale", about: "Time, memory and size of the store as snapshots, mounts, files and bytes grow", long: true,
		subjects: func() []string { return []string{"snapfs"} },
		workloads: func() []string {
			var names []string
			for _, p := range scaleParts() {
				names = append(names, p.name)
			}
			return names
		},
		space: func(e *env) int64 {
			if e.full {
				return 30 << 30
			}
			return 4 << 30
		},
		run: func(ctx context.Context, e *env, r *report) error {
			if os.Geteuid() != 0 {
				return errors.New("needs root: it mounts")
			}
			for _, p := range scaleParts() {
				if !e.wantsWorkload(p.name) {
					continue
				}
				g := newGrown(r, p.name)
				err := p.run(ctx, e, g, scaleOf(e.full))
				// What was reached before an interrupt is fitted, too.
				g.fit(p.about)
				if err := errors.Join(err, r.keep()); err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
			}
			return nil
		},
	}
}

// scalePart lets one kind of work grow.
type scalePart struct {
	name, about string
	drawn       []string // metrics
	run         func(context.Context, *env, *grown, scaleSizes) error
}

func scaleParts() []scalePart {
	return []scalePart{
		{
			"snapshots in a row",
			"one changed file each, 1000 files in the workspace, which stays mounted; times of the snapshots since the row above",
			[]string{"snapshot p50", "memory", "store"},
			scaleSnapshots,
		},
		{
			"mounted branches",
			"of one snapshot of 1000 files, in one daemon, all mounted; then each is written to and read; times of the branches since the row above",
			[]string{"branch and ls p50", "branch and ls p99", "memory of each"},
			scaleBranches,
		},
		{"files", "small text files; the edit is the median of 9", []string{"create", storedEdit, "store"}, scaleFiles},
		{"logical MiB", "large files, one MiB in a hundred new, each stored before the next is written", []string{"snapshot until stored", "memory", "store"}, scaleLogical},
	}
}

// withHome runs fn with a daemon on a home of its own.
func withHome(ctx context.Context, e *env, fn func(s *served, scratch string) error) (err error) {
	scratch, err := os.MkdirTemp(e.work, "scale-")
	if err != nil {
		return err
	}
	s, err := serveHome(ctx, e, filepath.Join(scratch, "home"))
	if err != nil {
		return errors.Join(err, os.RemoveAll(scratch))
	}
	if err := errors.Join(fn(s, scratch), s.stop()); err != nil {
		return err // what may be mounted must not be removed; the run's end does that
	}
	return os.RemoveAll(scratch)
}

// grown collects figures at sizes of one kind of work.
type grown struct {
	r      *report
	what   string // of the sizes
	points map[string][]point
	order  []string
}

func newGrown(r *report, what string) *grown {
	return &grown{r: r, what: what, points: map[string][]point{}}
}

func (g *grown) add(size int64, name, unit string, value float64) {
	if g.points[name] == nil {
		g.order = append(g.order, name)
	}
	g.points[name] = append(g.points[name], point{float64(size), value})
	g.r.add(metric{Case: g.what, Subject: fmt.Sprintf("snapfs, %d", size), Name: name, Unit: unit, Value: value})
}

// addTimes adds the median and the 99th percentile of what was measured at a size, and sorts it.
func (g *grown) addTimes(size int64, name string, took []time.Duration) {
	slices.Sort(took)
	g.add(size, name+" p50", "ms", milliseconds(took[len(took)/2]))
	g.add(size, name+" p99", "ms", milliseconds(took[(len(took)-1)*99/100]))
}

// exponentRow is the subject of fitted exponents.
const exponentRow = "exponent"

// fit adds the exponents.
func (g *grown) fit(about string) {
	if len(g.order) == 0 {
		return
	}
	g.r.About[g.what] = about + "; the last row is the exponent e of figure = c * size^e"
	for _, name := range g.order {
		if e, ok := exponent(slices.DeleteFunc(g.points[name], func(p point) bool { return p.value <= 0 })); ok {
			g.r.add(metric{Case: g.what, Subject: exponentRow, Name: name, Unit: g.unitOf(name), Value: e})
		}
	}
}

func (g *grown) unitOf(name string) string {
	for _, m := range g.r.Metrics {
		if m.Case == g.what && m.Name == name {
			return m.Unit
		}
	}
	return ""
}

// state adds what the daemon and its home take.
func (g *grown) state(size int64, s *served) error {
	mem, err := s.memory()
	if err != nil {
		return err
	}
	disk, err := allocated(filepath.Join(s.home, "store"))
	if err != nil {
		return err
	}
	g.add(size, "memory", "MiB", float64(mem)/(1<<20))
	g.add(size, "store", "MB", float64(disk)/1e6)
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// steps are the sizes at which figures are taken: the tenths of n.
func steps(n int) []int {
	var at []int
	for i := 1; i <= 10; i++ {
		at = append(at, n*i/10)
	}
	return slices.Compact(at)
}

// scaleSnapshots takes snapshots of one mounted workspace in a row.
func scaleSnapshots(ctx context.Context, e *env, g *grown, n scaleSizes) error {
	return withHome(ctx, e, func(s *served, scratch string) error {
		tree := filepath.Join(scratch, "tree")
		if err := makeTree(ctx, tree, 1000); err != nil {
			return err
		}
		h := &snapfsHolder{s, scratch, map[string]string{}}
		if _, err := s.api.Create(ctx, sandbox.CreateRequest{Name: "w", Source: tree}); err != nil {
			return err
		}
		if _, err := s.api.Mount(ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: h.dir(), MakeMountpoint: true}); err != nil {
			return err
		}
		m := &latencyRun{latencyCase: latencyCase{files: 1000, changed: 1}, h: h}
		var took []time.Duration
		at := steps(n.snapshots)
		for i := 1; i <= n.snapshots; i++ {
			if err := m.change(); err != nil {
				return err
			}
			start := time.Now()
			id, err := h.snapshot(ctx, false)
			if err != nil {
				return err
			}
			took = append(took, time.Since(start))
			e.bar.step("snapshots", i, n.snapshots)
			if i != at[0] {
				continue
			}
			at = at[1:]
			g.addTimes(int64(i), "snapshot", took)
			took = nil
			start = time.Now()
			_, err = os.Lstat(filepath.Join(h.dir(), fmt.Sprintf("no such name %d", i)))
			if !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("look up what is not there: %w", err)
			}
			g.add(int64(i), "look-up", "ms", milliseconds(time.Since(start)))
			start = time.Now()
			dir, err := h.restore(ctx, id)
			if err == nil {
				_, err = os.ReadDir(dir)
			}
			g.add(int64(i), "restore and ls", "ms", milliseconds(time.Since(start)))
			if err = errors.Join(err, h.unrestore(ctx, dir)); err != nil {
				return err
			}
			if err := g.state(int64(i), s); err != nil {
				return err
			}
		}
		return nil
	})
}

// scaleBranches mounts branches of one snapshot, and uses each.
func scaleBranches(ctx context.Context, e *env, g *grown, n scaleSizes) error {
	return withHome(ctx, e, func(s *served, scratch string) error {
		tree := filepath.Join(scratch, "tree")
		if err := makeTree(ctx, tree, 1000); err != nil {
			return err
		}
		if _, err := s.api.Create(ctx, sandbox.CreateRequest{Name: "w", Source: tree}); err != nil {
			return err
		}
		snap, err := s.api.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", WaitStored: true})
		if err != nil {
			return err
		}
		before, err := s.memory()
		if err != nil {
			return err
		}
		var took []time.Duration
		at := steps(n.branches)
		for i := 1; i <= n.branches; i++ {
			dir := filepath.Join(scratch, fmt.Sprintf("b%05d", i))
			start := time.Now()
			if _, err := s.api.Branch(ctx, sandbox.RestoreRequest{Snapshot: snap.ID, Mountpoint: dir, MakeMountpoint: true}); err != nil {
				return err
			}
			if _, err := os.ReadDir(dir); err != nil {
				return err
			}
			took = append(took, time.Since(start))
			e.bar.step("branches", i, n.branches)
			if i != at[0] {
				continue
			}
			at = at[1:]
			g.addTimes(int64(i), "branch and ls", took)
			took = nil
			now, err := s.memory()
			if err != nil {
				return err
			}
			g.add(int64(i), "memory of each", "MiB", float64(now-before)/(1<<20)/float64(i))
		}
		for i := 1; i <= n.branches; i++ {
			dir := filepath.Join(scratch, fmt.Sprintf("b%05d", i))
			if err := os.WriteFile(filepath.Join(dir, "own"), []byte(dir), 0o644); err != nil {
				return err
			}
			if _, err := os.ReadFile(filepath.Join(dir, treeFile(i%1000))); err != nil {
				return err
			}
		}
		for i := 1; i <= n.branches; i++ {
			dir := filepath.Join(scratch, fmt.Sprintf("b%05d", i))
			if own, err := os.ReadFile(filepath.Join(dir, "own")); err != nil || string(own) != dir {
				return fmt.Errorf("branch %d does not have what was written to it: %w", i, err)
			}
		}
		now, err := s.memory()
		if err != nil {
			return err
		}
		g.add(int64(n.branches), "memory of each, written to and read", "MiB", float64(now-before)/(1<<20)/float64(n.branches))
		return nil
	})
}

// storedEdit is the metric of a snapshot that has one line more.
const storedEdit = "one-line edit, snapshot until stored"

// scaleFiles stores trees of more and more files, and edits a line in each.
func scaleFiles(ctx context.Context, e *env, g *grown, n scaleSizes) error {
	for _, files := range n.files {
		e.bar.say("a tree of %d files", files)
		err := withHome(ctx, e, func(s *served, scratch string) error {
			tree := filepath.Join(scratch, "tree")
			if err := makeTree(ctx, tree, files); err != nil {
				return err
			}
			start := time.Now()
			if _, err := s.api.Create(ctx, sandbox.CreateRequest{Name: "w", Source: tree}); err != nil {
				return err
			}
			g.add(int64(files), "create", "ms", milliseconds(time.Since(start)))
			h := &snapfsHolder{s, scratch, map[string]string{}}
			if _, err := s.api.Mount(ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: h.dir(), MakeMountpoint: true}); err != nil {
				return err
			}
			m := &latencyRun{latencyCase: latencyCase{files: files, changed: 1}, h: h}
			var took []time.Duration
			for range 9 {
				if err := m.change(); err != nil {
					return err
				}
				start := time.Now()
				if _, err := s.api.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", WaitStored: true}); err != nil {
					return err
				}
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			g.add(int64(files), storedEdit, "ms", milliseconds(took[len(took)/2]))
			return g.state(int64(files), s)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// scaleLogical writes big files of which one block in a hundred is new, each stored before the next is written.
func scaleLogical(ctx context.Context, e *env, g *grown, n scaleSizes) error {
	return withHome(ctx, e, func(s *served, scratch string) error {
		h := &snapfsHolder{s, scratch, map[string]string{}}
		if _, err := s.api.Create(ctx, sandbox.CreateRequest{Name: "w"}); err != nil {
			return err
		}
		if _, err := s.api.Mount(ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: h.dir(), MakeMountpoint: true}); err != nil {
			return err
		}
		const block = 1 << 20
		seed := [32]byte([]byte("snapfs bench: one hundred gigabyt")[:32])
		noise := rand.NewChaCha8(seed)
		buf := make([]byte, block)
		total := int(n.logical / n.fileSize)
		at := steps(total)
		for i := 1; i <= total; i++ {
			f, err := os.Create(filepath.Join(h.dir(), fmt.Sprintf("big%04d", i)))
			if err != nil {
				return err
			}
			old := rand.NewChaCha8(seed)
			for k := range n.fileSize / block {
				from := io.Reader(old)
				if k%100 == 99 {
					from = noise // new in each file
				}
				if _, err = io.ReadFull(from, buf); err == nil {
					_, err = f.Write(buf)
				}
				if err = errors.Join(err, ctx.Err()); err != nil {
					return errors.Join(err, f.Close())
				}
			}
			if err := f.Close(); err != nil {
				return err
			}
			start := time.Now()
			if _, err := s.api.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", WaitStored: true}); err != nil {
				return err
			}
			e.bar.step("bytes", i, total)
			if i == at[0] {
				at = at[1:]
				size := int64(i) * n.fileSize >> 20
				g.add(size, "snapshot until stored", "ms", milliseconds(time.Since(start)))
				if err := g.state(size, s); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
