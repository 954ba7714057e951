package storage

import (
	"context"
	"errors"

	"snapfs/bench/internal/chart"
	"snapfs/bench/internal/corpora"
	"snapfs/bench/internal/peers"
	"snapfs/bench/internal/report"
	"snapfs/bench/internal/snapfs"
	"snapfs/bench/internal/subject"
	"snapfs/bench/internal/suite"
	"snapfs/bench/internal/tree"
)

// subjects are in the order of the tables.
func subjects() []subject.Subject[subject.Store] {
	return []subject.Subject[subject.Store]{
		snapfs.Store(),
		snapfs.Created(),
		peers.Git("git repack", "repack", "-adf", "--depth=50", "--window=50"),
		peers.Git("git gc", "gc", "--prune=now", "--quiet"),
		peers.Restic(),
		peers.Borg(),
		peers.Btrfs(),
		peers.Tar(),
		peers.Squashfs("zstd"),
		peers.Squashfs("lz4"),
	}
}

// Suite stores, restores and thins histories.
func Suite() suite.Suite {
	return suite.Suite{
		Name: "storage", About: "Bytes on disk, time to store and to restore of histories of states",
		Subjects: func() []string { return subject.Names(subjects()) },
		Space:    space,
		Draw:     chart.Bars("stored", "store cpu", "restore cpu"),
		Run:      run,
	}
}

// space is what corpora that are not built yet and the largest subject, an uncompressible image per state, take.
func space(e *suite.Env) int64 {
	const other = 8 << 30 // corpora of the user's, which are not measured before
	if len(e.Trees) > 0 || e.Repo != "" {
		return other
	}
	var build, largest int64
	shelf := e.Shelf()
	for _, c := range corpora.Chosen(e.Corpora, e.Full) {
		if !shelf.Has(c) {
			build += c.Disk
		}
		largest = max(largest, c.Logical)
	}
	return build + largest + largest/4
}

func run(ctx context.Context, e *suite.Env, r *report.Report) error {
	list, err := histories(ctx, e)
	if err != nil {
		return err
	}
	if !e.Full {
		r.Note(
			"after half of the states was deleted, the oldest, the middle and the newest of those left were restored " +
				"and compared; --full does it with all, deletes all but the newest, too, " +
				"and packs 'snapfs create' anew",
		)
	}
	peers := subject.Available(subjects(), e.Wants, r.Note)
	var all [][]tree.Info
	for _, h := range list {
		infos, err := inspectAll(ctx, e, h)
		if err != nil {
			return err
		}
		all = append(all, infos)
		describe(r, h, infos)
		for _, p := range peers {
			if !e.Resume || !r.IsWhole(h.Name, p.Name) {
				e.Bar.Expect(allWork(infos))
			}
		}
	}
	for i, h := range list {
		for _, p := range peers {
			if e.Resume && r.IsWhole(h.Name, p.Name) {
				continue
			}
			r.Begin(h.Name, p.Name)
			err := measureSubject(ctx, e, r, h, all[i], p)
			if ctx.Err() != nil {
				r.Forget(h.Name, p.Name)
				return errors.Join(ctx.Err(), err)
			}
			if err != nil {
				r.Fail("%s on %s: FAILED: %v", p.Name, h.Name, err)
			} else {
				r.Whole = append(r.Whole, h.Name+"/"+p.Name)
			}
			if err := r.Keep(); err != nil {
				return err
			}
		}
	}
	return nil
}

// workOf is how much there is to do for a state, in units of the progress bar.
func workOf(t tree.Info) float64 {
	const perFile = 20_000 // bytes that take as long as a file does
	return float64(t.Bytes) + perFile*float64(t.Files)
}

// allWork is what measureSubject does: to store and to restore each state, and as much as half of both for deleting.
func allWork(infos []tree.Info) float64 {
	sum := 0.0
	for _, in := range infos {
		sum += workOf(in)
	}
	return 3 * sum
}
