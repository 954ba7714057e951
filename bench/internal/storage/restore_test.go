package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/bench/internal/caches"
	"snapfs/bench/internal/cost"
	"snapfs/bench/internal/peers"
	"snapfs/bench/internal/program"
	"snapfs/bench/internal/snapfs"
	"snapfs/bench/internal/subject"
)

// BenchmarkRestore restores one state (the directory in SNAPFS_BENCH_RESTORE, such as the newest of a corpus; else Go's
// sources) with snapfs, by --to and through a mount, and with git checkout, restic and unsquashfs: wall-clock and
// processor time, with warm caches and, as root, cold ones. Nobody syncs; what the run before has left to be written is
// written out between two runs, and what they have written stays until the end: for minutes, ext4 looks at each inode that
// was freed before it takes one, which can cost more than all else. The figures are the least of three runs. Run it with
// -benchtime 1x: storing takes longest.
func BenchmarkRestore(b *testing.B) {
	state := os.Getenv("SNAPFS_BENCH_RESTORE")
	if state == "" {
		state = filepath.Join(goRoot(b), "src")
	}
	list := []subject.Subject[subject.Store]{
		snapfs.Created(), peers.Git("git checkout", "gc", "--prune=now", "--quiet"), peers.Restic(), peers.Squashfs("zstd"),
	}
	all := b.TempDir()
	for i, p := range list {
		if gone := program.Missing(p.Programs); len(gone) > 0 {
			b.Fatalf("missing %v", gone)
		}
		b.Run(strings.ReplaceAll(p.Name, " ", "-"), func(b *testing.B) {
			ctx, dir := b.Context(), filepath.Join(all, strconv.Itoa(i))
			require.NoError(b, os.Mkdir(dir, 0o755))
			k, err := p.Open(ctx, subject.Site{Dir: dir})
			require.NoError(b, err)
			defer func() { require.NoError(b, k.Close(context.WithoutCancel(ctx))) }()
			require.NoError(b, errors.Join(k.Store(ctx, 0, "", state), k.Settle(ctx)))
			restoreRuns(b, "", k, dir)
			if x, ok := k.(subject.Extractor); ok {
				restoreRuns(b, "to-", extracting{k, x}, dir)
				o, ok := k.(subject.Optimizer)
				require.True(b, ok)
				require.NoError(b, o.Optimize(ctx))
				restoreRuns(b, "to-optimized-", extracting{k, x}, dir)
			}
		})
	}
}

// restoreRuns reports the least cost of restoring state 0.
func restoreRuns(b *testing.B, name string, k subject.Store, dir string) {
	b.Helper()
	kinds := []string{"warm"}
	if os.Geteuid() == 0 {
		kinds = append(kinds, "cold")
	}
	for _, kind := range kinds {
		var wall, cpu []float64
		for i := range 3 {
			dest := filepath.Join(dir, fmt.Sprintf("out-%s%s-%d", name, kind, i))
			require.NoError(b, os.Mkdir(dest, 0o755))
			caches.Flush() // of what was measured before
			if kind == "cold" {
				_, err := k.Size(b.Context()) // snapfs closes and opens its home for it, and so loses what it has decoded
				require.NoError(b, errors.Join(err, caches.Empty()))
			}
			c, err := cost.Measure(func() error { return k.Restore(b.Context(), 0, dest) })
			require.NoError(b, err)
			wall, cpu = append(wall, c.Wall.Seconds()), append(cpu, c.CPU.Seconds())
		}
		b.ReportMetric(slices.Min(wall), name+kind+"-wall-s")
		b.ReportMetric(slices.Min(cpu), name+kind+"-cpu-s")
	}
}

func goRoot(b *testing.B) string {
	b.Helper()
	out, err := program.Output(b.Context(), "go", "env", "GOROOT")
	require.NoError(b, err)
	return strings.TrimSpace(string(out))
}
