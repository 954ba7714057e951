package squashfs_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/testsource"
	"snapfs/internal/treewalk"
	"snapfs/squashfs"
)

func init() { squashfs.HostDir = func(root string) squashfs.Source { return testsource.Dir(root) } }

// fileSink collects a store-form image in a file and checks that the writer keeps the Sink contract.
type fileSink struct {
	f      *os.File
	off    int64
	cutEnd int64 // where the announced bytes end
	cuts   []squashfs.Cut
	header bool
}

func (s *fileSink) Write(p []byte) (int, error) {
	if s.header {
		return 0, fmt.Errorf("bytes after the header")
	}
	n, err := s.f.WriteAt(p, s.off)
	s.off += int64(n)
	if s.off > s.cutEnd {
		return n, fmt.Errorf("bytes up to %d, announced up to %d", s.off, s.cutEnd)
	}
	return n, err
}

func (s *fileSink) Cut(c squashfs.Cut) error {
	if s.off != s.cutEnd {
		return fmt.Errorf("cut %+v at %d, announced up to %d", c, s.off, s.cutEnd)
	}
	if c.Size <= 0 || (c.Path == "") != c.Meta || (c.Table != "") != c.Meta {
		return fmt.Errorf("cut %+v", c)
	}
	s.cuts = append(s.cuts, c)
	s.cutEnd += c.Size
	return nil
}

func (s *fileSink) Header(p []byte) error {
	if s.header || len(p) != squashfs.HeaderSize || s.off != s.cutEnd {
		return fmt.Errorf("header of %d bytes at %d of %d", len(p), s.off, s.cutEnd)
	}
	s.header = true
	_, err := s.f.WriteAt(p, 0)
	return err
}

// store writes the store form of src to a new file.
func store(t testing.TB, src squashfs.Source) (string, *fileSink) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "store.sqsh")
	f, err := os.Create(file)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	sink := &fileSink{f: f, off: squashfs.HeaderSize, cutEnd: squashfs.HeaderSize}
	info, err := squashfs.WriteStore(testContext(t), sink, src, squashfs.StoreOptions{})
	must(t, err)
	if info.Size != sink.off || info.Size%4096 != 0 || !sink.header {
		t.Fatalf("%d bytes written, Info %+v", sink.off, info)
	}
	return file, sink
}

// ship writes the ship form of src to a new file.
func ship(t testing.TB, src squashfs.Source, opts squashfs.ShipOptions) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ship.sqsh")
	f, err := os.Create(file)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	info, err := squashfs.WriteShip(testContext(t), f, src, opts)
	must(t, err)
	st, err := f.Stat()
	must(t, err)
	if info.Size != st.Size() || info.Size%4096 != 0 {
		t.Fatalf("%d bytes written, Info %+v", st.Size(), info)
	}
	return file
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// mountImage mounts an image by the kernel for the time of the test.
func mountImage(t testing.TB, file string) string {
	t.Helper()
	dir := t.TempDir()
	run(t, "mount", "-t", "squashfs", "-o", "loop,ro", file, dir)
	t.Cleanup(func() { run(t, "umount", dir) })
	return dir
}

// makeOddTree adds to makeTree what squashfs cannot hold.
func makeOddTree(t testing.TB) string {
	t.Helper()
	root := makeTree(t)
	at := func(name string) string { return filepath.Join(root, name) }
	run(t, "setfacl", "-m", "u:12:rw,g:34:r", at("small"))
	run(t, "setfacl", "-d", "-m", "u:56:rwx", at("deep"))
	f, err := os.Create(at("fine-holes"))
	must(t, err)
	for i := range int64(5) {
		_, err := f.WriteAt([]byte("data between holes"), i*64<<10+8192)
		must(t, err)
	}
	must(t, f.Truncate(1<<20+12345))
	must(t, f.Close())
	must(t, os.WriteFile(at("all-hole"), nil, 0o644))
	must(t, os.Truncate(at("all-hole"), 3<<20+5))
	must(t, os.WriteFile(at("small-hole"), nil, 0o644))
	must(t, os.Truncate(at("small-hole"), 777))
	must(t, unix.Mknod(at("whiteout"), unix.S_IFCHR, 0))
	i := int64(0)
	must(t, filepath.WalkDir(root, func(p string, _ os.DirEntry, err error) error {
		i++
		ts := []unix.Timespec{{Sec: 1}, {Sec: 1700000000 + i, Nsec: i * 1234567 % 1e9}}
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, p, ts, unix.AT_SYMLINK_NOFOLLOW))
		return err
	}))
	for name, sec := range map[string]int64{
		"text": -5, "noise": 1 << 33, "deep": -1 << 30, "fifo": 1<<32 - 1,
		"link": 1 << 32,
	} {
		ts := []unix.Timespec{{Sec: 1}, {Sec: sec, Nsec: 999999999}}
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, at(name), ts, unix.AT_SYMLINK_NOFOLLOW))
	}
	return root
}

// exact is how an image with an extension section must agree with its source.
var exact = treewalk.Options{Ino: true, Ctime: true, Btime: true}

// plain is what of a tree survives in other readers.
var plain = treewalk.Options{IgnoreExtents: true, IgnoreMtime: true, DropXattr: func(name string) bool {
	return name == "system.posix_acl_access" || name == "system.posix_acl_default"
}}

// memSource is a tree in memory; directories are made when they are asked for.
type memSource struct {
	root *squashfs.Entry
	list func(dir *squashfs.Entry) []*squashfs.Entry
	open func(file *squashfs.Entry) squashfs.File

	was     *squashfs.Entry
	entries map[string]*squashfs.Entry // of was
}

func (s *memSource) Root(context.Context) (*squashfs.Entry, error) { return s.root, nil }

func (s *memSource) Names(_ context.Context, dir *squashfs.Entry) ([]string, error) {
	var names []string
	for _, e := range s.list(dir) {
		names = append(names, e.Name)
	}
	return names, nil
}

func (s *memSource) Entry(_ context.Context, dir *squashfs.Entry, name string) (*squashfs.Entry, error) {
	if s.was != dir {
		s.was, s.entries = dir, map[string]*squashfs.Entry{}
		for _, e := range s.list(dir) {
			s.entries[e.Name] = e
		}
	}
	return s.entries[name], nil
}

func (s *memSource) Open(_ context.Context, file *squashfs.Entry) (squashfs.File, error) {
	return s.open(file), nil
}

// shuffled returns a source's entries in another order.
type shuffled struct {
	squashfs.Source
	rng *rand.Rand
}

func (s shuffled) Names(ctx context.Context, dir *squashfs.Entry) ([]string, error) {
	names, err := s.Source.Names(ctx, dir)
	slices.Sort(names)
	s.rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names, err
}

// pattern is a File without a host file: size bytes, of which the extents hold a pattern.
type pattern struct {
	size    int64
	extents []squashfs.Extent
	read    *int64 // bytes asked for, if counted
}

func (p pattern) Extents() ([]squashfs.Extent, error) { return p.extents, nil }
func (p pattern) Close() error                        { return nil }

func (p pattern) ReadAt(b []byte, off int64) (int, error) {
	if off >= p.size {
		return 0, io.EOF
	}
	n := int(min(int64(len(b)), p.size-off))
	clear(b[:n])
	for _, x := range p.extents {
		for at := max(x.Off, off); at < min(x.Off+x.Len, off+int64(n)); at++ {
			b[at-off] = byte(at%251) + 1
		}
	}
	if p.read != nil {
		*p.read += int64(n)
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}
