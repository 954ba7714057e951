package images

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/testsource"
	"snapfs/squashfs"
)

// BenchmarkSquashfsRandomRead reads 4 KiB at random places of random files of Go's src from a zstd image: by this
// package in-process, with a cache that holds a third of the tree and with none, and by squashfuse
// through its mount with O_DIRECT, which spares it nothing but the kernel's page cache. The round trip through
// FUSE is in squashfuse's figure and not in ours: compare mounts with the benchmarks of fs.
func BenchmarkSquashfsRandomRead(b *testing.B) {
	img := filepath.Join(b.TempDir(), "go.sqsh")
	out, err := os.Create(img)
	fatal(b, err)
	defer out.Close()
	_, err = squashfs.WriteShip(context.Background(), out, testsource.Dir(sourceTree()),
		squashfs.ShipOptions{Compression: "zstd", Level: 3, NoExtension: true})
	fatal(b, err)
	info, err := out.Stat()
	fatal(b, err)

	for name, bytes := range map[string]int64{"snapfs": 0, "snapfs-uncached": 1} {
		b.Run(name, func(b *testing.B) {
			im, err := squashfs.Open(out, info.Size(), squashfs.Options{CacheBytes: bytes})
			fatal(b, err)
			files := bigFiles(b, im.FS())
			readers := make([]io.ReaderAt, len(files))
			for i, name := range files {
				info, err := fs.Stat(im.FS(), name)
				fatal(b, err)
				readers[i] = info.Sys().(*squashfs.Inode)
			}
			randomReads(b, readers)
		})
	}
	b.Run("squashfuse", func(b *testing.B) {
		dir, _ := squashfuse(b, "squashfuse", img)
		files := bigFiles(b, os.DirFS(dir))
		readers := make([]io.ReaderAt, len(files))
		for i, name := range files {
			f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|unix.O_DIRECT, 0)
			fatal(b, err)
			defer f.Close()
			readers[i] = f
		}
		randomReads(b, readers)
	})
}

// bigFiles are those with at least 16 places to read at.
func bigFiles(b *testing.B, fsys fs.FS) []string {
	b.Helper()
	var files []string
	fatal(b, fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() > 64<<10 {
			files = append(files, p)
		}
		return err
	}))
	return files
}

// randomReads measures one read of 4 KiB.
func randomReads(b *testing.B, files []io.ReaderAt) {
	b.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	buf := aligned(4096)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		f := files[rng.IntN(len(files))]
		if _, err := f.ReadAt(buf, int64(rng.IntN(16))*4096); err != nil && !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
	}
}

// aligned gives n bytes where O_DIRECT can put them.
func aligned(n int) []byte {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		panic(err) // out of memory
	}
	return mem
}

// squashfuse mounts an image by one of the two programs of that package, until stop is called or the benchmark ends.
func squashfuse(b *testing.B, program, img string) (dir string, stop func()) {
	b.Helper()
	dir = b.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	cmd := exec.CommandContext(ctx, program, "-f", img, dir)
	cmd.WaitDelay = 5 * time.Second
	fatal(b, cmd.Start())
	stop = sync.OnceFunc(func() {
		_ = unix.Unmount(dir, unix.MNT_DETACH) // not mounted if squashfuse failed
		cancel()
		_ = cmd.Wait() // it was killed
	})
	b.Cleanup(stop)
	var before, now unix.Stat_t
	fatal(b, unix.Stat(filepath.Dir(dir), &before))
	for range 1000 {
		if err := unix.Stat(dir, &now); err == nil && now.Dev != before.Dev {
			return dir, stop
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.Fatalf("%s does not mount", program)
	return "", nil
}

func fatal(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
