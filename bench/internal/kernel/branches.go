package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/bench/internal/caches"
	"snapfs/bench/internal/engine"
	"snapfs/bench/internal/report"
	"snapfs/bench/internal/scratch"
	"snapfs/bench/internal/suite"
	"snapfs/sandbox"
	"snapfs/sandbox/api"
)

// The tree that all branches have.
const (
	treeFiles = 2000
	treeFile  = 50 << 10 // bytes of each file
)

// Names of metrics that something is demanded of.
const (
	pageCacheOfAll = "page cache of all / of one"
	fuseMounts     = "FUSE mounts"
)

// sharing is a system that mounts a tree many times.
type sharing interface {
	mount(ctx context.Context, i int) (dir string, err error)
	unmount(ctx context.Context, i int) error
}

// measureBranches mounts a tree many times and reads all of it in each of the mounts.
func measureBranches(ctx context.Context, e *suite.Env, r *results, n limits) error {
	return withHome(ctx, e, func(s *engine.Daemon, tmp string) error {
		source := filepath.Join(tmp, "tree")
		if err := makeRandom(source, treeFiles, treeFile, 1); err != nil {
			return err
		}
		if r.subject == overlayfs {
			return shared(ctx, e, r, n.branches, plainOverlays{source, tmp}, nil)
		}
		if _, err := s.API.Create(ctx, sandbox.CreateRequest{Name: "w", Source: source}); err != nil {
			return err
		}
		snap, err := s.API.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w", WaitStored: true})
		if err != nil {
			return err
		}
		return shared(ctx, e, r, n.branches, branches{s, snap.ID, tmp}, s)
	})
}

// shared measures what so many mounts share. s is the daemon that has a part in them, or nil.
func shared(ctx context.Context, e *suite.Env, r *results, n int, x sharing, s *engine.Daemon) (err error) {
	mounted := 0
	defer func() { // by others than the measurement, if that failed
		for i := range mounted {
			err = errors.Join(err, x.unmount(context.WithoutCancel(ctx), i))
		}
	}()
	var dirs []string
	var took []time.Duration
	mount := func() error {
		start := time.Now()
		dir, err := x.mount(ctx, mounted)
		if err != nil {
			return err
		}
		took = append(took, time.Since(start))
		mounted++
		dirs = append(dirs, dir)
		return nil
	}
	if err := mount(); err != nil {
		return err
	}
	one, err := cachesOf(ctx, dirs)
	if err != nil {
		return err
	}
	memory, err := memoryOf(s)
	if err != nil {
		return err
	}
	for mounted < n {
		if err := mount(); err != nil {
			return err
		}
		e.Bar.Step("mounts, "+r.subject, mounted, n)
	}
	addTimes(r, "mount", took)
	all, err := cachesOf(ctx, dirs)
	if err != nil {
		return err
	}
	r.add("page cache of one", "MB", float64(one.pages)/1e6)
	r.add("page cache of all", "MB", float64(all.pages)/1e6)
	r.add(pageCacheOfAll, "", float64(all.pages)/float64(one.pages))
	r.add("slab of one", "MB", float64(one.slab)/1e6)
	r.add("slab of all", "MB", float64(all.slab)/1e6)
	r.add("slab of each name", "bytes", float64(all.slab-one.slab)/float64(max(1, n-1))/treeFiles)
	if s != nil {
		now, err := memoryOf(s)
		if err != nil {
			return err
		}
		r.add("memory of the daemon", "MiB", now/(1<<20))
		r.add("memory of the daemon, each mount more", "KiB", (now-memory)/(1<<10)/float64(max(1, n-1)))
		count, err := countFUSE(s.Home)
		if err != nil {
			return err
		}
		r.add(fuseMounts, "", float64(count))
	}
	took = nil
	for mounted > 0 {
		start := time.Now()
		if err := x.unmount(ctx, mounted-1); err != nil {
			return err
		}
		mounted--
		took = append(took, time.Since(start))
		e.Bar.Step("unmounted, "+r.subject, n-mounted, n)
	}
	addTimes(r, "unmount", took)
	return nil
}

func memoryOf(s *engine.Daemon) (float64, error) {
	if s == nil {
		return 0, nil
	}
	m, err := s.Memory()
	return float64(m), err
}

func addTimes(r *results, what string, took []time.Duration) {
	ms := make([]float64, len(took))
	for i, d := range took {
		ms[i] = report.Milliseconds(d)
	}
	slices.Sort(ms)
	r.add(what+" p50", "ms", report.Median(ms))
	r.add(what+" p99", "ms", ms[min(len(ms)-1, len(ms)*99/100)])
}

// makeRandom makes files that do not compress.
func makeRandom(dir string, files, size int, seed byte) error {
	rng := rand.NewChaCha8([32]byte{seed})
	b := make([]byte, size)
	for i := range files {
		path := filepath.Join(dir, fmt.Sprintf("d%03d/f%05d", i/100, i))
		if i%100 == 0 {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
		}
		_, _ = rng.Read(b) // it cannot fail
		if err := os.WriteFile(path, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// cached is what the kernel keeps in memory, in bytes.
type cached struct{ pages, slab int64 }

// cachesOf tells what the kernel's caches grow by when all files of some directories are read, from none.
func cachesOf(ctx context.Context, dirs []string) (cached, error) {
	if err := caches.Empty(); err != nil {
		return cached{}, err
	}
	before, err := cachedNow()
	if err != nil {
		return cached{}, err
	}
	for _, dir := range dirs {
		if err := errors.Join(ctx.Err(), readAll(dir)); err != nil {
			return cached{}, err
		}
	}
	now, err := cachedNow()
	return cached{now.pages - before.pages, now.slab - before.slab}, err
}

// cachedNow reads what /proc/meminfo calls Cached and SReclaimable.
func cachedNow() (cached, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return cached{}, err
	}
	var c cached
	for line := range bytes.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), ":")
		into := map[string]*int64{"Cached": &c.pages, "SReclaimable": &c.slab}[name]
		if into == nil {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return cached{}, fmt.Errorf("/proc/meminfo: %s: %w", name, err)
		}
		*into = kb << 10
	}
	return c, nil
}

func readAll(dir string) error {
	buf := make([]byte, 128<<10)
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, buf)
		return errors.Join(err, f.Close())
	})
}

// countFUSE counts the FUSE mounts below a directory.
func countFUSE(dir string) (int, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return 0, err
	}
	count := 0
	for line := range bytes.Lines(text) {
		head, tail, _ := strings.Cut(string(line), " - ")
		fields := strings.Fields(head)
		if len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") && strings.HasPrefix(tail, "fuse") {
			count++
		}
	}
	return count, nil
}

// branches are workspaces of the kernel engine, of one snapshot.
type branches struct {
	daemon   *engine.Daemon
	snapshot string
	tmp      string
}

func (b branches) mount(ctx context.Context, i int) (string, error) {
	dir := filepath.Join(b.tmp, fmt.Sprintf("b%05d", i))
	_, err := b.daemon.API.Branch(ctx, sandbox.RestoreRequest{
		Snapshot: b.snapshot, Name: filepath.Base(dir), Mountpoint: dir, MakeMountpoint: true,
		MountOptions: sandbox.MountOptions{Engine: api.EngineKernel},
	})
	return dir, err
}

func (b branches) unmount(ctx context.Context, i int) error {
	_, err := b.daemon.API.Unmount(ctx, sandbox.UnmountRequest{Workspace: fmt.Sprintf("b%05d", i)})
	return err
}

// plainOverlays are mounts of the kernel's overlayfs over a directory.
type plainOverlays struct{ source, tmp string }

func (p plainOverlays) mount(_ context.Context, i int) (string, error) {
	at := filepath.Join(p.tmp, fmt.Sprintf("o%05d", i))
	dirs := map[string]string{}
	for _, name := range []string{"upper", "work", "mnt"} {
		dirs[name] = filepath.Join(at, name)
		if err := os.MkdirAll(dirs[name], 0o755); err != nil {
			return "", err
		}
	}
	options := "lowerdir=" + p.source + ",upperdir=" + dirs["upper"] + ",workdir=" + dirs["work"] +
		",redirect_dir=on,metacopy=off"
	if err := unix.Mount("overlay", dirs["mnt"], "overlay", 0, options); err != nil {
		return "", fmt.Errorf("mount overlayfs: %w", err)
	}
	return dirs["mnt"], nil
}

func (p plainOverlays) unmount(_ context.Context, i int) error {
	return scratch.Unmount(filepath.Join(p.tmp, fmt.Sprintf("o%05d", i), "mnt"))
}
