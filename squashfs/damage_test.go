package squashfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/testseed"
)

// madeImage writes a small tree: mksquashfs does, or if form is given this package, with an extension section.
func madeImage(t testing.TB, form, compressor string) []byte {
	t.Helper()
	src, img := t.TempDir(), filepath.Join(t.TempDir(), "img.sqsh")
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 30 {
		b := make([]byte, rng.IntN(20000))
		for j := range b {
			b[j] = byte(rng.IntN(4) * j)
		}
		if err := os.WriteFile(filepath.Join(src, fmt.Sprint("file-", i)), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Setxattr(filepath.Join(src, "file-3"), "user.note", []byte("value"), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(src, "file-4"), 1<<20+5); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if form != "" {
		return ownImage(t, src, img, form, compressor)
	}
	cmd := exec.CommandContext(ctx, "mksquashfs", src, img, "-noappend", "-no-progress", "-quiet", "-comp", compressor,
		"-b", "8K")
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("mksquashfs: %v\n%s", err, out)
	}
	b, err := os.ReadFile(img)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// HostDir is testsource.Dir, which tests inside this package cannot import.
var HostDir func(root string) Source

// ownImage is madeImage's part for the writers of this package.
func ownImage(t testing.TB, src, img, form, compressor string) []byte {
	t.Helper()
	f, err := os.Create(img)
	if err != nil {
		t.Fatal(err)
	}
	if form == "ship" {
		_, err = WriteShip(t.Context(), f, HostDir(src),
			ShipOptions{Compression: compressor, BlockSize: 8 << 10, Exportable: true})
	} else {
		_, err = WriteStore(t.Context(), imageSink{io.NewOffsetWriter(f, HeaderSize), f}, HostDir(src), StoreOptions{})
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(img)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// imageSink is a Sink into a file.
type imageSink struct {
	io.Writer
	f *os.File
}

func (s imageSink) Cut(Cut) error { return nil }

func (s imageSink) Header(p []byte) error {
	_, err := s.f.WriteAt(p, 0)
	return err
}

// TestDamage flips bits, overwrites and cuts images, and reads what is left: all must end, and quickly, with
// ErrCorrupt or with an answer.
func TestDamage(t *testing.T) {
	rounds := 20
	if os.Getenv("SNAPFS_LONG") != "" {
		rounds = 1500
	}
	for i, c := range [][2]string{
		{"", "gzip"},
		{"", "zstd"},
		{"", "lz4"},
		{"", "xz"},
		{"", "lzo"},
		{"", "lzma"},
		{"store", ""},
		{"ship", "none"},
		{"ship", "zstd"},
		{"ship", "gzip"},
		{"ship", "xz"},
		{"ship", "lz4"},
	} {
		t.Run(strings.Join(c[:], "-"), func(t *testing.T) {
			sound := madeImage(t, c[0], c[1])
			if v := violations(t, sound); len(v) > 0 {
				t.Fatalf("violations of a sound image: %+v", v)
			}
			seed := testseed.Of(t)
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for range rounds {
				img := bytes.Clone(sound)
				for range 1 + rng.IntN(4) {
					at := rng.IntN(len(img))
					if rng.IntN(3) == 0 { // most of the bytes are data: aim at the tables, too
						at = len(img) - 1 - rng.IntN(min(len(img), 6000))
					}
					if rng.IntN(4) == 0 {
						at = rng.IntN(min(len(img), superblockSize))
					}
					switch rng.IntN(4) {
					case 0:
						img[at] = byte(rng.Uint32())
					case 1:
						img = img[:max(at, 1)]
					default:
						img[at] ^= 1 << rng.IntN(8)
					}
				}
				if err := readAll(img); err != nil && !errors.Is(err, ErrCorrupt) {
					t.Fatalf("error of another class: %v", err)
				}
				violations(t, img)
			}
		})
	}
}

// slowReader makes concurrent readers meet.
type slowReader struct {
	r     io.ReaderAt
	mu    sync.Mutex
	reads map[int64]int // guarded by mu: how often a place was read
}

func (s *slowReader) ReadAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	s.reads[off]++
	s.mu.Unlock()
	runtime.Gosched()
	return s.r.ReadAt(p, off)
}

// TestConcurrentReads: goroutines that read the same image get the same bytes, whatever the size of the cache, and a
// cache that is large enough unpacks each block once.
func TestConcurrentReads(t *testing.T) {
	m := soundModel()
	m.grow()
	m.asBlock(bomb(minBlockSize))
	img := m.build()
	for _, size := range []int64{1, 20000, 1 << 20} {
		slow := &slowReader{r: bytes.NewReader(img), reads: map[int64]int{}}
		im, err := Open(slow, int64(len(img)), Options{CacheBytes: size})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for i := range 50 {
					if err := readSome(im, m, i); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		if im.cache.used > max(size, 0) {
			t.Errorf("cache of %d bytes holds %d", size, im.cache.used)
		}
		block := int64(m.inodes[mFile].start)
		if n := slow.reads[block]; size == 1<<20 && n != 1 {
			t.Errorf("data block was read %d times", n)
		}
	}
}

func readSome(im *Image, m *model, i int) error {
	n, err := im.Inode(m.refs[mBig])
	if err != nil {
		return err
	}
	if _, err := n.Lookup(bigName(i * 7)); err != nil {
		return err
	}
	if n, err = im.Inode(m.refs[mFile]); err != nil {
		return err
	}
	var p [10]byte
	if _, err := n.ReadAt(p[:], int64(i)); err != nil {
		return err
	}
	if p != [10]byte{} {
		return fmt.Errorf("got %v, want zeros", p)
	}
	_, err = n.Xattrs()
	return err
}

// failingReader fails once.
type failingReader struct {
	io.ReaderAt
	fail error
}

func (f *failingReader) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fail; err != nil {
		f.fail = nil
		return 0, err
	}
	return f.ReaderAt.ReadAt(p, off)
}

// TestReadErrors: an error of the reader is no corruption, and is not remembered.
func TestReadErrors(t *testing.T) {
	m := soundModel()
	img := m.build()
	r := &failingReader{ReaderAt: bytes.NewReader(img)}
	im, err := Open(r, int64(len(img)), Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.fail = io.ErrClosedPipe
	if _, err := im.Inode(im.Root()); !errors.Is(err, io.ErrClosedPipe) || errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v", err)
	}
	if _, err := im.Inode(im.Root()); err != nil {
		t.Errorf("the error stays: %v", err)
	}
}
