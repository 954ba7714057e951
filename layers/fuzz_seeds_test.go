package layers

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// imageBuffer is a squashfs.Sink that keeps the image, up to a size.
type imageBuffer struct{ b []byte }

var errBufferFull = errors.New("the buffer is full")

func newImageBuffer() *imageBuffer { return &imageBuffer{make([]byte, squashfs.HeaderSize)} }

func (m *imageBuffer) Write(p []byte) (int, error) {
	if len(m.b)+len(p) > 8<<20 {
		return 0, errBufferFull
	}
	m.b = append(m.b, p...)
	return len(p), nil
}
func (m *imageBuffer) Cut(squashfs.Cut) error { return nil }
func (m *imageBuffer) Header(p []byte) error  { copy(m.b, p); return nil }

// memFile is a file of a memTree. Those with the same number are one file.
type memFile struct {
	path   string
	mode   uint32
	data   string // of regular files and symlinks
	holes  int64  // bytes of hole behind the data
	number uint64 // 0: its own
	rdev   uint64
	xattrs []squashfs.Xattr
}

// memTree is a squashfs.Source in memory; parents come first.
type memTree []memFile

func (m memTree) entry(i int) *squashfs.Entry {
	f := m[i]
	e := &squashfs.Entry{Name: filepath.Base(f.path), Xattrs: f.xattrs, Handle: i, Attr: squashfs.Attr{
		Ino: f.number, Mode: f.mode, Nlink: 1, UID: uint32(i % 3), GID: 7, Rdev: f.rdev, Size: int64(len(f.data)) + f.holes,
		Mtime: squashfs.Time{Sec: 1e9 + int64(i), Nsec: uint32(i)}, Ctime: squashfs.Time{Sec: 1e9}, Btime: squashfs.Time{Sec: 9e8},
	}}
	if f.number == 0 {
		e.Attr.Ino = uint64(i + 100)
	} else {
		e.Attr.Nlink = 2
	}
	switch {
	case f.path == "":
		e.Name, e.Attr.Ino = "", rootIno
	case isLnk(f.mode):
		e.Target = f.data
	}
	return e
}

func (m memTree) Root(context.Context) (*squashfs.Entry, error) { return m.entry(0), nil }

func (m memTree) Names(_ context.Context, dir *squashfs.Entry) ([]string, error) {
	var names []string
	for _, f := range m[1:] {
		if strings.TrimPrefix(filepath.Dir("/"+f.path), "/") == m[dir.Handle.(int)].path {
			names = append(names, filepath.Base(f.path))
		}
	}
	return names, nil
}

func (m memTree) Entry(_ context.Context, dir *squashfs.Entry, name string) (*squashfs.Entry, error) {
	path := strings.TrimPrefix(m[dir.Handle.(int)].path+"/"+name, "/")
	return m.entry(slices.IndexFunc(m, func(f memFile) bool { return f.path == path })), nil
}

func (m memTree) Open(_ context.Context, file *squashfs.Entry) (squashfs.File, error) {
	f := m[file.Handle.(int)]
	return memData{strings.NewReader(f.data + strings.Repeat("\x00", int(f.holes))), int64(len(f.data))}, nil
}

type memData struct {
	io.ReaderAt
	data int64
}

func (memData) Close() error { return nil }

func (d memData) Extents() ([]squashfs.Extent, error) {
	if d.data == 0 {
		return nil, nil
	}
	return []squashfs.Extent{{Off: 0, Len: d.data}}, nil
}

// attrs makes attributes of names and values in turn.
func attrs(pairs ...string) []squashfs.Xattr {
	var list []squashfs.Xattr
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, squashfs.Xattr{Name: pairs[i], Value: []byte(pairs[i+1])})
	}
	return list
}

const (
	fuzzDir  = unix.S_IFDIR | 0o755
	fuzzFile = unix.S_IFREG | 0o644
	fuzzNull = unix.S_IFCHR | 0o600
)

// stackTrees are layers as an overlay writes them, each made for what the first one has.
func stackTrees() []memTree {
	root := memFile{mode: fuzzDir}
	text := strings.Repeat("text ", 40)
	blocks := binary.LittleEndian.AppendUint64([]byte{1, 16, 0, 0, 0, 0, 0, 0}, 96<<10)
	blocks = append(blocks, make([]byte, 16)...)
	whiteout := func(path string) memFile { return memFile{path: path, mode: fuzzNull} }
	return []memTree{
		{ // a base
			root,
			{path: "d", mode: fuzzDir, xattrs: attrs("user.u", "v", xattrDefaultACL, accessACL)},
			{path: "d/f", mode: fuzzFile | 0o4755, data: "file"},
			{path: "d/l1", mode: fuzzFile, data: "linked", number: 20, xattrs: attrs("trusted.t", "1")},
			{path: "d/sub", mode: fuzzDir | 0o1777},
			{path: "d/sub/deep", mode: fuzzDir},
			{path: "d/sub/deep/g", mode: fuzzFile, data: text, xattrs: attrs("system.posix_acl_access", accessACL)},
			{path: "d/sub/gone", mode: fuzzFile, data: "gone"},
			{path: "e", mode: fuzzDir | 0o2750},
			{path: "e/l2", mode: fuzzFile, data: "linked", number: 20, xattrs: attrs("trusted.t", "1")},
			{path: "e/null", mode: fuzzNull, rdev: unix.Mkdev(1, 3)},
			{path: "e/pipe", mode: unix.S_IFIFO | 0o600},
			{path: "e/sym", mode: unix.S_IFLNK | 0o777, data: "../d/f"},
			{path: "empty", mode: fuzzFile},
			{path: "big", mode: fuzzFile, data: strings.Repeat("b", 4096), holes: 92 << 10},
			{path: "x", mode: fuzzFile, data: "file under a directory"},
			{path: "y", mode: fuzzDir},
			{path: "y/z", mode: fuzzFile, data: "z"},
		},
		{ // whiteouts, opaque directories, other kinds
			root,
			{path: "d", mode: fuzzDir | 0o700},
			whiteout("d/f"),
			{path: "d/sub", mode: fuzzDir, xattrs: attrs(xattrOpaque, "y")},
			{path: "d/sub/new", mode: fuzzFile, data: "new"},
			{path: "e", mode: fuzzDir, xattrs: attrs(xattrOpaque, "x")},
			{path: "e/pipe", mode: fuzzFile, xattrs: attrs(xattrWhiteout, "y")},
			{path: "e/node", mode: fuzzFile, xattrs: attrs(xattrNode, "c")},
			{path: "e/escaped", mode: fuzzFile, data: "1", xattrs: attrs(xattrEscaped+"opaque", "y")},
			{path: "x", mode: fuzzDir},
			{path: "x/below", mode: fuzzFile, data: "below"},
			{path: "y", mode: unix.S_IFLNK | 0o777, data: "d"},
			whiteout("nothing"),
		},
		{ // directories that have moved, files of which only the metadata were copied
			root,
			whiteout("d"),
			{path: "moved", mode: fuzzDir, xattrs: attrs(xattrRedirect, "/d")},
			{path: "moved/f", mode: fuzzFile, holes: 4, xattrs: attrs(xattrMetacopy, "", xattrRedirect, "/d/f")},
			{path: "moved/sub", mode: fuzzDir, xattrs: attrs(xattrRedirect, "/e")},
			{path: "deep", mode: fuzzDir, xattrs: attrs(xattrRedirect, "/d/sub/deep")},
			{path: "moved/l1", mode: fuzzFile, number: 21, holes: 6, xattrs: attrs(xattrMetacopy, "", xattrRedirect, "/d/l1")},
			{path: "moved/l3", mode: fuzzFile, number: 21, holes: 6, xattrs: attrs(xattrMetacopy, "", xattrRedirect, "/d/l1")},
			{path: "big", mode: fuzzFile, holes: 96 << 10, xattrs: attrs(xattrMetacopy, "")},
			{path: "here", mode: fuzzDir, xattrs: attrs(xattrRedirect, "y", xattrIno, "\x01\x00\x00\x00\x00\x00\x00\x00")},
		},
		{ // what is not there, and what no image has
			root,
			{path: "big", mode: fuzzFile, holes: 96 << 10, xattrs: attrs(xattrMetacopy, metacopyPartial, xattrBlocks, string(blocks)+"\x05")},
			{path: "d", mode: fuzzDir, xattrs: attrs(xattrRedirect, "/nowhere", xattrOpaque, "y")},
			{path: "d/f", mode: fuzzFile, holes: 4, xattrs: attrs(xattrMetacopy, "")},
			{path: "e", mode: fuzzDir, xattrs: attrs(xattrRedirect, "/d/sub/deep/../../..")},
			{path: "far", mode: fuzzDir, xattrs: attrs(xattrFar, "12345678")},
			{path: "empty", mode: fuzzFile, holes: 9, xattrs: attrs(xattrMetacopy, "", xattrRedirect, "/d/sub")},
		},
	}
}

// stackSeeds are whole images: layers, and what is small of what other tools and the tests of broken images have.
func stackSeeds(f *testing.F) [][]byte {
	f.Helper()
	var seeds [][]byte
	for _, tree := range stackTrees() {
		m := newImageBuffer()
		if _, err := squashfs.WriteStore(f.Context(), m, tree, squashfs.StoreOptions{}); err != nil {
			f.Fatal(err)
		}
		seeds = append(seeds, m.b)
	}
	for _, pattern := range []string{"../squashfs/testdata/trees/*.sqsh", "../testdata/broken/*.sqsh"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("%s: %v", pattern, err)
		}
		slices.Sort(files)
		for _, file := range files {
			img, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			if len(img) >= squashfs.HeaderSize && !slices.ContainsFunc(seeds, func(s []byte) bool { return bytes.Equal(s, img) }) {
				seeds = append(seeds, img)
			}
		}
	}
	return seeds
}
