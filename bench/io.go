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

// ioMount is a tree of one system, ready for programs: dir holds what fixture.lower holds. Used by one goroutine.
type ioMount interface {
	dir() string
	// cold makes the next access find no cache, neither the kernel's nor the system's.
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
	open     func(ctx context.Context, f *fixture, scratch string) (ioMount, error)
}

// ioSuite runs workloads on a local disk, on the overlays of others and on snapfs, in turn.
func ioSuite() suite {
	return suite{
		name: "io", about: "Workloads on a mounted workspace beside ext4, the kernel's overlayfs and fuse-overlayfs",
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
			var fsinfo unix.Statfs_t
			if err := unix.Statfs(e.work, &fsinfo); err != nil {
				return fmt.Errorf("statfs %s: %w", e.work, err)
			}
			if fsinfo.Type != unix.EXT4_SUPER_MAGIC {
				r.note("uppers are not on ext4 but on a file system of type %#x", fsinfo.Type)
			}
			r.transposed = true
			for i, tree := range trees {
				f, err := newFixture(ctx, e, r, tree, filepath.Join(e.work, fmt.Sprintf("io%d", i)))
				if err != nil {
					return fmt.Errorf("tree %s: %w", tree, err)
				}
				err = f.measure(ctx, e, r)
				if cerr := f.close(); err == nil {
					err = cerr
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// measure runs all rounds: in each, every session on every system in turn, another system first in each round.
func (f *fixture) measure(ctx context.Context, e *env, r *report) error {
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
	for round := range e.rounds {
		for _, session := range ioSessions() {
			for i := range systems {
				s := systems[(i+round)%len(systems)]
				if s.name == "" {
					continue
				}
				e.bar.say("%s: round %d of %d, %s on %s", f.name, round+1, e.rounds, session.name, s.name)
				err := f.runSession(ctx, e, r, samples, s, session)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if errors.Is(err, errUnsupported) {
					r.note("%s: not measured: %v", s.name, err)
					systems[(i+round)%len(systems)].name = ""
				} else if err != nil {
					r.note("%s: %s on %s failed: %v", f.name, session.name, s.name, err)
				}
			}
		}
	}
	samples.report(r, f.name)
	return nil
}

// runSession mounts a fresh tree and runs the session's workloads in it, as far as they are asked for.
func (f *fixture) runSession(ctx context.Context, e *env, r *report, samples *samples, s ioSystem, session ioSession) (err error) {
	wanted := func(w ioWorkload) bool {
		return len(e.workloads) == 0 || slices.ContainsFunc(e.workloads, func(p string) bool { return strings.HasPrefix(w.name, p) })
	}
	if !slices.ContainsFunc(session.workloads, wanted) {
		return nil
	}
	scratch, err := os.MkdirTemp(e.work, "session-")
	if err != nil {
		return fmt.Errorf("make scratch: %w", err)
	}
	m, err := s.open(ctx, f, scratch)
	if err != nil {
		return errors.Join(err, os.RemoveAll(scratch))
	}
	defer func() {
		// A tree is closed whatever became of ctx, or its mount would stay.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer cancel()
		if cerr := m.close(clean); cerr != nil {
			err = errors.Join(err, cerr) // what is still mounted must not be removed
			return
		}
		err = errors.Join(err, os.RemoveAll(scratch))
	}()
	for _, w := range session.workloads {
		// Those not asked for are skipped unless later ones stand on what they leave.
		if !wanted(w) && !w.needed {
			continue
		}
		if gone := missing(w.programs); len(gone) > 0 {
			r.note("%s: not measured, missing %s", w.name, strings.Join(gone, ", "))
			continue
		}
		if w.npm && !f.npm {
			continue // noted when the fixture was made
		}
		if w.cold {
			if err := m.cold(ctx); err != nil {
				return fmt.Errorf("%s: make cold: %w", w.name, err)
			}
		}
		unix.Sync() // what earlier workloads wrote is not this one's to wait for
		before, err := m.requests(ctx)
		if err != nil {
			return fmt.Errorf("%s: count requests: %w", w.name, err)
		}
		found, err := f.timed(ctx, w, m)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		after, err := m.requests(ctx)
		if err != nil {
			return fmt.Errorf("%s: count requests: %w", w.name, err)
		}
		if wanted(w) {
			samples.add(s.name, found)
			samples.count(s.name, w.name, before, after)
		}
	}
	return nil
}

// timed runs a workload and adds what processor time it took, of its programs and of the server of its mount.
func (f *fixture) timed(ctx context.Context, w ioWorkload, m ioMount) ([]reading, error) {
	pid, err := m.server(ctx)
	if err != nil {
		return nil, err
	}
	before, err := processTime(pid)
	if err != nil {
		return nil, err
	}
	var found []reading
	c, err := measure(func() error {
		var err error
		found, err = w.run(ctx, f, m.dir())
		return err
	})
	if err != nil {
		return nil, err
	}
	after, err := processTime(pid)
	if err != nil {
		return nil, err
	}
	if len(found) == 1 && !found[0].more {
		cpu := (c.cpu + after - before).Seconds() / float64(max(1, w.runs))
		found = append(found, reading{name: w.name + ", cpu", unit: "s", value: cpu})
	}
	return found, nil
}

// processTime is the user and system time of a process so far, in the kernel's ticks of 10 ms.
func processTime(pid int) (time.Duration, error) {
	if pid == 0 {
		return 0, nil
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("time of the server: %w", err)
	}
	// The second field is the name in parentheses; after it utime is the 12th field and stime the 13th.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("time of the server: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}
