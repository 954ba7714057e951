package sandbox_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"snapfs/sandbox"
)

// writer changes files inside a mount from a process of its own, one line of input each.
type writer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.Reader
}

func newWriter(b *testing.B) *writer {
	b.Helper()
	w := &writer{cmd: exec.CommandContext(b.Context(), "sh", "-c", `while read -r f; do echo "$f" > "$f"; echo .; done`)}
	w.cmd.WaitDelay = time.Second
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	if w.out, err = w.cmd.StdoutPipe(); err != nil {
		b.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return w
}

func (w *writer) write(b *testing.B, path string) {
	b.Helper()
	if _, err := fmt.Fprintln(w.in, path); err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(w.out, make([]byte, 2)); err != nil {
		b.Fatal(err)
	}
}

func (w *writer) end() {
	_ = w.in.Close()
	_ = w.cmd.Wait() // its output was read
}

// latencies reports the median and the 99th percentile of what was measured, in milliseconds.
func latencies(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	at := func(p int) float64 { return float64(took[(len(took)-1)*p/100].Microseconds()) / 1000 }
	b.ReportMetric(at(50), "p50-ms")
	b.ReportMetric(at(99), "p99-ms")
}

func benchHome(b *testing.B) (h *sandbox.Home, dir string) {
	b.Helper()
	return benchHomeWith(b, sandbox.Options{})
}

func benchHomeWith(b *testing.B, opts sandbox.Options) (h *sandbox.Home, dir string) {
	b.Helper()
	dir, err := os.MkdirTemp("", "snapfs-bench-")
	if err != nil {
		b.Fatal(err)
	}
	h, err = sandbox.Open(b.Context(), filepath.Join(dir, "home"), opts)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := h.Close(); err != nil {
			b.Error(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			b.Error(err)
		}
	})
	return h, dir
}

// BenchmarkSnapshot freezes a mounted workspace in which one file was changed.
func BenchmarkSnapshot(b *testing.B) {
	for _, noSync := range []bool{false, true} {
		b.Run(fmt.Sprintf("noSync=%v", noSync), func(b *testing.B) {
			h, dir := benchHome(b)
			at := filepath.Join(dir, "m")
			if _, err := h.Create(b.Context(), sandbox.CreateRequest{Name: "w"}); err != nil {
				b.Fatal(err)
			}
			if _, err := h.Mount(b.Context(), sandbox.MountRequest{Workspace: "w", Mountpoint: at, MakeMountpoint: true}); err != nil {
				b.Fatal(err)
			}
			w := newWriter(b)
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				w.write(b, fmt.Sprintf("%s/f%d", at, i%100))
				b.StartTimer()
				start := time.Now()
				if _, err := h.Snapshot(b.Context(), sandbox.SnapshotRequest{Workspace: "w", NoSync: noSync}); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			w.end()
			latencies(b, took)
		})
	}
}

// BenchmarkRestore makes a mounted workspace of a snapshot of many files.
func BenchmarkRestore(b *testing.B) {
	h, dir := benchHome(b)
	src := filepath.Join(dir, "src")
	if out, err := exec.CommandContext(b.Context(), "sh", "-ec",
		`mkdir "$1"; cd "$1"; for d in $(seq 100); do mkdir $d; for f in $(seq 100); do echo $f > $d/$f; done; done`, "sh", src).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	if _, err := h.Create(b.Context(), sandbox.CreateRequest{Name: "w", Source: src}); err != nil {
		b.Fatal(err)
	}
	s, err := h.Snapshot(b.Context(), sandbox.SnapshotRequest{Workspace: "w"})
	if err != nil {
		b.Fatal(err)
	}
	at := filepath.Join(dir, "m")
	if err := os.Mkdir(at, 0o755); err != nil {
		b.Fatal(err)
	}
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		w, err := h.Restore(b.Context(), sandbox.RestoreRequest{Snapshot: s.ID, Mountpoint: at})
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
		b.StopTimer()
		if _, err := h.Unmount(b.Context(), sandbox.UnmountRequest{Workspace: w.ID}); err != nil {
			b.Fatal(err)
		}
		if _, err := h.Destroy(b.Context(), sandbox.DestroyRequest{Ref: w.ID, Now: true}); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	latencies(b, took)
}

// deepStack is how many snapshots in a row BenchmarkDeepStack takes first.
const deepStack = 200

// BenchmarkDeepStack works on a workspace that was frozen many times: a snapshot of one changed file, a restore of the
// newest snapshot with its mount, and a first walk over its tree.
func BenchmarkDeepStack(b *testing.B) {
	h, dir := benchHome(b)
	at, restored := filepath.Join(dir, "m"), filepath.Join(dir, "restored")
	if err := os.Mkdir(restored, 0o755); err != nil {
		b.Fatal(err)
	}
	if _, err := h.Create(b.Context(), sandbox.CreateRequest{Name: "w"}); err != nil {
		b.Fatal(err)
	}
	if _, err := h.Mount(b.Context(), sandbox.MountRequest{Workspace: "w", Mountpoint: at, MakeMountpoint: true}); err != nil {
		b.Fatal(err)
	}
	w := newWriter(b)
	defer w.end()
	files := 0
	snapshot := func(wait bool) (sandbox.Snapshot, time.Duration) {
		w.write(b, fmt.Sprintf("%s/f%d", at, files))
		files++
		start := time.Now()
		s, err := h.Snapshot(b.Context(), sandbox.SnapshotRequest{Workspace: "w", WaitStored: wait})
		if err != nil {
			b.Fatal(err)
		}
		return s, time.Since(start)
	}
	for range deepStack - 1 {
		snapshot(false)
	}
	s, _ := snapshot(true)
	var took, restores, walks []time.Duration
	for b.Loop() {
		start := time.Now()
		r, err := h.Restore(b.Context(), sandbox.RestoreRequest{Snapshot: s.ID, Mountpoint: restored})
		if err != nil {
			b.Fatal(err)
		}
		restores = append(restores, time.Since(start))
		start = time.Now()
		if out, err := exec.CommandContext(b.Context(), "find", restored, "-size", "+9k").CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		walks = append(walks, time.Since(start))
		if _, err := h.Unmount(b.Context(), sandbox.UnmountRequest{Workspace: r.ID}); err != nil {
			b.Fatal(err)
		}
		if _, err := h.Destroy(b.Context(), sandbox.DestroyRequest{Ref: r.ID, Now: true}); err != nil {
			b.Fatal(err)
		}
		_, d := snapshot(false)
		took = append(took, d)
	}
	for _, m := range []struct {
		name string
		took []time.Duration
	}{{"snapshot", took}, {"restore", restores}, {"walk", walks}} {
		slices.Sort(m.took)
		b.ReportMetric(float64(m.took[len(m.took)/2].Microseconds())/1000, m.name+"-p50-ms")
	}
}

// BenchmarkRollback goes back in a mounted workspace after files were changed that the kernel has in its caches.
func BenchmarkRollback(b *testing.B) {
	for _, changed := range []int{1, 1000} {
		b.Run(fmt.Sprintf("changed=%d", changed), func(b *testing.B) {
			h, dir := benchHome(b)
			at := filepath.Join(dir, "m")
			if _, err := h.Create(b.Context(), sandbox.CreateRequest{Name: "w"}); err != nil {
				b.Fatal(err)
			}
			if _, err := h.Mount(b.Context(), sandbox.MountRequest{Workspace: "w", Mountpoint: at, MakeMountpoint: true}); err != nil {
				b.Fatal(err)
			}
			script := func(script string) {
				cmd := exec.CommandContext(b.Context(), "sh", "-ec", script, "sh", at, fmt.Sprint(changed))
				cmd.WaitDelay = time.Second
				if out, err := cmd.CombinedOutput(); err != nil {
					b.Fatalf("%v: %s", err, out)
				}
			}
			script(`cd "$1"; for d in $(seq 20); do mkdir $d; for f in $(seq 50); do echo $f > $d/$f; done; done`)
			s, err := h.Snapshot(b.Context(), sandbox.SnapshotRequest{Workspace: "w", WaitStored: true})
			if err != nil {
				b.Fatal(err)
			}
			var took []time.Duration
			for b.Loop() {
				b.StopTimer()
				script(`cd "$1"; find . -type f | head -n "$2" | while read -r f; do echo x >> "$f"; done; cat */* > /dev/null`)
				b.StartTimer()
				start := time.Now()
				if _, err := h.Rollback(b.Context(), sandbox.RollbackRequest{Workspace: "w", Snapshot: s.ID}); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			latencies(b, took)
		})
	}
}

// BenchmarkSnapshotsBeside has so many mounted workspaces at a time, in each of which one file is changed and a
// snapshot taken, again and again. It reports snapshots per second, and how often the home has a disk sync for one.
func BenchmarkSnapshotsBeside(b *testing.B) {
	for _, n := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("workspaces=%d", n), func(b *testing.B) {
			var points pointCounts
			h, dir := benchHomeWith(b, sandbox.WithPoints(sandbox.Options{}, points.at))
			var writers []*writer
			for i := range n {
				name := fmt.Sprint("w", i)
				if _, err := h.Create(b.Context(), sandbox.CreateRequest{Name: name}); err != nil {
					b.Fatal(err)
				}
				at := filepath.Join(dir, name)
				r := sandbox.MountRequest{Workspace: name, Mountpoint: at, MakeMountpoint: true}
				if _, err := h.Mount(b.Context(), r); err != nil {
					b.Fatal(err)
				}
				writers = append(writers, newWriter(b))
			}
			points.reset()
			b.ResetTimer()
			var all errgroup.Group
			var next atomic.Int64
			for i, w := range writers {
				all.Go(func() error {
					name := fmt.Sprint("w", i)
					for k := next.Add(1); k <= int64(b.N); k = next.Add(1) {
						w.write(b, fmt.Sprintf("%s/f%d", filepath.Join(dir, name), k%100))
						if _, err := h.Snapshot(b.Context(), sandbox.SnapshotRequest{Workspace: name}); err != nil {
							return err
						}
					}
					return nil
				})
			}
			if err := all.Wait(); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "snapshots/s")
			points.report(b)
			for _, w := range writers {
				w.end()
			}
		})
	}
}

// pointCounts counts what a home syncs.
type pointCounts struct {
	mu   sync.Mutex
	seen map[string]int // guarded by mu
}

func (p *pointCounts) at(point string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen = map[string]int{}
	}
	p.seen[point]++
}

func (p *pointCounts) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = nil
}

func (p *pointCounts) report(b *testing.B) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for point, unit := range map[string]string{
		"entry appended": "journal-syncs/op", "transaction written": "index-syncs/op", "pack synced": "pack-syncs/op",
		"file system synced": "fs-syncs/op",
	} {
		b.ReportMetric(float64(p.seen[point])/float64(b.N), unit)
	}
}
