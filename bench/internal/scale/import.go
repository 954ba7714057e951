package scale

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/bench/internal/cost"
	"snapfs/bench/internal/engine"
	"snapfs/bench/internal/program"
	"snapfs/bench/internal/report"
	"snapfs/bench/internal/suite"
	"snapfs/bench/internal/tree"
	"snapfs/sandbox"
)

// importFirst imports a tree for the first time, with one processor and with all, and has other programs store it.
func importFirst(ctx context.Context, e *suite.Env, g *grown, n limits) (err error) {
	tmp, err := os.MkdirTemp(e.Work, "scale-")
	if err != nil {
		return err
	}
	source := filepath.Join(tmp, "tree")
	if len(e.Trees) > 0 {
		source = e.Trees[0]
	} else if err := makeSources(ctx, source, n.imported); err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	if _, err := tree.Inspect(ctx, source); err != nil { // all of them read it out of the kernel's cache
		return errors.Join(err, os.RemoveAll(tmp))
	}
	g.r.About[g.what] = fmt.Sprintf("a tree of %s, out of the kernel's cache", sourceName(e, n))
	for _, s := range importers() {
		if len(program.Missing(s.programs)) > 0 {
			e.Bar.Say("%s is not installed", s.name)
			continue
		}
		wall := map[int]time.Duration{}
		for _, procs := range []int{1, runtime.NumCPU()} {
			e.Bar.Say("%s, %d processors", s.name, procs)
			dir := filepath.Join(tmp, fmt.Sprintf("%s-%d", s.name, procs))
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			c, err := withProcessors(procs, func() (cost.Cost, error) { return s.store(ctx, e, source, dir) })
			if err != nil {
				return err // what may be in use must not be removed; the run's end does that
			}
			size, err := tree.Allocated(dir)
			if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
				return err
			}
			wall[procs] = c.Wall
			row := fmt.Sprintf("%s, processors: %d", s.name, procs)
			g.r.Add(report.Metric{Case: g.what, Subject: row, Name: "wall", Unit: "s", Value: c.Wall.Seconds()})
			g.r.Add(report.Metric{Case: g.what, Subject: row, Name: "CPU", Unit: "s", Value: c.CPU.Seconds()})
			g.r.Add(report.Metric{Case: g.what, Subject: row, Name: "stored", Unit: "MB", Value: float64(size) / 1e6})
			g.r.Add(report.Metric{
				Case: g.what, Subject: row, Name: "times as fast as one processor", Unit: "",
				Value: wall[1].Seconds() / c.Wall.Seconds(),
			})
		}
	}
	return os.RemoveAll(tmp)
}

func sourceName(e *suite.Env, n limits) string {
	if len(e.Trees) > 0 {
		return filepath.Base(e.Trees[0])
	}
	return fmt.Sprintf("%d files like sources", n.imported)
}

// importer stores a tree in an empty directory.
type importer struct {
	name     string
	programs []string
	store    func(ctx context.Context, e *suite.Env, source, dir string) (cost.Cost, error)
}

func importers() []importer {
	return []importer{
		{name: "snapfs", store: importSnapfs},
		{"restic", []string{"restic"}, func(ctx context.Context, _ *suite.Env, source, dir string) (cost.Cost, error) {
			t := program.Setup{Dir: source, Env: []string{
				"RESTIC_REPOSITORY=" + dir, "RESTIC_PASSWORD=bench", "RESTIC_CACHE_DIR=" + dir + "/.cache",
			}}
			if err := t.Run(ctx, "restic", "init", "--quiet"); err != nil {
				return cost.Cost{}, err
			}
			return cost.Measure(func() error { return t.Run(ctx, "restic", "backup", ".", "--quiet", "--host", "bench") })
		}},
		{
			"mksquashfs zstd",
			[]string{"mksquashfs"},
			func(ctx context.Context, _ *suite.Env, source, dir string) (cost.Cost, error) {
				return cost.Measure(func() error {
					return program.Run(
						ctx, "mksquashfs", source, filepath.Join(dir, "image"), "-comp", "zstd", "-no-progress", "-quiet",
					)
				})
			},
		},
	}
}

// importSnapfs measures the API's call, with the daemon's processor time.
func importSnapfs(ctx context.Context, e *suite.Env, source, dir string) (c cost.Cost, err error) {
	s, err := engine.Start(ctx, e.Engine(), filepath.Join(dir, "home"))
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	before, err := s.CPU()
	if err != nil {
		return c, err
	}
	start := time.Now()
	if _, err := s.API.Create(ctx, sandbox.CreateRequest{Name: "w", Source: source}); err != nil {
		return c, err
	}
	c.Wall = time.Since(start)
	after, err := s.CPU()
	c.CPU = after - before
	return c, err
}

// withProcessors runs fn, and the programs that it starts, on so many processors.
func withProcessors(n int, fn func() (cost.Cost, error)) (c cost.Cost, err error) {
	runtime.LockOSThread() // programs inherit the set of the thread that starts them
	defer runtime.UnlockOSThread()
	var all, some unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return c, err
	}
	for cpu := 0; some.Count() < min(n, all.Count()); cpu++ {
		if all.IsSet(cpu) {
			some.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &some); err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, unix.SchedSetaffinity(0, &all)) }()
	return fn()
}

// makeSources makes a tree like those of sources: files of words, of 6 KB on average, in directories of twenty.
func makeSources(ctx context.Context, dir string, files int) error {
	r := rand.New(rand.NewPCG(6, 1))
	words := make([]string, 20_000)
	for i := range words {
		word := make([]byte, 2+r.IntN(9))
		for k := range word {
			word[k] = byte('a' + r.IntN(26))
		}
		words[i] = string(word)
	}
	var b bytes.Buffer
	for i := range files {
		in := filepath.Join(dir, fmt.Sprintf("d%03d", i/2000), fmt.Sprintf("p%05d", i/20))
		if i%20 == 0 {
			if err := errors.Join(ctx.Err(), os.MkdirAll(in, 0o755)); err != nil {
				return err
			}
		}
		b.Reset()
		for size := int(r.ExpFloat64() * 6000); b.Len() < size; {
			// Some words are frequent, as in texts.
			b.WriteString(words[int(float64(len(words))*r.Float64()*r.Float64()*r.Float64())])
			b.WriteByte(" \n"[r.IntN(8)/7])
		}
		name := filepath.Join(in, fmt.Sprintf("f%06d.%s", i, []string{"go", "ts", "md", "json"}[i%4]))
		if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
