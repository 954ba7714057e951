package scale

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"snapfs/bench/internal/engine"
	"snapfs/bench/internal/report"
	"snapfs/bench/internal/snapfs"
	"snapfs/bench/internal/suite"
	"snapfs/bench/internal/tree"
	"snapfs/sandbox"
)

// daysOfMonth is how many days have a row of their own together.
const daysOfMonth = 30

// agent works in a directory as a coding agent does: each turn edits sources and writes to a log; some build a program,
// write to a database, or install packages. All of it is drawn from a seed.
type agent struct {
	dir   string
	r     *rand.Rand
	words [][]byte
	prog  []byte
	db    []byte
}

// newAgent makes what the agent begins with.
func newAgent(dir string) (*agent, error) {
	a := &agent{dir: dir, r: rand.New(rand.NewPCG(20, 26))}
	for range 2000 {
		a.words = append(a.words, fmt.Appendf(nil, "w%d", a.r.Uint32N(1e6)))
	}
	a.prog = append(a.text(1<<20), a.noise(3<<20)...)
	a.db = append(a.text(1<<20), a.noise(1<<20)...)
	errs := []error{a.write("bin/prog", a.prog), a.write("db.sqlite", a.db)}
	for i := range 300 {
		errs = append(errs, a.write(source(i), a.text(500+a.r.IntN(20_000))))
	}
	return a, errors.Join(errs...)
}

func source(i int) string { return fmt.Sprintf("src/p%d/f%d.go", i%20, i) }

func (a *agent) text(n int) []byte {
	var b []byte
	for len(b) < n {
		b = append(append(b, a.words[a.r.IntN(len(a.words))]...), " \n"[a.r.IntN(2)])
	}
	return b[:n]
}

func (a *agent) noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(a.r.Uint32())
	}
	return b
}

func (a *agent) write(name string, data []byte) error {
	path := filepath.Join(a.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// turn makes the changes of one turn.
func (a *agent) turn() error {
	r := a.r
	for range 1 + r.IntN(4) {
		name := source(r.IntN(300))
		old, err := os.ReadFile(filepath.Join(a.dir, name))
		if err != nil {
			return err
		}
		at := r.IntN(len(old))
		next := slices.Concat(old[:at], a.text(20+r.IntN(500)), old[min(len(old), at+r.IntN(400)):])
		if err := a.write(name, next); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(filepath.Join(a.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(a.text(500 + r.IntN(4000)))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if r.IntN(5) == 0 {
		for range 12 {
			copy(a.prog[r.IntN(len(a.prog)-1<<14):], a.noise(1000+r.IntN(15_000)))
		}
		err = a.write("bin/prog", a.prog)
	}
	if err == nil && r.IntN(2) == 0 {
		for range 8 {
			copy(a.db[r.IntN(len(a.db)/4096)*4096:], a.text(4096))
		}
		err = a.write("db.sqlite", a.db)
	}
	if err == nil && r.IntN(60) == 0 {
		err = a.install()
	}
	return err
}

// install replaces half of the packages.
func (a *agent) install() error {
	const packages, files = 20, 15

	for range packages / 2 {
		dir := fmt.Sprintf("node_modules/m%d", a.r.IntN(packages))
		if err := os.RemoveAll(filepath.Join(a.dir, dir)); err != nil {
			return err
		}
		for i := range files {
			if err := a.write(fmt.Sprintf("%s/lib/%d.js", dir, i), a.text(300+a.r.IntN(8000))); err != nil {
				return err
			}
		}
	}
	return nil
}

// kept is a snapshot of a turn.
type kept struct {
	id   string
	turn int
}

// year is a home at work.
type year struct {
	s    *engine.Daemon
	h    *snapfs.Workspace
	a    *agent
	g    *grown
	n    limits
	all  []kept
	took []time.Duration // of snapshot calls since the last row

	upkeep       time.Duration // since the last row
	freed, moved int64         // by collections, since the last row
	worst        float64       // most of what the store took for what is needed, at the end of a day
}

// growDays works turn by turn, with a snapshot of each. Every night old snapshots are deleted, and the home is
// collected and optimized, while the workspace stays mounted. Rows are months.
func growDays(ctx context.Context, e *suite.Env, g *grown, n limits) error {
	return withHome(ctx, e, func(s *engine.Daemon, tmp string) error {
		h, err := mountNew(ctx, s, tmp)
		if err != nil {
			return err
		}
		a, err := newAgent(h.Dir())
		if err != nil {
			return err
		}
		y := &year{s: s, h: h, a: a, g: g, n: n}
		for day := 1; day <= n.days; day++ {
			if err := y.day(ctx); err != nil {
				return fmt.Errorf("day %d: %w", day, err)
			}
			e.Bar.Step("days", day, n.days)
			if day%daysOfMonth == 0 || day == n.days {
				if err := y.row(ctx, day); err != nil {
					return err
				}
			}
		}
		return y.afresh(ctx, e, tmp)
	})
}

func (y *year) day(ctx context.Context) error {
	for range y.n.turns {
		if err := y.a.turn(); err != nil {
			return err
		}
		start := time.Now()
		id, err := y.h.Snapshot(ctx, false)
		if err != nil {
			return err
		}
		y.took = append(y.took, time.Since(start))
		turn := 1
		if len(y.all) > 0 {
			turn = y.all[len(y.all)-1].turn + 1
		}
		y.all = append(y.all, kept{id, turn})
	}
	// A branch of the morning's state, which is given up.
	dir, err := y.h.Restore(ctx, y.all[len(y.all)-y.n.turns].id)
	if err != nil {
		return err
	}
	err = os.WriteFile(filepath.Join(dir, "branched"), y.a.text(10_000), 0o644)
	if err = errors.Join(err, y.h.Unrestore(ctx, dir)); err != nil {
		return err
	}
	return y.night(ctx)
}

// keeps is the policy: the last 10 turns, one in 5 of two days, one of each day of a month, and one of each week.
func (y *year) keeps(k kept) bool {
	day := y.n.turns
	age := y.all[len(y.all)-1].turn - k.turn
	last := k.turn%day == 0
	return age < 10 || age < 2*day && k.turn%5 == 0 || age < daysOfMonth*day && last || last && k.turn/day%7 == 0
}

// night deletes snapshots and keeps house.
func (y *year) night(ctx context.Context) error {
	left := y.all[:0:0]
	for _, k := range y.all {
		if y.keeps(k) {
			left = append(left, k)
			continue
		}
		if err := y.h.Delete(ctx, k.id); err != nil {
			return err
		}
	}
	y.all = left
	before, err := y.s.API.Stats(ctx, sandbox.StatsRequest{})
	if err != nil {
		return err
	}
	start := time.Now()
	for _, r := range []sandbox.GCRequest{{}, {Optimize: true}} { // as an idle home does
		got, err := y.s.API.GC(ctx, r)
		if err != nil {
			return err
		}
		y.freed += got.Dropped
	}
	y.upkeep += time.Since(start)
	after, err := y.s.API.Stats(ctx, sandbox.StatsRequest{})
	if err != nil {
		return err
	}
	y.moved += after.Moved - before.Moved
	y.worst = max(y.worst, ratio(after.Stored+after.Reclaimable, after.Stored))
	return nil
}

func ratio(a, b int64) float64 { return float64(a) / float64(max(b, 1)) }

// row adds the figures of a month.
func (y *year) row(ctx context.Context, day int) error {
	st, err := y.s.API.Stats(ctx, sandbox.StatsRequest{})
	if err != nil {
		return err
	}
	journals, err := filepath.Glob(filepath.Join(y.s.Home, "store/packs/*.journal"))
	if err != nil {
		return err
	}
	journal := int64(0)
	for _, path := range journals {
		fi, err := os.Stat(path)
		if err != nil {
			return err
		}
		journal += fi.Size()
	}
	size := int64(day)
	y.g.add(size, "snapshots kept", "", float64(len(y.all)))
	y.g.add(size, "bytes of records", "MB", float64(st.Stored+st.Reclaimable)/1e6)
	y.g.add(size, "of these needed", "MB", float64(st.Stored)/1e6)
	y.g.add(size, "most by what is needed", "", y.worst)
	y.g.add(size, "new data", "MB", float64(st.Written)/1e6)
	y.g.add(size, "written by what was new", "", ratio(st.Written+st.Moved, st.Written))
	y.g.add(size, "moved", "MB", float64(y.moved)/1e6)
	y.g.add(size, "freed", "MB", float64(y.freed)/1e6)
	y.g.add(size, "index", "MB", float64(st.Index)/1e6)
	y.g.add(size, "journal", "MB", float64(journal)/1e6)
	y.g.add(size, "upkeep", "s", y.upkeep.Seconds())
	y.g.addTimes(size, "snapshot", y.took)
	y.g.add(size, "snapshot p99.9", "ms", report.Milliseconds(y.took[(len(y.took)-1)*999/1000]))
	y.took, y.upkeep, y.freed, y.moved, y.worst = nil, 0, 0, 0, 0
	return y.g.state(size, y.s)
}

// afresh stores what is kept in a home of its own, and compares the packs of both.
func (y *year) afresh(ctx context.Context, e *suite.Env, tmp string) error {
	s, err := engine.Start(ctx, e.Engine(), filepath.Join(tmp, "fresh"))
	if err != nil {
		return err
	}
	return errors.Join(y.storeAfresh(ctx, s, filepath.Join(tmp, "fresh-at")), s.Stop())
}

func (y *year) storeAfresh(ctx context.Context, s *engine.Daemon, tmp string) error {
	h := snapfs.NewWorkspace(s, tmp)
	if _, err := s.API.Create(ctx, sandbox.CreateRequest{Name: "w"}); err != nil {
		return err
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return err
	}
	if _, err := s.API.Mount(
		ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: h.Dir(), MakeMountpoint: true},
	); err != nil {
		return err
	}
	for _, k := range y.all {
		dir, err := y.h.Restore(ctx, k.id)
		if err != nil {
			return err
		}
		err = tree.Mirror(ctx, dir, h.Dir())
		if err = errors.Join(err, y.h.Unrestore(ctx, dir)); err != nil {
			return err
		}
		if _, err := s.API.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", WaitStored: true}); err != nil {
			return err
		}
	}
	if _, err := s.API.GC(ctx, sandbox.GCRequest{Optimize: true}); err != nil {
		return err
	}
	fresh, err := s.API.Stats(ctx, sandbox.StatsRequest{})
	if err != nil {
		return err
	}
	st, err := y.s.API.Stats(ctx, sandbox.StatsRequest{})
	if err != nil {
		return err
	}
	size := int64(y.n.days)
	y.g.add(size, "records if stored afresh", "MB", float64(fresh.Stored+fresh.Reclaimable)/1e6)
	y.g.add(size, "by records if stored afresh", "", ratio(st.Stored+st.Reclaimable, fresh.Stored+fresh.Reclaimable))
	return nil
}
