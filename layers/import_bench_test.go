package layers

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/internal/statcache"
)

// importStages are the goroutines of a first import, by the functions that a profile has them under. Those called
// serial are one goroutine each, and what is called last runs when the others have ended.
var importStages = []struct {
	name, function string
	serial, last   bool
}{
	{"walk", "snapfs/layers.(*ahead).walk", true, false},
	{"read", "snapfs/layers.(*aheadRead).load", false, false},
	{"write", "snapfs/squashfs.WriteStore", true, false},
	{"hash", "snapfs/chunkstore.(*batch).hash", false, false},
	{"order", "snapfs/chunkstore.(*pipeline).start.func1", true, false},
	{"encode", "snapfs/chunkstore.(*Ingest).spawn.func1", false, false},
	{"commit", "snapfs/chunkstore.(*Ingest).Commit", true, true},
}

// BenchmarkImport imports a tree of $SNAPFS_IMPORT files, 20,000 by default, into an empty store. It reports the
// processor time of each stage, and how many times as fast as one processor two and sixteen would be by that: they take
// the time of the longest serial stage or their share of all, and then that of the last.
func BenchmarkImport(b *testing.B) {
	files := 20_000
	if n, err := strconv.Atoi(os.Getenv("SNAPFS_IMPORT")); err == nil {
		files = n
	}
	src := b.TempDir()
	makeImport(b, src, files)
	for _, procs := range []int{1, 2} {
		b.Run(fmt.Sprintf("processors=%d", procs), func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			var profile bytes.Buffer
			var cpu time.Duration
			for b.Loop() {
				b.StopTimer()
				s, err := chunkstore.Open(b.TempDir(), chunkstore.Options{})
				if err != nil {
					b.Fatal(err)
				}
				profile.Reset()
				if err := pprof.StartCPUProfile(&profile); err != nil {
					b.Fatal(err)
				}
				before := processorTime(b)
				b.StartTimer()
				_, err = StoreTree(context.Background(), s, src, StoreOptions{}, nil)
				b.StopTimer()
				cpu = processorTime(b) - before
				pprof.StopCPUProfile()
				if err != nil {
					b.Fatal(err)
				}
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(cpu.Seconds(), "cpu-s")
			if procs > 1 { // one processor has all in one goroutine
				reportStages(b, stagesOf(b, profile.Bytes()), cpu)
			}
		})
	}
}

// makeImport makes files of some 8 KB, of words, a hundred to a directory.
func makeImport(b *testing.B, dir string, files int) {
	b.Helper()
	r := rand.New(rand.NewPCG(1, 1))
	words := make([]string, 3000)
	for i := range words {
		words[i] = strconv.FormatUint(r.Uint64N(1<<40), 36)
	}
	for i := range files {
		var text bytes.Buffer
		for n := 1000 + r.IntN(14_000); text.Len() < n; {
			fmt.Fprint(&text, words[int(r.ExpFloat64()*300)%len(words)], " ")
		}
		at := filepath.Join(dir, strconv.Itoa(i/100))
		if i%100 == 0 {
			if err := os.Mkdir(at, 0o755); err != nil {
				b.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(at, strconv.Itoa(i)), text.Bytes(), 0o644); err != nil {
			b.Fatal(err)
		}
	}
}

// processorTime is what the process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// stagesOf gives the processor time of each stage that a profile has.
func stagesOf(b *testing.B, profile []byte) map[string]time.Duration {
	b.Helper()
	at := filepath.Join(b.TempDir(), "profile")
	if err := os.WriteFile(at, profile, 0o600); err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), "go", "tool", "pprof", "-top", "-cum", "-nodecount=1000000", "-nodefraction=0",
		"-unit=ms", at)
	out, err := cmd.Output()
	if err != nil {
		b.Fatal(err)
	}
	stages := map[string]time.Duration{}
	for line := range strings.Lines(string(out)) {
		const columns = 6 // flat flat% sum% cum cum% name
		f := strings.Fields(line)
		if len(f) < columns {
			continue
		}
		for _, s := range importStages {
			if f[columns-1] != s.function {
				continue
			}
			d, err := time.ParseDuration(f[3])
			if err != nil {
				b.Fatal(err)
			}
			stages[s.name] = d
		}
	}
	return stages
}

func reportStages(b *testing.B, stages map[string]time.Duration, cpu time.Duration) {
	b.Helper()
	longest, last := time.Duration(0), time.Duration(0)
	for _, s := range importStages {
		d := stages[s.name]
		b.ReportMetric(d.Seconds(), s.name+"-cpu-s")
		switch {
		case s.last:
			last += d
		case s.serial:
			longest = max(longest, d)
		}
	}
	b.ReportMetric((longest+last).Seconds()/cpu.Seconds(), "serial-share")
	for _, n := range []time.Duration{2, 16} {
		wall := max(longest, (cpu-last)/n) + last
		b.ReportMetric(cpu.Seconds()/wall.Seconds(), fmt.Sprintf("times-with-%d", n))
	}
}

// BenchmarkImportAgain imports the tree of BenchmarkImport once more, unchanged, with what the first import noted.
func BenchmarkImportAgain(b *testing.B) {
	files := 20_000
	if n, err := strconv.Atoi(os.Getenv("SNAPFS_IMPORT")); err == nil {
		files = n
	}
	src := b.TempDir()
	makeImport(b, src, files)
	s, err := chunkstore.Open(b.TempDir(), chunkstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	time.Sleep(2 * clockTick)
	notes := b.TempDir()
	run := func() int {
		n := &seenImports{}
		if n.from, err = statcache.Open(notes, statcache.Key{}); err != nil {
			b.Fatal(err)
		}
		if n.to, err = statcache.Create(notes, statcache.Key{}); err != nil {
			b.Fatal(err)
		}
		if _, err := StoreTree(context.Background(), s, src, StoreOptions{Seen: n.begin}, nil); err != nil {
			b.Fatal(err)
		}
		end := n.to.Commit
		if n.kept == files {
			end = n.to.Abort
		}
		if err := end(); err != nil {
			b.Fatal(err)
		}
		return n.kept
	}
	run()
	before := processorTime(b)
	for b.Loop() {
		if kept := run(); kept != files {
			b.Fatalf("%d of %d files were not read again", kept, files)
		}
	}
	b.ReportMetric((processorTime(b)-before).Seconds()/float64(b.N), "cpu-s/op")
}
