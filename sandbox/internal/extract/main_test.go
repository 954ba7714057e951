package extract_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/hosttree"
	"snapfs/internal/testsource"
	"snapfs/internal/treewalk"
	"snapfs/sandbox/internal/extract"
	"snapfs/squashfs"
)

const snapshot = "0199aaaa-0000-7000-8000-000000000001"

// shared makes a source of the host one for several goroutines.
type shared struct {
	mu sync.Mutex
	*testsource.Directory
}

func (s *shared) Names(ctx context.Context, dir *squashfs.Entry) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Directory.Names(ctx, dir)
}

func (s *shared) Entry(ctx context.Context, dir *squashfs.Entry, name string) (*squashfs.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Directory.Entry(ctx, dir, name)
}

func (s *shared) Open(ctx context.Context, file *squashfs.Entry) (squashfs.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Directory.Open(ctx, file)
}

// source presents a directory of the host.
func source(t *testing.T, dir string) squashfs.Source {
	s := &shared{Directory: testsource.Dir(dir)}
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// write writes a tree into a directory.
func write(ctx context.Context, src squashfs.Source, path, id string, o extract.Options) (extract.Result, error) {
	target, err := extract.Open(path, id)
	if err != nil {
		return extract.Result{}, err
	}
	r, err := target.Extract(ctx, src, o)
	return r, errors.Join(err, target.Close())
}

// walkOf is a tree as the kernel shows it.
func walkOf(t *testing.T, dir string) []treewalk.Node {
	t.Helper()
	tree, err := treewalk.Walk(dir)
	require.NoError(t, err)
	return tree
}

// same fails unless two directories have the same tree.
func same(t *testing.T, want, got string) {
	t.Helper()
	a, err := treewalk.Walk(want)
	require.NoError(t, err)
	b, err := treewalk.Walk(got)
	require.NoError(t, err)
	d := treewalk.Diff(a, b, treewalk.Options{})
	require.Empty(t, d[:min(len(d), 20)])
}

// scratch is a directory that may get trees of any depth.
func scratch(t *testing.T) string {
	dir, err := os.MkdirTemp("", "extract-")
	require.NoError(t, err)
	dir, err = filepath.EvalSymlinks(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, hosttree.RemovePath(dir)) })
	return dir
}

// torture makes a tree with all that a host can have.
func torture(t *testing.T, dir string) {
	t.Helper()
	no := func(err error) { t.Helper(); require.NoError(t, err) }
	at := func(name string) string { return filepath.Join(dir, name) }
	no(os.Mkdir(dir, 0o755))
	for i, name := range []string{
		"a", "b", "new\nline", "latin-\xe9\xff", "-dash", `quote"'$(x)\`, " ", strings.Repeat("n", 255), "Ünï", "a.b", ".x",
	} {
		no(os.Mkdir(at(name), 0o755))
		for j := range 12 {
			text := strings.Repeat(name, i*j*97)
			no(os.WriteFile(at(name+"/"+string(rune('a'+j))+name[:min(len(name), 200)]), []byte(text), 0o644))
		}
	}
	no(os.WriteFile(at("empty"), nil, 0o000))
	big := make([]byte, 21<<20)
	for i := range big {
		big[i] = byte(i * i >> 7)
	}
	no(os.WriteFile(at("big"), big, 0o640))
	no(os.WriteFile(at(".snapfs-restore"), []byte("of the tree"), 0o644))
	sparse, err := os.Create(at("sparse"))
	no(err)
	no(sparse.Truncate(64 << 20))
	for _, off := range []int64{0, 1 << 20, 1<<25 + 4096, 1<<26 - 4096} {
		_, err = sparse.WriteAt([]byte("data"), off)
		no(err)
	}
	no(sparse.Close())
	hole, err := os.Create(at("hole"))
	no(err)
	no(errors.Join(hole.Truncate(4096), hole.Close()))
	for _, name := range []string{"b/second", "third", "a/fourth"} {
		no(os.Link(at("big"), at(name)))
	}
	no(os.Symlink("nowhere/at/all", at("dangling")))
	no(os.Symlink("/etc/passwd", at("absolute")))
	no(os.Symlink(strings.Repeat("x/", 2000), at("long")))
	no(unix.Linkat(unix.AT_FDCWD, at("dangling"), unix.AT_FDCWD, at("b/dangling2"), 0))
	no(unix.Mkfifo(at("fifo"), 0o644))
	no(unix.Mknod(at("socket"), unix.S_IFSOCK|0o755, 0))
	no(unix.Mknod(at("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	no(unix.Mknod(at("disk"), unix.S_IFBLK|0o660, int(unix.Mkdev(259, 1048575))))
	no(os.Link(at("null"), at("a/null")))
	for i, name := range []string{"dangling", "fifo", "socket", "null", "a/a" + "a", "a", "b/b" + "b", "disk", "big"} {
		no(os.Lchown(at(name), 1000+i, 2000+i))
	}
	// An ACL: user 1000 may read.
	acl := []byte("\x02\x00\x00\x00\x01\x00\x06\x00\xff\xff\xff\xff\x02\x00\x04\x00\xe8\x03\x00\x00" +
		"\x04\x00\x04\x00\xff\xff\xff\xff\x10\x00\x04\x00\xff\xff\xff\xff\x20\x00\x00\x00\xff\xff\xff\xff")
	no(unix.Setxattr(at("a/ba"), "system.posix_acl_access", acl, 0))
	no(unix.Setxattr(at("a"), "system.posix_acl_default", acl, 0))
	no(unix.Setxattr(dir, "user.of-root", []byte("r"), 0))
	no(unix.Setxattr(at("b"), "user.x", []byte(strings.Repeat("v", 3000)), 0))
	no(unix.Setxattr(at("b"), "user.empty", nil, 0))
	no(unix.Lsetxattr(at("dangling"), "trusted.t", []byte("1"), 0))
	no(unix.Lsetxattr(at("fifo"), "trusted.t", []byte("2"), 0))
	no(unix.Setxattr(at("a/ca"), "security.capability",
		[]byte("\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0))
	for name, mode := range map[string]fs.FileMode{
		"a/aa": 0o755 | fs.ModeSetuid, "b/bb": 0o711 | fs.ModeSetgid, "b": 0o777 | fs.ModeSticky, "a": 0o2750 | fs.ModeSetgid,
		"Ünï": 0o000, "a.b": 0o500,
	} {
		no(os.Chmod(at(name), mode))
	}
	deepTree(t, at("deep"), 60)
	for i, sec := range []int64{-1_000_000_000, -1, 0, 1<<32 + 5, 1 << 33, 1<<34 - 3_000_000_000} {
		name := at(".x/" + string(rune('a'+i)) + ".x")
		no(unix.UtimesNanoAt(unix.AT_FDCWD, name, []unix.Timespec{{Sec: sec, Nsec: 1}, {Sec: sec, Nsec: int64(i) * 111_111_111}}, 0))
	}
	for i, name := range []string{"dangling", "fifo", "null", "a", "deep", "Ünï", ""} {
		ts := unix.Timespec{Sec: int64(1_000_000_000 + i), Nsec: 123_456_789}
		no(unix.UtimesNanoAt(unix.AT_FDCWD, at(name), []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW))
	}
}

// deepTree makes directories below each other with names of 200 bytes.
func deepTree(t *testing.T, path string, levels int) {
	t.Helper()
	require.NoError(t, os.Mkdir(path, 0o755))
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	name := strings.Repeat("d", 200)
	for range levels {
		require.NoError(t, unix.Mkdirat(fd, name, 0o755))
		file, err := unix.Openat(fd, "file", unix.O_CREAT|unix.O_WRONLY, 0o644)
		require.NoError(t, err)
		_, err = unix.Write(file, []byte(name))
		require.NoError(t, err)
		unix.Close(file)
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		require.NoError(t, err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
}

// node is a node of a made-up tree.
type node struct {
	attr   squashfs.Attr
	id     uint64
	target string
	xattrs []squashfs.Xattr
	text   string
	ends   int // if not 0, where reading ends, whatever the extents say
	names  []string
	nodes  map[string]*node
}

// dirOf makes a directory of pairs of names and nodes.
func dirOf(pairs ...any) *node {
	d := &node{attr: squashfs.Attr{Mode: unix.S_IFDIR | 0o755, Nlink: 2}, nodes: map[string]*node{}}
	for i := 0; i < len(pairs); i += 2 {
		name := pairs[i].(string)
		d.names = append(d.names, name)
		d.nodes[name] = pairs[i+1].(*node)
	}
	return d
}

func fileOf(text string) *node {
	return &node{attr: squashfs.Attr{Mode: unix.S_IFREG | 0o644, Nlink: 1, Size: int64(len(text))}, text: text}
}

// madeUp is a source that may be no image.
type madeUp struct{ root *node }

func (m madeUp) Root(context.Context) (*squashfs.Entry, error) { return entryOf("", m.root), nil }

func entryOf(name string, n *node) *squashfs.Entry {
	return &squashfs.Entry{
		Name: name, Attr: n.attr, Inode: squashfs.InodeID{Layer: 1, Inode: n.id}, Xattrs: n.xattrs, Target: n.target, Handle: n,
	}
}

func (m madeUp) Names(_ context.Context, dir *squashfs.Entry) ([]string, error) {
	return slices.Clone(dir.Handle.(*node).names), nil
}

func (m madeUp) Entry(_ context.Context, dir *squashfs.Entry, name string) (*squashfs.Entry, error) {
	return entryOf(name, dir.Handle.(*node).nodes[name]), nil
}

func (m madeUp) Open(_ context.Context, file *squashfs.Entry) (squashfs.File, error) {
	n := file.Handle.(*node)
	text := n.text
	if n.ends > 0 {
		text = text[:n.ends]
	}
	return textFile{strings.NewReader(text), int64(len(n.text))}, nil
}

type textFile struct {
	*strings.Reader
	size int64
}

func (f textFile) Close() error { return nil }
func (f textFile) Extents() ([]squashfs.Extent, error) {
	return []squashfs.Extent{{Len: f.size}}, nil
}
