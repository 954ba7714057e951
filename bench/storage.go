package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// peer is a way to keep the states of a history. Subjects that have no dedup of their own keep a file per state.
type peer struct {
	name     string
	programs []string // that it calls
	root     bool     // needs privilege
	exact    bool     // keeps modes, owners, times and links, so that restores are verified to the nanosecond
	plain    bool     // keeps files and links only, outside of repositories, so that nothing else is looked for in restores
	full     bool     // packs anew with --full only
	remark   string   // what a reader of its figures must know
	open     func(ctx context.Context, dir string) (keeper, error)
}

// keeper is an open repository of a peer. States are numbered in order. Used by one goroutine.
type keeper interface {
	// store takes the next state; prev is the state before it, "" at first.
	store(ctx context.Context, i int, prev, state string) error
	// settle does what belongs to storing and is done once, at the end.
	settle(ctx context.Context) error
	// size is the allocated bytes of everything kept.
	size(ctx context.Context) (int64, error)
	// restore writes state i into dest, an empty directory.
	restore(ctx context.Context, i int, dest string) error
	// drop deletes the states from one to another, of which none older is left, and collects what they alone needed.
	drop(ctx context.Context, from, to int) error
	close(ctx context.Context) error
}

// optimizer is a keeper that can pack what it keeps anew, with nobody waiting.
type optimizer interface {
	optimize(ctx context.Context) error
}

var errUnsupported = errors.New("not offered")

func allPeers() []peer {
	return []peer{
		snapfsPeer(), snapfsCreatePeer(),
		gitPeer("git repack", "repack", "-adf", "--depth=50", "--window=50"), gitPeer("git gc", "gc", "--prune=now", "--quiet"),
		resticPeer(), borgPeer(), btrfsPeer(), tarPeer(), squashPeer("zstd"), squashPeer("lz4"),
	}
}

func storageSuite() suite {
	return suite{
		name: "storage", about: "Bytes on disk, time to store and to restore of histories of states",
		subjects: func() []string {
			var names []string
			for _, p := range allPeers() {
				names = append(names, p.name)
			}
			return names
		},
		space: storageSpace,
		run:   runStorage,
	}
}

// storageSpace is what corpora that are not built yet and the greediest peer, an uncompressible image per state, take.
func storageSpace(e *env) int64 {
	const other = 8 << 30 // corpora of the user's, which are not measured before
	if len(e.trees) > 0 || e.repo != "" {
		return other
	}
	var build, largest int64
	for _, c := range e.chosen() {
		if missingFile(e.cachePath(c)) {
			build += c.disk
		}
		largest = max(largest, c.logical)
	}
	return build + largest + largest/4
}

func runStorage(ctx context.Context, e *env, r *report) error {
	histories, err := e.states(ctx)
	if err != nil {
		return err
	}
	if !e.full {
		r.note("after half of the states was deleted, the oldest, the middle and the newest of those left were restored and compared; --full does it with all, deletes all but the newest, too, and packs 'snapfs create' anew")
	}
	peers := availablePeers(e, r)
	var all [][]treeInfo
	for _, h := range histories {
		infos, err := inspectAll(ctx, e, h)
		if err != nil {
			return err
		}
		all = append(all, infos)
		describe(r, h, infos)
		for _, p := range peers {
			if !e.resume || !r.whole(h.name, p.name) {
				e.bar.expect(allWork(infos))
			}
		}
	}
	for i, h := range histories {
		for _, p := range peers {
			if e.resume && r.whole(h.name, p.name) {
				continue
			}
			r.begin(h.name, p.name)
			err := measurePeer(ctx, e, r, h, all[i], p)
			if ctx.Err() != nil {
				r.forget(h.name, p.name)
				return errors.Join(ctx.Err(), err)
			}
			if err != nil {
				r.fail("%s on %s: FAILED: %v", p.name, h.name, err)
			} else {
				r.Whole = append(r.Whole, h.name+"/"+p.name)
			}
			if err := r.keep(); err != nil {
				return err
			}
		}
	}
	return nil
}

// availablePeers are those asked for that can run here; the report names the others.
func availablePeers(e *env, r *report) []peer {
	var out []peer
	for _, p := range allPeers() {
		if !e.wants(p.name) {
			continue
		}
		if gone := missing(p.programs); len(gone) > 0 {
			r.note("%s: not measured, missing %s (make bench-peers installs Debian's %s)", p.name, strings.Join(gone, ", "), strings.Join(packagesOf(gone), ", "))
			continue
		}
		if p.root && os.Geteuid() != 0 {
			r.note("%s: not measured, needs root", p.name)
			continue
		}
		if p.remark != "" {
			r.note("%s: %s", p.name, p.remark)
		}
		out = append(out, p)
	}
	return out
}

// describe says in the report what a history is, and whether it is that of the committed results.
func describe(r *report, h history, infos []treeInfo) {
	total, files := int64(0), 0
	for _, in := range infos {
		total += in.bytes
		files = max(files, in.files)
	}
	r.About[h.name] = fmt.Sprintf("%s; %d states, %.0f MB in all, up to %d files", h.about, len(h.states), float64(total)/1e6, files)
	r.Digests[h.name] = digestOf(infos)
	if h.digest != "" && h.digest != r.Digests[h.name] {
		r.note("%s is not byte for byte the corpus of the committed results: its digest is %.16s, theirs %.16s", h.name, r.Digests[h.name], h.digest)
	}
}

func inspectAll(ctx context.Context, e *env, h history) ([]treeInfo, error) {
	var out []treeInfo
	for i, s := range h.states {
		e.bar.step("reading "+h.name, i, len(h.states))
		info, err := inspect(ctx, s)
		if err != nil {
			return nil, err
		}
		out = append(out, info)
	}
	return out, nil
}

// work is how much there is to do for a state, in units of the progress bar.
func (t treeInfo) work() float64 {
	const perFile = 20_000 // bytes that take as long as a file does
	return float64(t.bytes) + perFile*float64(t.files)
}

// allWork is what measurePeer does: to store and to restore each state, and as much as half of both for deleting.
func allWork(infos []treeInfo) float64 {
	sum := 0.0
	for _, in := range infos {
		sum += in.work()
	}
	return 3 * sum
}

// measurement is one peer on one history.
type measurement struct {
	e      *env
	r      *report
	h      history
	infos  []treeInfo
	p      peer
	k      keeper
	dir    string  // scratch
	worked float64 // units told to the progress bar
}

func (m *measurement) add(name, unit string, value float64) {
	m.r.add(metric{Case: m.h.name, Subject: m.p.name, Name: name, Unit: unit, Value: value})
}

func (m *measurement) did(units float64) {
	m.worked += units
	m.e.bar.did(units)
}

// measurePeer stores, restores and thins one history with one peer, and always cleans up after it.
func measurePeer(ctx context.Context, e *env, r *report, h history, infos []treeInfo, p peer) (err error) {
	m := &measurement{e: e, r: r, h: h, infos: infos, p: p}
	if m.dir, err = os.MkdirTemp(e.work, "peer-"); err != nil {
		return fmt.Errorf("make repository: %w", err)
	}
	defer func() {
		m.did(allWork(infos) - m.worked)
		err = errors.Join(err, discard(m.dir))
	}()
	if m.k, err = p.open(ctx, filepath.Join(m.dir, "repo")); err != nil {
		return err
	}
	defer func() {
		// An interrupted run must still unmount.
		clean, cancel := cleanUp(ctx)
		defer cancel()
		err = errors.Join(err, m.k.close(clean))
	}()
	phases := []func(context.Context) error{m.store, m.optimize, m.restore, m.half}
	if e.full {
		phases = append(phases, m.newest)
	}
	for _, phase := range phases {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	return nil
}

// store stores all states.
func (m *measurement) store(ctx context.Context) error {
	var sum cost
	prev := ""
	for i, s := range m.h.states {
		m.e.bar.step(m.p.name+" stores "+m.h.name, i, len(m.h.states))
		c, err := measure(func() error { return m.k.store(ctx, i, prev, s) })
		if err != nil {
			return fmt.Errorf("store state %d: %w", i, err)
		}
		sum.add(c)
		prev = s
		m.did(m.infos[i].work())
	}
	m.e.bar.step(m.p.name+" finishes "+m.h.name, 0, 0)
	c, err := measure(func() error { return m.k.settle(ctx) })
	if err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	sum.add(c)
	n, err := m.k.size(ctx)
	if err != nil {
		return err
	}
	m.add("stored", "MB", float64(n)/1e6)
	m.add("store cpu", "s", sum.cpu.Seconds())
	m.add("store wall", "s", sum.wall.Seconds())
	return nil
}

// optimize lets a peer that can pack anew do so.
func (m *measurement) optimize(ctx context.Context) error {
	o, ok := m.k.(optimizer)
	if !ok || m.p.full && !m.e.full {
		return nil
	}
	m.e.bar.step(m.p.name+" optimizes "+m.h.name, 0, 0)
	c, err := measure(func() error { return o.optimize(ctx) })
	if err != nil {
		return fmt.Errorf("optimize: %w", err)
	}
	n, err := m.k.size(ctx)
	if err != nil {
		return err
	}
	m.add("optimized", "MB", float64(n)/1e6)
	m.add("optimize cpu", "s", c.cpu.Seconds())
	return nil
}

// restore restores every state and compares it with the original.
func (m *measurement) restore(ctx context.Context) error {
	var sum cost
	var bytes int64
	for i := range m.h.states {
		m.e.bar.step(m.p.name+" restores "+m.h.name, i, len(m.h.states))
		c, err := m.verified(ctx, i)
		if err != nil {
			return fmt.Errorf("restore state %d: %w", i, err)
		}
		sum.add(c)
		bytes += m.infos[i].bytes
		m.did(m.infos[i].work())
	}
	m.add("restore cpu", "s", sum.cpu.Seconds())
	m.add("restore wall", "s", sum.wall.Seconds())
	m.r.add(metric{Case: m.h.name, Subject: m.p.name, Name: "restore", Unit: "MB/s cpu", Value: float64(bytes) / 1e6 / max(sum.cpu.Seconds(), 1e-3), More: true})
	m.r.add(metric{Case: m.h.name, Subject: m.p.name, Name: "verified", Unit: "states", Value: float64(len(m.h.states)), More: true})
	return nil
}

// verified restores state i and compares it with the original; only the restoring is timed.
func (m *measurement) verified(ctx context.Context, i int) (cost, error) {
	if m.p.plain && m.infos[i].special > 0 {
		m.r.note("%s: devices, pipes and repositories in a tree are not kept, and not looked for in what it restores", m.p.name)
	}
	return verifyRestore(ctx, m.k, i, filepath.Join(m.dir, "restored"), m.h.states[i], m.infos[i], m.p)
}

// verifyRestore restores one state and compares it with the original; only the restore is timed.
func verifyRestore(ctx context.Context, k keeper, i int, dest, state string, want treeInfo, p peer) (cost, error) {
	if err := os.Mkdir(dest, 0o755); err != nil {
		return cost{}, fmt.Errorf("make directory: %w", err)
	}
	c, err := measure(func() error { return k.restore(ctx, i, dest) })
	if err == nil {
		var got treeInfo
		got, err = inspect(ctx, dest)
		switch {
		case err != nil:
		case got.plain != want.plain || !p.plain && got.contents != want.contents:
			err = fmt.Errorf("contents differ from what was stored%s", firstDifference(state, dest, false))
		case p.exact && got.exact != want.exact:
			err = fmt.Errorf("modes, owners, times or links differ from what was stored%s", firstDifference(state, dest, true))
		}
	}
	return c, errors.Join(err, os.RemoveAll(dest))
}

// leftToVerify are the states that are restored once more after those before from were deleted: with all every one of them, else
// the oldest, which most stood on what is gone, one in the middle, and the newest.
func leftToVerify(from, to int, all bool) []int {
	left := []int{from, (from + to) / 2, to - 1}
	if all {
		left = nil
		for i := from; i < to; i++ {
			left = append(left, i)
		}
	}
	return slices.Compact(left)
}

// half deletes the older half of the states and checks that others are still whole.
func (m *measurement) half(ctx context.Context) error {
	states := len(m.h.states)
	if states < 2 {
		return nil
	}
	m.e.bar.step(m.p.name+" deletes half of "+m.h.name, 0, 0)
	c, err := measure(func() error { return m.k.drop(ctx, 0, states/2) })
	if errors.Is(err, errUnsupported) {
		m.r.note("%s: deleting states is not offered: each stands on those before it", m.p.name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete half: %w", err)
	}
	n, err := m.k.size(ctx)
	if err != nil {
		return err
	}
	left := leftToVerify(states/2, states, m.e.full)
	for n, i := range left {
		m.e.bar.step(m.p.name+" restores what is left of "+m.h.name, n, len(left))
		if _, err := m.verified(ctx, i); err != nil {
			return fmt.Errorf("restore state %d after deleting half: %w", i, err)
		}
		m.did(m.infos[i].work())
	}
	m.add("half deleted", "MB", float64(n)/1e6)
	m.add("delete cpu", "s", c.cpu.Seconds())
	return nil
}

// newest deletes all but the newest state, and stores that one alone in a repository of its own beside it.
func (m *measurement) newest(ctx context.Context) (err error) {
	last := len(m.h.states) - 1
	if last < 1 {
		return nil
	}
	m.e.bar.step(m.p.name+" keeps the newest of "+m.h.name, 0, 0)
	if err := m.k.drop(ctx, len(m.h.states)/2, last); errors.Is(err, errUnsupported) {
		return nil
	} else if err != nil {
		return fmt.Errorf("delete all but the newest: %w", err)
	}
	left, err := m.k.size(ctx)
	if err != nil {
		return err
	}
	if _, err := m.verified(ctx, last); err != nil {
		return fmt.Errorf("restore the only state left: %w", err)
	}
	fresh, err := m.p.open(ctx, filepath.Join(m.dir, "fresh"))
	if err != nil {
		return err
	}
	defer func() {
		clean, cancel := cleanUp(ctx)
		defer cancel()
		err = errors.Join(err, fresh.close(clean))
	}()
	if err := fresh.store(ctx, 0, "", m.h.states[last]); err != nil {
		return fmt.Errorf("store the newest state alone: %w", err)
	}
	if err := fresh.settle(ctx); err != nil {
		return fmt.Errorf("settle the newest state: %w", err)
	}
	alone, err := fresh.size(ctx)
	if err != nil {
		return err
	}
	m.add("only newest kept", "MB", float64(left)/1e6)
	m.add("newest alone", "MB", float64(alone)/1e6)
	return nil
}
