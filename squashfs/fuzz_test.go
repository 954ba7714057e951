package squashfs

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The fuzz targets take whole structures, placed in a sound image where that is needed. They fail on panics, on errors
// that are not ErrCorrupt, and when reading takes long. What they have found is under testdata/fuzz.

func seedImages(f *testing.F) {
	f.Helper()
	files, err := filepath.Glob(filepath.Join(brokenDir, "*.sqsh"))
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		img, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(img)
	}
}

// onlyCorrupt fails on any other error.
func onlyCorrupt(t *testing.T, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, ErrCorrupt) {
		t.Fatalf("error of another class: %v", err)
	}
}

func FuzzSuperblock(f *testing.F) {
	seedImages(f)
	f.Fuzz(func(t *testing.T, head []byte) {
		img := soundModel().build()
		copy(img, head[:min(len(head), superblockSize)])
		im, err := Open(bytes.NewReader(img), int64(len(img)), Options{})
		onlyCorrupt(t, err)
		if err == nil {
			_, err := im.Inode(im.Root())
			onlyCorrupt(t, err)
		}
	})
}

func FuzzInode(f *testing.F) {
	m := soundModel()
	m.build()
	for i := range m.inodes {
		f.Add((&model{inodes: m.inodes[i : i+1]}).encodeInodes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := soundModel()
		m.meta = func(table []byte) []byte { return append(stored(b), table...) }
		img := m.build()
		im, err := Open(bytes.NewReader(img), int64(len(img)), Options{})
		if err != nil {
			t.Fatal(err)
		}
		n, err := im.Inode(0)
		onlyCorrupt(t, err)
		if err != nil {
			return
		}
		_, err = n.Extents()
		if !errors.Is(err, unix.EINVAL) {
			onlyCorrupt(t, err)
		}
		n.Data()
		_, err = n.Xattrs()
		onlyCorrupt(t, err)
		if n.Attr().Mode&unix.S_IFMT == unix.S_IFREG && n.Attr().Size > 0 {
			_, err = n.ReadAt(make([]byte, 1), n.Attr().Size-1)
			onlyCorrupt(t, err)
		}
		if n.Attr().Mode&unix.S_IFMT == unix.S_IFDIR {
			_, err := im.FS().Open(".")
			onlyCorrupt(t, err)
			for _, err := range n.ReadDir("m") {
				onlyCorrupt(t, err)
			}
		}
	})
}

func FuzzDirectory(f *testing.F) {
	m := soundModel()
	m.grow()
	m.build()
	for i := range m.inodes {
		f.Add(m.inodes[i].listing, "hard")
	}
	f.Fuzz(func(t *testing.T, listing []byte, name string) {
		m := soundModel()
		m.inodes[mBig].listing = append([]byte{}, listing...)
		img := m.build()
		im, err := Open(bytes.NewReader(img), int64(len(img)), Options{})
		if err != nil {
			t.Fatal(err)
		}
		n, err := im.Inode(m.refs[mBig])
		if err != nil {
			t.Fatal(err)
		}
		var last string
		for e, err := range n.ReadDir("") {
			onlyCorrupt(t, err)
			if err != nil {
				break
			}
			if e.Name <= last || badName([]byte(e.Name)) != "" {
				t.Fatalf("%q is listed after %q", e.Name, last)
			}
			last = e.Name
			found, err := n.Lookup(e.Name)
			if onlyCorrupt(t, err); err == nil && found != e {
				t.Fatalf("%v is listed, %v found", e, found)
			}
		}
		if _, err := n.Lookup(name); !errors.Is(err, fs.ErrNotExist) {
			onlyCorrupt(t, err)
		}
	})
}

func FuzzMetadata(f *testing.F) {
	f.Add(stored(make([]byte, 9000)), uint16(5), uint16(8190))
	f.Add(append([]byte{20, 0}, bomb(8192)...), uint16(0), uint16(17))
	f.Fuzz(func(t *testing.T, table []byte, off, n uint16) {
		m := soundModel()
		m.meta = func([]byte) []byte { return table }
		img := m.build()
		im, err := Open(bytes.NewReader(img), int64(len(img)), Options{CacheBytes: 1})
		onlyCorrupt(t, err)
		if err != nil {
			return
		}
		c, err := im.cursor(im.inodes, position{im.inodes.start, int(off)})
		onlyCorrupt(t, err)
		if err != nil {
			return
		}
		b, err := c.take(int(n))
		if onlyCorrupt(t, err); err == nil && len(b) != int(n) {
			t.Fatalf("%d bytes, want %d", len(b), n)
		}
		onlyCorrupt(t, c.skip(int64(n)))
	})
}

func FuzzImage(f *testing.F) {
	seedImages(f)
	f.Fuzz(func(t *testing.T, img []byte) {
		start := time.Now()
		onlyCorrupt(t, readAll(img))
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := Check(ctx, bytes.NewReader(img), int64(len(img)), func(Violation) {})
		if err != nil {
			t.Fatalf("check: %v after %v", err, time.Since(start))
		}
	})
}

func FuzzExtension(f *testing.F) {
	for _, s := range extensionScenarios {
		m := soundModel()
		s.make(m)
		img := m.build()
		f.Add(img[(m.sb.bytesUsed+padding-1)/padding*padding:])
	}
	base := soundModel()
	img := base.build()
	f.Fuzz(func(t *testing.T, section []byte) {
		img := append(img[:len(img):len(img)], section...)
		onlyCorrupt(t, readAll(img))
		for _, v := range violations(t, img) {
			if v.Off >= 0 && v.Off < int64(base.sb.bytesUsed) {
				t.Fatalf("a section makes the image before it unsound: %+v", v)
			}
		}
	})
}

// FuzzDecompress passes arbitrary bytes to every decompressor.
func FuzzDecompress(f *testing.F) {
	for id := uint16(compressorGzip); id <= compressorZstd; id++ {
		f.Add(id, bomb(5000), 5000)
	}
	f.Fuzz(func(t *testing.T, id uint16, src []byte, limit int) {
		d, err := newDecompressor(id%compressorZstd + 1)
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, max(limit, 0)%maxBlockSize)
		if n, err := d(dst, src); err == nil && n > len(dst) {
			t.Fatalf("%d bytes in a buffer of %d", n, len(dst))
		}
	})
}
