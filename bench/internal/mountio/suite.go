package mountio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/bench/internal/chart"
	"snapfs/bench/internal/program"
	"snapfs/bench/internal/report"
	"snapfs/bench/internal/subject"
	"snapfs/bench/internal/suite"
)

// usualRounds make medians.
const usualRounds = 3

// Suite runs workloads on a local disk, on the overlays of others and on snapfs, in turn.
func Suite() suite.Suite {
	return suite.Suite{
		Name: "io", About: "Workloads on a mounted workspace beside ext4, the kernel's overlayfs and fuse-overlayfs",
		Subjects:  func() []string { return subject.Names(subjects()) },
		Workloads: workloads,
		Space:     func(*suite.Env) int64 { return 6 << 30 },
		Draw:      chart.Ratios(),
		Judge:     judge,
		Run: func(ctx context.Context, e *suite.Env, r *report.Report) error {
			if os.Geteuid() != 0 {
				return errors.New("needs root: it mounts, and drops the kernel's caches")
			}
			trees := e.Trees
			if len(trees) == 0 {
				root, err := program.Output(ctx, "go", "env", "GOROOT")
				if err != nil {
					return err
				}
				trees = []string{filepath.Join(strings.TrimSpace(string(root)), "src")}
			}
			r.Transposed = true
			if e.Rounds == 0 {
				e.Rounds = usualRounds
			}
			if e.Rounds < usualRounds {
				r.Note(
					"%d of %d rounds: ratios near a floor prove nothing; 'bench io' and --full run all", e.Rounds,
					usualRounds,
				)
			}
			for i, tree := range trees {
				scratch := filepath.Join(e.Work, fmt.Sprintf("io%d", i))
				if err := os.Mkdir(scratch, 0o755); err != nil {
					return fmt.Errorf("make scratch: %w", err)
				}
				if err := measureTree(ctx, e, r, tree, scratch); err != nil {
					return fmt.Errorf("tree %s: %w", tree, err)
				}
			}
			return nil
		},
	}
}

func workloads() []string {
	var names []string
	for _, s := range sessions() {
		for _, w := range s.workloads {
			names = append(names, w.name)
		}
	}
	return names
}

// measureTree makes a disk and a fixture of the tree, runs everything, and leaves nothing behind.
func measureTree(ctx context.Context, e *suite.Env, r *report.Report, tree, scratch string) (err error) {
	files, bytes, err := count(tree)
	if err != nil {
		return err
	}
	d, err := openDisk(ctx, e.Disk, scratch, bytes)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := d.close(); err == nil {
			err = cerr
		}
	}()
	var fsinfo unix.Statfs_t
	if err := unix.Statfs(d.dir, &fsinfo); err != nil {
		return fmt.Errorf("statfs %s: %w", d.dir, err)
	}
	if fsinfo.Type != unix.EXT4_SUPER_MAGIC {
		r.Note("uppers are not on ext4 but on a file system of type %#x", fsinfo.Type)
	}
	f, err := newFixture(ctx, e, r, tree, d.dir)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.close(); err == nil {
			err = cerr
		}
	}()
	f.repeat = repeats(files, bytes)
	r.About[f.name] = fmt.Sprintf(
		"%d files, %.0f MB; lower in the chunk store, everything on %s; medians of %d rounds, interleaved", files,
		float64(bytes)/1e6, d.about, e.Rounds,
	)
	if f.repeat > 1 {
		r.About[f.name] += fmt.Sprintf("; untar, checkout and rm of the upper %d times in a row", f.repeat)
	}
	return f.measure(ctx, e, r, d)
}

// count counts the files of a tree and their bytes, without its repositories.
func count(tree string) (files int, bytes int64, err error) {
	err = filepath.WalkDir(tree, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == ".git" && d.IsDir() {
			return fs.SkipDir
		}
		if !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err == nil {
			files++
			bytes += info.Size()
		}
		return err
	})
	return files, bytes, err
}

// repeats is how often a workload that changes the whole tree runs in one sample: a small tree often enough for some
// tenths of a second on the fastest system.
func repeats(files int, bytes int64) int {
	const enoughFiles, enoughBytes = 4000, 256 << 20
	byFiles := (enoughFiles + files - 1) / max(1, files)
	byBytes := int((enoughBytes + bytes - 1) / max(1, bytes))
	return max(1, min(byFiles, byBytes, 50))
}

// measure runs all rounds: in each, every session on every system in turn, another system first in each round.
func (f *fixture) measure(ctx context.Context, e *suite.Env, r *report.Report, d *disk) error {
	systems := subject.Available(subjects(), e.Wants, r.Note)
	refused := map[string]bool{} // what cannot be used here
	samples := newSamples()
	sessions := sessions()
	e.Bar.Expect(float64(e.Rounds * len(sessions) * len(systems)))
	for round := range e.Rounds {
		for _, session := range sessions {
			for i := range systems {
				s := systems[(i+round)%len(systems)]
				e.Bar.Say("%s: round %d of %d, %s on %s", f.name, round+1, e.Rounds, session.name, s.Name)
				e.Bar.Did(1)
				if refused[s.Name] || round > 0 && session.once {
					continue
				}
				err := f.runSession(ctx, e, r, samples, s, session)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if errors.Is(err, subject.ErrNotOffered) {
					r.Note("%s: not measured: %v", s.Name, err)
					refused[s.Name] = true
				} else if err != nil {
					r.Note("%s: %s on %s failed: %v", f.name, session.name, s.Name, err)
				}
				if err := d.trim(ctx); err != nil {
					return err
				}
			}
		}
	}
	samples.report(r, f.name)
	return nil
}
