package images

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/testsource"
	"snapfs/squashfs"
)

// sourceTree is what the squashfs benchmarks write: SNAPFS_BENCH_TREE, or Go's own sources.
func sourceTree() string {
	if dir := os.Getenv("SNAPFS_BENCH_TREE"); dir != "" {
		return dir
	}
	return goSources()
}

// goSources asks the go command, once.
var goSources = sync.OnceValue(func() string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		panic(err) // there is no benchmark without the tree
	}
	return filepath.Join(strings.TrimSpace(string(root)), "src")
})

// BenchmarkSquashfsShip compares WriteShip with mksquashfs at the same settings, both writing to a file in the
// temporary directory. Metric image-bytes is the size; neither image holds what squashfs has no place for. Metric
// cpu-ms is the processor time of both user and system, which other load on the machine changes less than the time that
// passes.
func BenchmarkSquashfsShip(b *testing.B) {
	for _, c := range []struct {
		compression string
		level       int
		args        []string
	}{
		{"zstd", 3, []string{"-Xcompression-level", "3"}},
		{"zstd", 15, nil},
		{"gzip", 9, nil},
		{"lz4", 0, nil},
		{"xz", 0, nil},
	} {
		name := fmt.Sprintf("%s-%d", c.compression, c.level)
		b.Run(name+"/snapfs", func(b *testing.B) {
			for b.Loop() {
				from := processorTime(b, unix.RUSAGE_SELF)
				b.ReportMetric(
					float64(
						shipImage(
							b, squashfs.ShipOptions{Compression: c.compression, Level: c.level, NoExtension: true},
						),
					),
					"image-bytes",
				)
				b.ReportMetric(float64((processorTime(b, unix.RUSAGE_SELF) - from).Milliseconds()), "cpu-ms")
			}
		})
		b.Run(name+"/mksquashfs", func(b *testing.B) {
			for b.Loop() {
				args := append(
					[]string{"-noappend", "-quiet", "-no-progress", "-no-exports", "-comp", c.compression},
					c.args...)
				from := processorTime(b, unix.RUSAGE_CHILDREN)
				b.ReportMetric(float64(makeImage(b, "mksquashfs", sourceTree(), args...)), "image-bytes")
				b.ReportMetric(float64((processorTime(b, unix.RUSAGE_CHILDREN) - from).Milliseconds()), "cpu-ms")
			}
		})
	}
}

// processorTime is what this process or its children have used so far.
func processorTime(b *testing.B, who int) time.Duration {
	b.Helper()
	var u unix.Rusage
	fatal(b, unix.Getrusage(who, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkSquashfsShipExtension is the price of the extension section.
func BenchmarkSquashfsShipExtension(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(float64(shipImage(b, squashfs.ShipOptions{Compression: "zstd", Level: 3})), "image-bytes")
	}
}

// shipImage writes one image and gives its size.
func shipImage(b *testing.B, opts squashfs.ShipOptions) int64 {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "ship.sqsh"))
	if err != nil {
		b.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer func() { _ = f.Close() }() // the image is measured, not kept
	info, err := squashfs.WriteShip(context.Background(), f, testsource.Dir(sourceTree()), opts)
	if err != nil {
		b.Fatal(err)
	}
	return info.Size
}

// makeImage runs mksquashfs or what is like it and gives the image's size.
func makeImage(b *testing.B, name, src string, args ...string) int64 {
	b.Helper()
	file := filepath.Join(b.TempDir(), "tool.sqsh")
	defer os.Remove(file)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, append([]string{src, file}, args...)...)
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	st, err := os.Stat(file)
	if err != nil {
		b.Fatal(err)
	}
	return st.Size()
}

// BenchmarkSquashfsStore writes the store form to nowhere: what is left is reading the source.
func BenchmarkSquashfsStore(b *testing.B) {
	var data int64
	for b.Loop() {
		info, err := squashfs.WriteStore(
			context.Background(), nowhere{}, testsource.Dir(sourceTree()), squashfs.StoreOptions{},
		)
		if err != nil {
			b.Fatal(err)
		}
		data = info.Data
	}
	b.SetBytes(data)
}

// nowhere is a Sink that forgets.
type nowhere struct{}

func (nowhere) Write(p []byte) (int, error) { return io.Discard.Write(p) }
func (nowhere) Cut(squashfs.Cut) error      { return nil }
func (nowhere) Header([]byte) error         { return nil }
