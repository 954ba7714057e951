package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ioMount is a tree of one system, ready for programs: dir holds what fixture.lower holds. Used by one goroutine.
type ioMount interface {
	dir() string
	// cold makes the next access find no cache, neither the kernel's nor the system's. What programs of its own the system has are
	// cached, as they are part of no tree.
	cold(ctx context.Context) error
	// requests counts what the kernel has asked of the server since it was mounted, by kind; nil where there is no server.
	requests(ctx context.Context) (map[string]uint64, error)
	// server is the process that serves the mount, 0 where the kernel does.
	server(ctx context.Context) (pid int, err error)
	close(ctx context.Context) error
}

// ioSystem is a way to put a writable tree over a read-only one.
type ioSystem struct {
	name     string
	programs []string
	// open mounts a fresh tree in scratch; parts are those of the fixture that will be used, if it is cheaper to have them only.
	open    func(ctx context.Context, f *fixture, scratch string, parts []string) (ioMount, error)
	refused bool // it cannot be used here, see errUnsupported
}

// usualRounds make medians.
const usualRounds = 3

// ioSuite runs workloads on a local disk, on the overlays of others and on snapfs, in turn.
func ioSuite() suite {
	return suite{
		name: "io", about: "Workloads on a mounted workspace beside ext4, the kernel's overlayfs and fuse-overlayfs",
		subjects:  ioSubjects,
		workloads: ioWorkloads,
		space:     func(*env) int64 { return 6 << 30 },
		run: func(ctx context.Context, e *env, r *report) error {
			if os.Geteuid() != 0 {
				return errors.New("needs root: it mounts, and drops the kernel's caches")
			}
			trees := e.trees
			if len(trees) == 0 {
				root, err := tool{}.output(ctx, "go", "env", "GOROOT")
				if err != nil {
					return err
				}
				trees = []string{filepath.Join(strings.TrimSpace(string(root)), "src")}
			}
			r.Transposed = true
			if e.rounds == 0 {
				e.rounds = usualRounds
			}
			if e.rounds < usualRounds {
				r.note("%d of %d rounds: ratios near a floor prove nothing; 'bench io' and --full run all", e.rounds, usualRounds)
			}
			for i, tree := range trees {
				scratch := filepath.Join(e.work, fmt.Sprintf("io%d", i))
				if err := os.Mkdir(scratch, 0o755); err != nil {
					return fmt.Errorf("make scratch: %w", err)
				}
				if err := measureTree(ctx, e, r, tree, scratch); err != nil {
					return fmt.Errorf("tree %s: %w", tree, err)
				}
			}
			r.judge()
			return nil
		},
	}
}

func ioSubjects() []string {
	var names []string
	for _, s := range ioSystems() {
		names = append(names, s.name)
	}
	return names
}

func ioWorkloads() []string {
	var names []string
	for _, s := range ioSessions() {
		for _, w := range s.workloads {
			names = append(names, w.name)
		}
	}
	return names
}

// measureTree makes a disk and a fixture of the tree, runs everything, and leaves nothing behind.
func measureTree(ctx context.Context, e *env, r *report, tree, scratch string) (err error) {
	files, bytes, err := count(tree)
	if err != nil {
		return err
	}
	d, err := openDisk(ctx, e.disk, scratch, bytes)
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
		r.note("uppers are not on ext4 but on a file system of type %#x", fsinfo.Type)
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
	r.About[f.name] = fmt.Sprintf("%d files, %.0f MB; lower in the chunk store, everything on %s; medians of %d rounds, interleaved",
		files, float64(bytes)/1e6, d.about, e.rounds)
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

// repeats is how often a workload that changes the whole tree runs in one sample: a small tree often enough for some tenths of
// a second on the fastest system.
func repeats(files int, bytes int64) int {
	const enoughFiles, enoughBytes = 4000, 256 << 20
	byFiles := (enoughFiles + files - 1) / max(1, files)
	byBytes := int((enoughBytes + bytes - 1) / max(1, bytes))
	return max(1, min(byFiles, byBytes, 50))
}

// measure runs all rounds: in each, every session on every system in turn, another system first in each round.
func (f *fixture) measure(ctx context.Context, e *env, r *report, d *disk) error {
	var systems []ioSystem
	for _, s := range ioSystems() {
		if !e.wants(s.name) {
			continue
		}
		if gone := missing(s.programs); len(gone) > 0 {
			r.note("%s: not measured, missing %s", s.name, strings.Join(gone, ", "))
			continue
		}
		systems = append(systems, s)
	}
	samples := newSamples()
	sessions := ioSessions()
	e.bar.expect(float64(e.rounds * len(sessions) * len(systems)))
	for round := range e.rounds {
		for _, session := range sessions {
			for i := range systems {
				s := &systems[(i+round)%len(systems)]
				e.bar.say("%s: round %d of %d, %s on %s", f.name, round+1, e.rounds, session.name, s.name)
				e.bar.did(1)
				if s.refused || round > 0 && session.once {
					continue
				}
				err := f.runSession(ctx, e, r, samples, *s, session)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if errors.Is(err, errUnsupported) {
					r.note("%s: not measured: %v", s.name, err)
					s.refused = true
				} else if err != nil {
					r.note("%s: %s on %s failed: %v", f.name, session.name, s.name, err)
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
