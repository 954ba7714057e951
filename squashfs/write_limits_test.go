package squashfs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/testsource"
	"snapfs/squashfs"
)

// dirEntry and fileEntry make entries of a memSource.
func dirEntry(name string) *squashfs.Entry {
	return &squashfs.Entry{Name: name, Attr: squashfs.Attr{Mode: unix.S_IFDIR | 0o755, Nlink: 2}}
}

func fileEntry(name string, ino uint64, size int64) *squashfs.Entry {
	return &squashfs.Entry{Name: name, Attr: squashfs.Attr{
		Ino: ino, Mode: unix.S_IFREG | 0o644, Nlink: 1, Size: size, UID: uint32(ino % 3),
		Mtime: squashfs.Time{Sec: 1700000000 + int64(ino%1000), Nsec: uint32(ino * 7919 % 1e9)},
		Ctime: squashfs.Time{Sec: 1710000000 + int64(ino%5000), Nsec: uint32(ino * 104729 % 1e9)},
		Btime: squashfs.Time{Sec: 1690000000, Nsec: uint32(ino * 15485863 % 1e9)},
	}}
}

// oneDir is a source of one directory with these entries, whose files hold a pattern.
func oneDir(entries ...*squashfs.Entry) *memSource {
	return &memSource{
		root: dirEntry(""),
		list: func(*squashfs.Entry) []*squashfs.Entry { return entries },
		open: func(file *squashfs.Entry) squashfs.File {
			return pattern{size: file.Attr.Size, extents: []squashfs.Extent{{Off: 0, Len: file.Attr.Size}}}
		},
	}
}

// discard is a Sink that forgets but for the bytes it was given.
type discard struct{ bytes int64 }

func (d *discard) Write(p []byte) (int, error) { d.bytes += int64(len(p)); return len(p), nil }
func (d *discard) Cut(squashfs.Cut) error      { return nil }
func (d *discard) Header([]byte) error         { return nil }

// plainSink keeps only the image.
type plainSink struct {
	f   *os.File
	off int64
}

func (s *plainSink) Cut(squashfs.Cut) error { return nil }

func (s *plainSink) Write(p []byte) (int, error) {
	n, err := s.f.WriteAt(p, s.off)
	s.off += int64(n)
	return n, err
}

func (s *plainSink) Header(p []byte) error {
	_, err := s.f.WriteAt(p, 0)
	return err
}

// scratch opens a scratch file for WriteShip.
func scratch(t testing.TB) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "scratch"))
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	return f
}

// TestManyFiles bounds the memory of both writers: 200,000 files, 1,000,000 in long runs.
func TestManyFiles(t *testing.T) {
	dirs := 200
	if long() {
		dirs = 1000
	}
	const perDir, bound = 1000, 200 << 20
	for _, form := range []string{"store", "ship"} {
		t.Run(form, func(t *testing.T) {
			peak := heapPeak(t)
			src := &memSource{
				root: dirEntry(""),
				list: func(dir *squashfs.Entry) []*squashfs.Entry {
					var entries []*squashfs.Entry
					if dir.Name == "" {
						for i := range dirs {
							d := dirEntry(fmt.Sprintf("directory-%06d", i))
							d.Handle = i
							entries = append(entries, d)
						}
						return entries
					}
					number, ok := dir.Handle.(int)
					if !ok {
						t.Errorf("asked for %+v", dir)
					}
					for i := range perDir {
						n := number*perDir + i
						entries = append(entries,
							fileEntry(fmt.Sprintf("file-with-a-usual-name-%08d.go", n), uint64(n)+1000, int64(n%64+8)))
					}
					return entries
				},
				open: func(file *squashfs.Entry) squashfs.File { return numbered(file.Attr.Ino) },
			}
			var image *os.File
			var info squashfs.Info
			var err error
			if form == "store" {
				image = scratch(t)
				info, err = squashfs.WriteStore(testContext(t), &plainSink{f: image, off: squashfs.HeaderSize}, src,
					squashfs.StoreOptions{})
			} else {
				image = scratch(t)
				info, err = squashfs.WriteShip(testContext(t), image, src, squashfs.ShipOptions{Level: 1})
			}
			must(t, err)
			heap := peak()
			t.Logf("%d files, %d bytes, heap at most %d MiB", info.Files, info.Size, heap>>20)
			if heap > bound || info.Files != int64(dirs*perDir) {
				t.Errorf("%d files with a heap of up to %d bytes, bound %d", info.Files, heap, bound)
			}
			im, err := squashfs.Open(image, info.Size, squashfs.Options{})
			must(t, err)
			root, err := im.Inode(im.Root())
			must(t, err)
			d, err := root.Lookup(fmt.Sprintf("directory-%06d", dirs-1))
			must(t, err)
			dir, err := im.Inode(d.Ref)
			must(t, err)
			e, err := dir.Lookup(fmt.Sprintf("file-with-a-usual-name-%08d.go", dirs*perDir-7))
			must(t, err)
			n, err := im.Inode(e.Ref)
			must(t, err)
			ino := uint64(dirs*perDir-7) + 1000
			if want := fileEntry("", ino, int64((dirs*perDir-7)%64+8)).Attr; n.Attr() != want {
				t.Errorf("got %+v, want %+v", n.Attr(), want)
			}
		})
	}
}

// heapPeak watches the heap, garbage included, until the function it gives is called for the largest size seen.
func heapPeak(t testing.TB) func() uint64 {
	runtime.GC()
	stop, done := make(chan struct{}), make(chan uint64, 1)
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	go func() {
		var peak uint64
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			metrics.Read(sample)
			peak = max(peak, sample[0].Value.Uint64())
			select {
			case <-tick.C:
			case <-stop:
				done <- peak
				return
			}
		}
	}()
	end := sync.OnceValue(func() uint64 { close(stop); return <-done })
	t.Cleanup(func() { end() })
	return end
}

// numbered is a small file with contents of its own.
type numbered uint64

func (n numbered) Extents() ([]squashfs.Extent, error) {
	return []squashfs.Extent{{Off: 0, Len: 1 << 20}}, nil
}
func (n numbered) Close() error { return nil }

func (n numbered) ReadAt(b []byte, _ int64) (int, error) {
	for i := range b {
		b[i] = byte(uint64(n) >> (i % 8 * 8))
	}
	return len(b), nil
}

// TestHugeSparseFile: time and memory follow the data, not the length.
func TestHugeSparseFile(t *testing.T) {
	const size = 2<<40 + 4321
	extents := []squashfs.Extent{{Off: 8192, Len: 4096}, {Off: 1 << 40, Len: 3 << 20}, {Off: size - 21, Len: 21}}
	var read int64
	src := oneDir(fileEntry("huge", 5, size))
	src.open = func(*squashfs.Entry) squashfs.File { return pattern{size: size, extents: extents, read: &read} }
	check := func(t *testing.T, file string) {
		im := openImage(t, file)
		e, err := must1(im.Inode(im.Root()))(t).Lookup("huge")
		must(t, err)
		n, err := im.Inode(e.Ref)
		must(t, err)
		got, err := n.Extents()
		must(t, err)
		if n.Attr().Size != size || fmt.Sprint(got) != fmt.Sprint(extents) {
			t.Errorf("size %d, extents %v, want %d, %v", n.Attr().Size, got, size, extents)
		}
		want := pattern{size: size, extents: extents}
		for _, off := range []int64{0, 8192 - 5, 1<<40 - 7, 1<<40 + 3<<20 - 9, size - 100} {
			var a, b [64]byte
			x, err := n.ReadAt(a[:], off)
			must(t, err)
			if y, _ := want.ReadAt(b[:], off); x != y || a != b {
				t.Errorf("at %d got %d bytes %v, want %d bytes %v", off, x, a, y, b)
			}
		}
		dir := mountImage(t, file)
		f, err := os.Open(filepath.Join(dir, "huge"))
		must(t, err)
		defer func() { must(t, f.Close()) }()
		var a, b [64]byte
		if _, err := f.ReadAt(a[:], size-64); err != nil {
			t.Error(err)
		}
		if _, err := want.ReadAt(b[:], size-64); err != nil || a != b {
			t.Errorf("the kernel reads %v, want %v", a, b)
		}
	}
	t.Run("store", func(t *testing.T) {
		read = 0
		file, _ := store(t, src)
		if read > 8<<20 {
			t.Errorf("%d bytes read", read)
		}
		check(t, file)
	})
	t.Run("ship", func(t *testing.T) {
		check(t, ship(t, src, squashfs.ShipOptions{Level: 1}))
	})
}

// must1 is must for a call that returns a value.
func must1[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// TestRefused: what squashfs cannot hold, and what is no tree, is an error and no header.
func TestRefused(t *testing.T) {
	owners := func(n int) []*squashfs.Entry {
		var entries []*squashfs.Entry
		for i := range n {
			e := fileEntry(fmt.Sprintf("%06d", i), uint64(i), 0)
			e.Attr.UID, e.Attr.GID = uint32(i), uint32(i)
			entries = append(entries, e)
		}
		return entries
	}
	with := func(change func(e *squashfs.Entry)) []*squashfs.Entry {
		e := fileEntry("x", 1, 0)
		change(e)
		return []*squashfs.Entry{e}
	}
	for name, c := range map[string]struct {
		entries []*squashfs.Entry
		want    error // nil: any
	}{
		"owners": {owners(65536), squashfs.ErrLimit},
		"name":   {with(func(e *squashfs.Entry) { e.Name = strings.Repeat("n", 256) }), squashfs.ErrLimit},
		"device": {with(func(e *squashfs.Entry) {
			e.Attr.Mode, e.Attr.Rdev = unix.S_IFCHR,
				unix.Mkdev(4096, 0)
		}), squashfs.ErrLimit},
		"file": {with(func(e *squashfs.Entry) { e.Attr.Size = 1 << 60 }), squashfs.ErrLimit},
		"value": {with(func(e *squashfs.Entry) {
			e.Xattrs = []squashfs.Xattr{{
				Name:  "user.x",
				Value: make([]byte, 1<<16+1),
			}}
		}), squashfs.ErrLimit},
		"slash":         {with(func(e *squashfs.Entry) { e.Name = "a/b" }), nil},
		"nul":           {with(func(e *squashfs.Entry) { e.Name = "a\x00" }), nil},
		"dots":          {with(func(e *squashfs.Entry) { e.Name = ".." }), nil},
		"empty":         {with(func(e *squashfs.Entry) { e.Name = "" }), nil},
		"type":          {with(func(e *squashfs.Entry) { e.Attr.Mode = 0o644 }), nil},
		"twice":         {append(with(func(*squashfs.Entry) {}), fileEntry("x", 2, 0)), nil},
		"nul in target": {with(func(e *squashfs.Entry) { e.Attr.Mode, e.Target = unix.S_IFLNK|0o777, "a\x00b" }), nil},
		"nanoseconds":   {with(func(e *squashfs.Entry) { e.Attr.Ctime.Nsec = 1e9 }), nil},
		"xattr's name":  {with(func(e *squashfs.Entry) { e.Xattrs = []squashfs.Xattr{{Name: "user."}} }), nil},
		"xattrs": {with(func(e *squashfs.Entry) {
			for i := range 600 {
				e.Xattrs = append(e.Xattrs, squashfs.Xattr{Name: fmt.Sprint("user.", i), Value: make([]byte, 64<<10)})
			}
		}), squashfs.ErrLimit},
		"holes": {with(func(e *squashfs.Entry) { e.Attr.Size = 1 << 40 }), squashfs.ErrLimit},
		"xattr twice": {with(func(e *squashfs.Entry) {
			e.Xattrs = []squashfs.Xattr{
				{Name: "user.x"},
				{Name: "user.x"},
			}
		}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			src := oneDir(c.entries...)
			if name == "holes" { // more of them than the extension section keeps of one file
				src.open = func(*squashfs.Entry) squashfs.File {
					return pattern{
						size:    1 << 40,
						extents: holes(1<<20 + 1),
					}
				}
			}
			sink := &fileSink{f: scratch(t), off: 96, cutEnd: 96}
			_, err := squashfs.WriteStore(testContext(t), sink, src, squashfs.StoreOptions{})
			if err == nil || sink.header || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("store: error %v, want %v; header %v", err, c.want, sink.header)
			}
			_, err = squashfs.WriteShip(testContext(t), scratch(t), src, squashfs.ShipOptions{})
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("ship: error %v, want %v", err, c.want)
			}
		})
	}
	t.Run("as many owners as there may be", func(t *testing.T) {
		src := oneDir(owners(65535)...)
		_, err := squashfs.WriteStore(testContext(t), &discard{}, src, squashfs.StoreOptions{})
		must(t, err)
	})
}

func TestOptionsRefused(t *testing.T) {
	for _, opts := range []squashfs.ShipOptions{
		{BlockSize: 5000},
		{BlockSize: 2048},
		{BlockSize: 2 << 20},
		{Compression: "rar"},
		{Level: 23},
		{Compression: "gzip", Level: 10},
		{Compression: "none", Level: 1},
		{Level: -1},
	} {
		if _, err := squashfs.WriteShip(testContext(t), scratch(t), oneDir(), opts); err == nil {
			t.Errorf("%+v was accepted", opts)
		}
	}
}

// TestSourceErrors: an error of the source, or a file that shrank, comes back whatever the pipeline does meanwhile.
func TestSourceErrors(t *testing.T) {
	for _, size := range []int64{100, 1 << 20, 5 << 20} {
		src := oneDir(fileEntry("a", 1, 3<<20), fileEntry("b", 2, size))
		src.open = func(file *squashfs.Entry) squashfs.File {
			p := pattern{size: file.Attr.Size, extents: []squashfs.Extent{{Off: 0, Len: file.Attr.Size}}}
			if file.Name == "b" {
				p.size--
			}
			return p
		}
		if _, err := squashfs.WriteStore(testContext(t), &discard{}, src, squashfs.StoreOptions{}); !errors.Is(err,
			io.ErrUnexpectedEOF) {
			t.Errorf("store, %d bytes: error %v", size, err)
		}
		if _, err := squashfs.WriteShip(testContext(t), scratch(t), src,
			squashfs.ShipOptions{Level: 1}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("ship, %d bytes: error %v", size, err)
		}
	}
}

// holes gives n stretches of one byte with a hole behind each.
func holes(n int) []squashfs.Extent {
	list := make([]squashfs.Extent, n)
	for i := range list {
		list[i] = squashfs.Extent{Off: int64(i) * 200, Len: 1}
	}
	return list
}

// failing is a WriterAt that is full after some bytes.
type failing struct{ left int64 }

func (f *failing) WriteAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.left {
		return 0, unix.ENOSPC
	}
	return len(p), nil
}

func TestShipDiskFull(t *testing.T) {
	root := makeTree(t)
	for _, left := range []int64{0, 1000, 200 << 10} {
		_, err := squashfs.WriteShip(testContext(t), &failing{left}, testsource.Dir(root),
			squashfs.ShipOptions{BlockSize: 4096, Level: 1})
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("with room for %d bytes: error %v", left, err)
		}
	}
}

// TestCancel cancels in the middle of the walk.
func TestCancel(t *testing.T) {
	for _, form := range []string{"store", "ship"} {
		ctx, cancel := context.WithCancel(testContext(t))
		src := oneDir(fileEntry("a", 1, 8<<20), fileEntry("b", 2, 1<<40))
		open := src.open
		src.open = func(file *squashfs.Entry) squashfs.File {
			if file.Name == "b" {
				cancel()
			}
			return open(file)
		}
		var err error
		if form == "store" {
			_, err = squashfs.WriteStore(ctx, &discard{}, src, squashfs.StoreOptions{})
		} else {
			_, err = squashfs.WriteShip(ctx, scratch(t), src, squashfs.ShipOptions{BlockSize: 64 << 10, Level: 1})
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v", form, err)
		}
		cancel()
	}
}
