package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// peer is a way to keep the states of a history. Subjects that have no dedup of their own keep a file per state.
type peer struct {
	name     string
	programs []string // that it calls
	root     bool     // needs privilege
	exact    bool     // keeps modes, owners, times and links, so that restores are verified to the nanosecond
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
		snapfsPeer(),
		gitPeer("git repack", "repack", "-adf", "--depth=50", "--window=50"), gitPeer("git gc", "gc", "--prune=now", "--quiet"),
		resticPeer(), borgPeer(), btrfsPeer(), tarPeer(), squashPeer("zstd"), squashPeer("lz4"),
	}
}

func storageSuite() suite {
	return suite{
		name: "storage", about: "Bytes on disk, time to store and to restore of histories of states",
		run: func(ctx context.Context, e *env, r *report) error {
			histories, err := e.states(ctx)
			if err != nil {
				return err
			}
			r.charts = []string{"stored", "store cpu", "restore cpu"}
			for _, h := range histories {
				infos, err := inspectAll(ctx, e, h)
				if err != nil {
					return err
				}
				total, files := int64(0), 0
				for _, in := range infos {
					total += in.bytes
					files = max(files, in.files)
				}
				r.About[h.name] = fmt.Sprintf("%s; %d states, %.0f MB in all, up to %d files", h.about, len(h.states), float64(total)/1e6, files)
				for _, p := range allPeers() {
					if !e.wants(p.name) {
						continue
					}
					if gone := missing(p.programs); len(gone) > 0 {
						r.note("%s: not measured, missing %s", p.name, strings.Join(gone, ", "))
						continue
					}
					if p.root && os.Geteuid() != 0 {
						r.note("%s: not measured, needs root", p.name)
						continue
					}
					err := measurePeer(ctx, e, r, h, infos, total, p)
					if ctx.Err() != nil {
						return ctx.Err()
					}
					if err != nil {
						r.note("%s on %s: FAILED: %v", p.name, h.name, err)
					}
				}
			}
			return nil
		},
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

// measurePeer stores, restores and thins one history with one peer, and always cleans up after it.
func measurePeer(ctx context.Context, e *env, r *report, h history, infos []treeInfo, total int64, p peer) (err error) {
	dir, err := os.MkdirTemp(e.work, "peer-")
	if err != nil {
		return fmt.Errorf("make repository: %w", err)
	}
	k, err := p.open(ctx, filepath.Join(dir, "repo"))
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	defer func() {
		// An interrupted run must still unmount.
		clean := context.WithoutCancel(ctx)
		err = errors.Join(err, k.close(clean), os.RemoveAll(dir))
	}()
	add := func(name, unit string, value float64) {
		r.add(metric{Case: h.name, Subject: p.name, Name: name, Unit: unit, Value: value})
	}
	mb := float64(total) / 1e6

	var store cost
	prev := ""
	for i, s := range h.states {
		e.bar.step(p.name+" stores "+h.name, i, len(h.states))
		c, err := measure(func() error { return k.store(ctx, i, prev, s) })
		if err != nil {
			return fmt.Errorf("store state %d: %w", i, err)
		}
		store.add(c)
		prev = s
	}
	c, err := measure(func() error { return k.settle(ctx) })
	if err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	store.add(c)
	n, err := k.size(ctx)
	if err != nil {
		return err
	}
	add("stored", "MB", float64(n)/1e6)
	add("store cpu", "s", store.cpu.Seconds())
	add("store wall", "s", store.wall.Seconds())

	if o, ok := k.(optimizer); ok {
		e.bar.step(p.name+" optimizes "+h.name, 0, 0)
		c, err := measure(func() error { return o.optimize(ctx) })
		if err != nil {
			return fmt.Errorf("optimize: %w", err)
		}
		better, err := k.size(ctx)
		if err != nil {
			return err
		}
		add("optimized", "MB", float64(better)/1e6)
		add("optimize cpu", "s", c.cpu.Seconds())
	}

	var restore cost
	restored := true
	for i := range h.states {
		e.bar.step(p.name+" restores "+h.name, i, len(h.states))
		c, err := verifyRestore(ctx, k, i, filepath.Join(dir, "restored"), infos[i], p.exact)
		if errors.Is(err, errUnsupported) {
			restored = false
			r.note("%s: restore is not offered", p.name)
			break
		}
		if err != nil {
			return fmt.Errorf("restore state %d: %w", i, err)
		}
		restore.add(c)
	}
	if restored {
		add("restore cpu", "s", restore.cpu.Seconds())
		add("restore wall", "s", restore.wall.Seconds())
		r.add(metric{Case: h.name, Subject: p.name, Name: "restore", Unit: "MB/s cpu", Value: mb / max(restore.cpu.Seconds(), 1e-3), More: true})
	}
	if err := measureDrop(ctx, r, k, h, infos, p, dir); err != nil {
		return err
	}
	return measureNewest(ctx, r, k, h, infos, p, dir)
}

// verifyRestore restores one state and compares it with the original; only the restore is timed.
func verifyRestore(ctx context.Context, k keeper, i int, dest string, want treeInfo, exact bool) (cost, error) {
	if err := os.Mkdir(dest, 0o755); err != nil {
		return cost{}, fmt.Errorf("make directory: %w", err)
	}
	c, err := measure(func() error { return k.restore(ctx, i, dest) })
	if err == nil {
		var got treeInfo
		if got, err = inspect(ctx, dest); err == nil && got.contents != want.contents {
			err = errors.New("contents differ from what was stored")
		}
		if err == nil && exact && got.exact != want.exact {
			err = errors.New("modes, owners, times or links differ from what was stored")
		}
	}
	return c, errors.Join(err, os.RemoveAll(dest))
}

// measureDrop deletes the older half and checks that the newest state is still whole.
func measureDrop(ctx context.Context, r *report, k keeper, h history, infos []treeInfo, p peer, dir string) error {
	if len(h.states) < 2 {
		return nil
	}
	c, err := measure(func() error { return k.drop(ctx, 0, len(h.states)/2) })
	if errors.Is(err, errUnsupported) {
		r.note("%s: deleting states is not offered", p.name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete half: %w", err)
	}
	n, err := k.size(ctx)
	if err != nil {
		return err
	}
	last := len(h.states) - 1
	if _, err := verifyRestore(ctx, k, last, filepath.Join(dir, "restored"), infos[last], p.exact); err != nil {
		return fmt.Errorf("restore state %d after deleting half: %w", last, err)
	}
	r.add(metric{Case: h.name, Subject: p.name, Name: "half deleted", Unit: "MB", Value: float64(n) / 1e6})
	r.add(metric{Case: h.name, Subject: p.name, Name: "delete cpu", Unit: "s", Value: c.cpu.Seconds()})
	return nil
}

// measureNewest deletes all but the newest state, and stores that one alone in a repository of its own beside it.
func measureNewest(ctx context.Context, r *report, k keeper, h history, infos []treeInfo, p peer, dir string) (err error) {
	last := len(h.states) - 1
	if last < 1 {
		return nil
	}
	if err := k.drop(ctx, len(h.states)/2, last); errors.Is(err, errUnsupported) {
		return nil
	} else if err != nil {
		return fmt.Errorf("delete all but the newest: %w", err)
	}
	left, err := k.size(ctx)
	if err != nil {
		return err
	}
	if _, err := verifyRestore(ctx, k, last, filepath.Join(dir, "restored"), infos[last], p.exact); err != nil {
		return fmt.Errorf("restore the only state left: %w", err)
	}
	fresh, err := p.open(ctx, filepath.Join(dir, "fresh"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fresh.close(context.WithoutCancel(ctx))) }()
	if err := fresh.store(ctx, 0, "", h.states[last]); err != nil {
		return fmt.Errorf("store the newest state alone: %w", err)
	}
	if err := fresh.settle(ctx); err != nil {
		return fmt.Errorf("settle the newest state: %w", err)
	}
	alone, err := fresh.size(ctx)
	if err != nil {
		return err
	}
	r.add(metric{Case: h.name, Subject: p.name, Name: "only newest kept", Unit: "MB", Value: float64(left) / 1e6})
	r.add(metric{Case: h.name, Subject: p.name, Name: "newest alone", Unit: "MB", Value: float64(alone) / 1e6})
	return nil
}
