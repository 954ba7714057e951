package images

import (
	"context"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/testmount"
	"snapfs/internal/testsource"
	"snapfs/squashfs"
)

func TestMain(m *testing.M) { testmount.Main(m) }

// mountReads is how many reads a round makes, each at another place.
const mountReads = 3000

// BenchmarkSquashfsMountRead opens a file of a mounted zstd image, reads 4 KiB at a random place, and closes it,
// through each server in turn; every round has places of its own. Metrics are microseconds for one open, read and
// close:
//
//   - cold: the server has just started and the kernel has forgotten the image;
//   - again: the kernel has forgotten its caches, the server has not;
//   - warm: the same reads at once again, from the kernel's cache.
//
// It needs root, to mount and to drop the kernel's caches. Run it with -benchtime 5x.
func BenchmarkSquashfsMountRead(b *testing.B) {
	img := filepath.Join(b.TempDir(), "image.sqsh")
	out, err := os.Create(img)
	fatal(b, err)
	_, err = squashfs.WriteShip(context.Background(), out, testsource.Dir(sourceTree()),
		squashfs.ShipOptions{Compression: "zstd", Level: 15, NoExtension: true})
	fatal(b, err)
	fatal(b, out.Close())

	servers := []struct {
		name  string
		start func() (dir string, stop func())
	}{
		{"snapfs", func() (string, func()) {
			m := testmount.Start(
				b, testmount.Config{Images: []string{img}, ReadOnly: true, Profile: os.Getenv("SNAPFS_BENCH_PROFILE")},
			)
			return m.Dir, m.Stop
		}},
		{"squashfuse", func() (string, func()) { return squashfuse(b, "squashfuse", img) }},
		{"squashfuse_ll", func() (string, func()) { return squashfuse(b, "squashfuse_ll", img) }},
	}
	files := allFiles(b, sourceTree())
	took := map[string]time.Duration{}
	rounds := 0
	for b.Loop() {
		places := randomPlaces(files, uint64(rounds))
		for i := range servers {
			s := servers[(i+rounds)%len(servers)]
			dir, stop := s.start()
			for _, phase := range []string{"cold", "again", "warm"} {
				if phase != "warm" {
					dropCaches(b)
				}
				took[s.name+"-"+phase] += readPlaces(b, dir, places)
			}
			stop()
		}
		rounds++
	}
	b.ReportMetric(0, "ns/op") // the loop's own time says nothing
	for name, d := range took {
		b.ReportMetric(float64(d.Microseconds())/float64(mountReads*rounds), name+"-us/read")
	}
}

// place is where to read in a file.
type place struct {
	name string
	off  int64
}

// fileSize is a file of the tree.
type fileSize struct {
	name string
	size int64
}

func allFiles(b *testing.B, root string) []fileSize {
	b.Helper()
	var files []fileSize
	fatal(b, fs.WalkDir(os.DirFS(root), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() > 0 {
			files = append(files, fileSize{p, info.Size()})
		}
		return err
	}))
	return files
}

// randomPlaces picks files, and in each a page.
func randomPlaces(files []fileSize, seed uint64) []place {
	rng := rand.New(rand.NewPCG(seed, 7))
	places := make([]place, mountReads)
	for i := range places {
		f := files[rng.IntN(len(files))]
		places[i] = place{f.name, rng.Int64N((f.size+4095)/4096) * 4096}
	}
	return places
}

func readPlaces(b *testing.B, dir string, places []place) time.Duration {
	b.Helper()
	buf := make([]byte, 4096)
	start := time.Now()
	for _, p := range places {
		fd, err := unix.Open(filepath.Join(dir, p.name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		fatal(b, err)
		n, err := unix.Pread(fd, buf, p.off)
		fatal(b, err)
		if n == 0 {
			b.Fatalf("%s ends before %d", p.name, p.off)
		}
		fatal(b, unix.Close(fd))
	}
	return time.Since(start)
}

func dropCaches(b *testing.B) {
	b.Helper()
	unix.Sync()
	fatal(b, os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0))
}
