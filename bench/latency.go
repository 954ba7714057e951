package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// holder is a workspace of one system with snapshots of it. Used by one goroutine.
type holder interface {
	// dir is where programs see the workspace; it may change with a rollback.
	dir() string
	// snapshot freezes the workspace; with sync, what it froze survives a loss of power.
	snapshot(ctx context.Context, sync bool) (id string, err error)
	// restore makes another workspace of a snapshot and tells where it is.
	restore(ctx context.Context, id string) (dir string, err error)
	// unrestore takes that away again; it is not measured.
	unrestore(ctx context.Context, dir string) error
	rollback(ctx context.Context, id string) error
	// diff compares a snapshot with the workspace; errUnsupported where nothing is offered.
	diff(ctx context.Context, id string) error
	delete(ctx context.Context, id string) error
	// held is for how long all snapshots and rollbacks so far have held back those who write; 0 where nobody counts it.
	held(ctx context.Context) (time.Duration, error)
	close(ctx context.Context) error
}

// holderKind is a way to have workspaces and snapshots.
type holderKind struct {
	name     string
	programs []string
	most     int // files in a workspace beyond which it takes too long
	open     func(ctx context.Context, e *env, tree, scratch string) (holder, error)
}

func holderKinds() []holderKind {
	return []holderKind{
		{"snapfs", []string{"go"}, 1 << 30, openSnapfsHolder},
		{"btrfs", []string{"btrfs", "mkfs.btrfs", "mount", "umount"}, 1 << 30, openBtrfsHolder},
		{"cp --reflink", []string{"cp", "mkfs.xfs", "mount", "umount"}, 100_000, openReflinkHolder},
		{"squashfs + fuse-overlayfs", []string{"mksquashfs", "squashfuse", "fuse-overlayfs", "umount"}, 100_000, openSquashHolder},
	}
}

func holderNames() []string {
	var names []string
	for _, k := range holderKinds() {
		names = append(names, k.name)
	}
	return names
}

// Rounds of a case: at least leastRounds, and then as many as fit into its time, at most mostRounds.
const (
	leastRounds = 3
	mostRounds  = 100
	caseTime    = 8 * time.Second
	longTime    = 15 * time.Second // with --full
)

func latencySuite() suite {
	return suite{
		name: "latency", about: "Snapshot, restore, rollback, diff and delete beside btrfs, reflinks and squashfs",
		subjects: holderNames,
		workloads: func() []string {
			var names []string
			for _, c := range latencyCases(true) {
				names = append(names, c.name)
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
			cases := e.latencyCases()
			if !e.full && len(e.workloads) == 0 {
				r.note("%v for each case and system, up to 10000 files; --full: %v, up to 1000000 files and 100000 changed ones", caseTime, longTime)
			}
			e.bar.expect(float64(len(cases) * len(holderKinds())))
			for _, c := range cases {
				if err := c.run(ctx, e, r); err != nil {
					return err
				}
				if err := r.keep(); err != nil {
					return err
				}
			}
			growth(r)
			return nil
		},
	}
}

// latencyCase is one kind of workspace that all systems get.
type latencyCase struct {
	name    string
	files   int // in the workspace
	changed int // between two snapshots
	depth   int // snapshots in a row that come before
	only    int // the first so many kinds of holder
}

// latencyCases are those asked for by --workload, or the usual ones.
func (e *env) latencyCases() []latencyCase {
	if len(e.workloads) == 0 {
		return latencyCases(e.full)
	}
	return slices.DeleteFunc(latencyCases(true), func(c latencyCase) bool { return !e.wantsWorkload(c.name) })
}

func latencyCases(full bool) []latencyCase {
	all := []latencyCase{{files: 1000}, {files: 10_000}}
	if full {
		all = append(all, latencyCase{files: 100_000}, latencyCase{files: 500_000}, latencyCase{files: 1_000_000})
	}
	for i := range all {
		all[i].name, all[i].changed = fmt.Sprintf("%d files", all[i].files), 1
	}
	depths, changes := []int{10, 100, 1000}, []int{1000, 10_000}
	if full {
		changes = append(changes, 100_000)
	}
	for _, d := range depths {
		all = append(all, latencyCase{fmt.Sprintf("depth %d", d), 1000, 1, d, 2})
	}
	for _, n := range changes {
		all = append(all, latencyCase{fmt.Sprintf("%d changed", n), max(n, 1000), n, 0, 2})
	}
	return all
}

// run measures a case on all systems.
func (c latencyCase) run(ctx context.Context, e *env, r *report) error {
	tree := filepath.Join(e.work, "tree")
	if err := makeTree(ctx, tree, c.files); err != nil {
		return fmt.Errorf("make a tree of %d files: %w", c.files, err)
	}
	r.About[c.name] = fmt.Sprintf("%d files in the workspace, %d changed between two snapshots, %d snapshots in a row before; p99 of fewer than 100 rounds is the slowest",
		c.files, c.changed, c.depth)
	for i, k := range holderKinds() {
		if (c.only == 0 || i < c.only) && e.wants(k.name) {
			if err := c.on(ctx, e, r, k, tree); err != nil {
				return err
			}
		}
		e.bar.did(1)
	}
	return os.RemoveAll(tree)
}

// on measures a case on one system, unless it cannot be; the report tells.
func (c latencyCase) on(ctx context.Context, e *env, r *report, k holderKind, tree string) error {
	if gone := missing(k.programs); len(gone) > 0 {
		r.note("%s: not measured, missing %s", k.name, strings.Join(gone, ", "))
		return nil
	}
	if c.files > k.most {
		r.note("%s: not measured with more than %d files: a round takes minutes", k.name, k.most)
		return nil
	}
	e.bar.say("%s, %s", c.name, k.name)
	err := c.measure(ctx, e, r, k, tree)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		r.fail("%s: %s failed: %v", c.name, k.name, err)
	}
	return nil
}

// measure opens a system with the tree and measures its operations.
func (c latencyCase) measure(ctx context.Context, e *env, r *report, k holderKind, tree string) (err error) {
	scratch, err := os.MkdirTemp(e.work, "latency-")
	if err != nil {
		return err
	}
	h, err := k.open(ctx, e, tree, scratch)
	if err != nil {
		return errors.Join(err, os.RemoveAll(scratch))
	}
	defer func() { err = errors.Join(err, closeMounted(ctx, h, scratch)) }()
	m := &latencyRun{latencyCase: c, h: h, took: map[string][]time.Duration{}}
	for i := range c.depth {
		e.bar.step(c.name+": snapshots", i, c.depth)
		if err := m.change(); err != nil {
			return err
		}
		if _, err := h.snapshot(ctx, false); err != nil {
			return err
		}
	}
	// What was just written is not the first round's to wait for.
	unix.Sync()
	limit := caseTime
	if e.full {
		limit = longTime
	}
	start := time.Now()
	for i := 0; i < mostRounds && (i < leastRounds || time.Since(start) < limit); i++ {
		if err := m.round(ctx); err != nil {
			return err
		}
		e.bar.step(c.name+", "+k.name, i, mostRounds)
	}
	m.report(r, k.name)
	return nil
}

// latencyRun is a case on one system.
type latencyRun struct {
	latencyCase
	h       holder
	changes int
	took    map[string][]time.Duration
	order   []string
}

// note adds a reading.
func (m *latencyRun) note(name string, d time.Duration) {
	if m.took[name] == nil {
		m.order = append(m.order, name)
	}
	m.took[name] = append(m.took[name], d)
}

// time measures one operation.
func (m *latencyRun) time(name string, fn func() error) error {
	start := time.Now()
	err := fn()
	if errors.Is(err, errUnsupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	m.note(name, time.Since(start))
	return nil
}

// change writes to as many files as the case says, and reads them, so that the kernel has them in its caches.
func (m *latencyRun) change() error {
	for i := range m.changed {
		m.changes++
		path := filepath.Join(m.h.dir(), treeFile((m.changes*7919+i)%m.files))
		if m.changed > 1 {
			path = filepath.Join(m.h.dir(), treeFile(i))
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString("one line more " + strconv.Itoa(m.changes) + "\n")
		if err == nil {
			_, err = f.ReadAt(make([]byte, 16), 0)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// round runs every operation once.
func (m *latencyRun) round(ctx context.Context) error {
	var id string
	freeze := func(name string, sync bool) error {
		if err := m.change(); err != nil {
			return err
		}
		before, err := m.h.held(ctx)
		if err != nil {
			return err
		}
		if err := m.time(name, func() (err error) { id, err = m.h.snapshot(ctx, sync); return err }); err != nil {
			return err
		}
		after, err := m.h.held(ctx)
		if after > before {
			m.note("held", after-before)
		}
		return err
	}
	if err := freeze("snapshot", false); err != nil {
		return err
	}
	first := id
	if err := freeze("snapshot, sync", true); err != nil {
		return err
	}
	var made string
	err := m.time("restore", func() (err error) {
		if made, err = m.h.restore(ctx, id); err == nil {
			_, err = os.ReadDir(made)
		}
		return err
	})
	if made != "" {
		err = errors.Join(err, m.h.unrestore(ctx, made))
	}
	if err == nil {
		err = m.change()
	}
	if err == nil {
		err = m.time("diff", func() error { return m.h.diff(ctx, id) })
	}
	if err == nil {
		err = m.time("rollback", func() error { return m.h.rollback(ctx, id) })
	}
	if err == nil {
		err = m.time("delete", func() error { return m.h.delete(ctx, first) })
	}
	return err
}

// report adds medians and 99th percentiles.
func (m *latencyRun) report(r *report, subject string) {
	for _, name := range m.order {
		took := m.took[name]
		slices.Sort(took)
		for _, p := range []int{50, 99} {
			v := took[(len(took)-1)*p/100]
			if len(took) < 100 && p == 99 {
				v = took[len(took)-1]
			}
			r.add(metric{Case: m.name, Subject: subject, Name: fmt.Sprintf("%s p%d", name, p), Unit: "ms", Value: float64(v.Microseconds()) / 1000})
		}
	}
	r.add(metric{Case: m.name, Subject: subject, Name: "rounds", Unit: "", Value: float64(len(m.took["snapshot"])), More: true})
}

// perDir is how many files a directory of a made tree has.
const perDir = 100

// treeFile names a file of a made tree.
func treeFile(i int) string { return fmt.Sprintf("d%03d/d%02d/f%07d", i/perDir/100, i/perDir%100, i) }

// makeTree makes a tree of so many small files that differ.
func makeTree(ctx context.Context, dir string, files int) error {
	for i := range files {
		path := filepath.Join(dir, treeFile(i))
		if i%perDir == 0 {
			if err := errors.Join(ctx.Err(), os.MkdirAll(filepath.Dir(path), 0o755)); err != nil {
				return err
			}
		}
		if err := os.WriteFile(path, []byte(strings.Repeat(fmt.Sprintf("this is line of file %d\n", i), 8)), 0o644); err != nil {
			return err
		}
	}
	return nil
}
