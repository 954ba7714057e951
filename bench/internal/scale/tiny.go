package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"snapfs/bench/internal/cost"
	"snapfs/bench/internal/engine"
	"snapfs/bench/internal/suite"
	"snapfs/bench/internal/tree"
	"snapfs/chunkstore"
	"snapfs/sandbox"
	"snapfs/squashfs"
)

// growTiny stores trees of more and more tiny files that are generated, in this process: no disk is read, so that the
// figures are those of the writer of images and of the store.
func growTiny(ctx context.Context, e *suite.Env, g *grown, n limits) error {
	for _, files := range n.tiny {
		e.Bar.Say("%d generated files of %d bytes", files, tinySize)
		if err := storeTiny(ctx, e, g, files); err != nil {
			return err
		}
	}
	return nil
}

func storeTiny(ctx context.Context, e *suite.Env, g *grown, files int) (err error) {
	tmp, err := os.MkdirTemp(e.Work, "scale-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	debug.FreeOSMemory()
	if err := cost.ResetPeak(); err != nil {
		return err
	}
	dir := filepath.Join(tmp, "store")
	s, err := chunkstore.Open(dir, chunkstore.Options{})
	if err != nil {
		return err
	}
	start := time.Now()
	in, err := s.NewIngest(ctx, chunkstore.IngestOptions{
		Kind: chunkstore.KindImage, HeaderSize: squashfs.HeaderSize,
	})
	if err != nil {
		return errors.Join(err, s.Close())
	}
	defer in.Abort()
	rate := rates{start: start, last: start, step: int64(max(files/10, 1))}
	_, err = squashfs.WriteStore(ctx, tinySink{in}, tinySource{files}, squashfs.StoreOptions{
		TempDir: tmp,
		Progress: func(files, _ int64) {
			rate.seen(files)
		},
	})
	if err == nil {
		_, err = in.Commit(ctx, nil)
	}
	if err != nil {
		return errors.Join(err, s.Close())
	}
	took := time.Since(start)
	peak, err := cost.Peak(os.Getpid())
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	size, err := tree.Allocated(dir)
	if err != nil {
		return err
	}
	g.add(int64(files), "files/s of all", "1/s", float64(files)/took.Seconds())
	g.add(int64(files), "files/s of the first tenth", "1/s", rate.first)
	g.add(int64(files), "files/s of the slowest tenth", "1/s", rate.slowest)
	g.add(int64(files), "files/s of the last tenth", "1/s", rate.newest)
	g.add(int64(files), "peak memory", "MiB", float64(peak)/(1<<20))
	g.add(int64(files), "store", "MB", float64(size)/1e6)
	return nil
}

// rates follows how fast files are taken.
type rates struct {
	start, last            time.Time
	step, next             int64
	first, slowest, newest float64 // files per second, of tenths
}

func (r *rates) seen(files int64) {
	if r.next == 0 {
		r.next = r.step
	}
	if files < r.next {
		return
	}
	r.next += r.step
	now := time.Now()
	r.newest = float64(r.step) / now.Sub(r.last).Seconds()
	r.last = now
	if r.first == 0 {
		r.first, r.slowest = r.newest, r.newest
	}
	r.slowest = min(r.slowest, r.newest)
}

// tinySink gives the chunk store the cuts of an image.
type tinySink struct{ *chunkstore.Ingest }

func (k tinySink) Cut(c squashfs.Cut) error {
	return k.Hint(chunkstore.Hint{Path: c.Path, Size: c.Size})
}

// growTinyOnDisk imports trees of tiny files from the disk, as users do.
func growTinyOnDisk(ctx context.Context, e *suite.Env, g *grown, n limits) error {
	for _, files := range n.tinyOnDisk {
		e.Bar.Say("%d files of %d bytes on the disk", files, tinySize)
		err := withHome(ctx, e, func(s *engine.Daemon, tmp string) error {
			source := filepath.Join(tmp, "tree")
			if err := makeTiny(ctx, source, files); err != nil {
				return err
			}
			start := time.Now()
			if _, err := s.API.Create(ctx, sandbox.CreateRequest{Name: "w", Source: source}); err != nil {
				return err
			}
			g.add(int64(files), "files/s", "1/s", float64(files)/time.Since(start).Seconds())
			peak, err := s.PeakMemory()
			if err != nil {
				return err
			}
			g.add(int64(files), "peak memory", "MiB", float64(peak)/(1<<20))
			return g.state(int64(files), s)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// makeTiny makes the tree of a tinySource.
func makeTiny(ctx context.Context, dir string, files int) error {
	for i := range files {
		in := filepath.Join(
			dir, fmt.Sprintf("d%08d", i/(tinyDir*tinyDir)*tinyDir*tinyDir), fmt.Sprintf("d%08d", i/tinyDir*tinyDir),
		)
		if i%tinyDir == 0 {
			if err := errors.Join(ctx.Err(), os.MkdirAll(in, 0o755)); err != nil {
				return err
			}
		}
		name := filepath.Join(in, fmt.Sprintf("f%08d", i))
		if err := os.WriteFile(name, tinyFile(i).contents(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
