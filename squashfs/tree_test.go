package squashfs_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/treewalk"
	"snapfs/squashfs"
)

// must stops a test that cannot be set up.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a tool, bounded in time, and returns its output.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// makeTree builds a small tree of everything a file system holds. Contents are fixed.
func makeTree(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 2))
	at := func(name string) string { return filepath.Join(root, name) }
	write := func(name string, data []byte, mode os.FileMode) {
		t.Helper()
		must(t, os.MkdirAll(filepath.Dir(at(name)), 0o755))
		must(t, os.WriteFile(at(name), data, mode))
		must(t, os.Chmod(at(name), mode))
	}
	noise := make([]byte, 700<<10)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	text := bytes.Repeat([]byte("every agent sandbox a workspace. "), 20000)
	write("empty", nil, 0o644)
	write("small", []byte("hello\n"), 0o600)
	write("text", text, 0o644)
	write("text.copy", text, 0o640)
	write("noise", noise, 0o444)
	write("mixed", slices.Concat(noise[:5000], text[:200000], noise[:300000], make([]byte, 1<<20), text[:77]), 0o755)
	write("block", noise[:128<<10], 0o644)
	write("one-more", noise[:128<<10+1], 0o644)
	write("zeros", make([]byte, 300000), 0o644)
	write("deep/er/and/deeper/file", []byte("x"), 0o4711)
	write("name with blanks \n\xff\x80ü", []byte("odd"), 0o644)
	write(strings.Repeat("n", 255), []byte("long"), 0o644)
	for i := range 300 { // more than one directory header can hold
		write(fmt.Sprintf("many/file-%04d-%s", i, strings.Repeat("x", i%40)), fmt.Appendf(nil, "content %d", i*i),
			0o644)
	}
	must(t, os.Mkdir(at("empty-dir"), 0o1777))
	must(t, os.Chmod(at("empty-dir"), 0o777|os.ModeSticky))
	must(t, os.Symlink("small", at("link")))
	must(t, os.Symlink("/absolute/"+strings.Repeat("long/", 300), at("long-link")))
	must(t, os.Symlink("deep/er/../er/and", at("dir-link")))
	must(t, os.Link(at("text"), at("hard-1")))
	must(t, os.Link(at("text"), at("deep/hard-2")))
	must(t, unix.Mkfifo(at("fifo"), 0o620))
	must(t, unix.Mknod(at("chr"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	must(t, unix.Mknod(at("blk"), unix.S_IFBLK|0o660, int(unix.Mkdev(259, 70000))))
	must(t, unix.Mknod(at("sock"), unix.S_IFSOCK|0o755, 0))
	must(t, unix.Link(at("chr"), at("chr-2")))
	must(t, unix.Link(at("fifo"), at("fifo-2")))
	sparse, err := os.Create(at("sparse"))
	must(t, err)
	for _, off := range []int64{0, 3 << 20, 5<<20 + 4096} {
		_, err := sparse.WriteAt(text[:5000], off)
		must(t, err)
	}
	must(t, sparse.Truncate(9<<20+17))
	must(t, sparse.Close())
	for i, name := range []string{"small", "deep", "mixed", "empty-dir"} {
		must(t, unix.Lsetxattr(at(name), "user.short", []byte("value"), 0))
		must(t, unix.Lsetxattr(at(name), "user.long", noise[:2000+i/2], 0))
		must(t, unix.Lsetxattr(at(name), "user.empty", nil, 0))
		must(t, unix.Lsetxattr(at(name), "trusted.overlay.opaque", []byte("y"), 0))
	}
	must(t, unix.Lsetxattr(at("link"), "trusted.of-a-link", []byte("1"), 0))
	must(t, unix.Lsetxattr(at("chr"), "trusted.of-a-device", []byte("2"), 0))
	must(t, unix.Lsetxattr(at("fifo"), "security.of-a-fifo", []byte("3"), 0))
	must(t, os.Lchown(at("small"), 12, 34))
	must(t, os.Lchown(at("link"), 70000, 1<<32-2))
	must(t, os.Lchown(at("deep"), 1000, 100))
	// Access times ahead of now stay as they are when a file is read: mksquashfs takes two names whose stat differs in
	// anything, even in the access time, for two files.
	i, atime := int64(0), time.Now().Add(time.Hour).Unix()
	must(t, filepath.WalkDir(root, func(p string, _ os.DirEntry, err error) error {
		i++
		ts := []unix.Timespec{{Sec: atime}, {Sec: 1000000000 + i*1000003}}
		return errors.Join(err, unix.UtimesNanoAt(unix.AT_FDCWD, p, ts, unix.AT_SYMLINK_NOFOLLOW))
	}))
	return root
}

// dropEmptyXattrs takes from a tree what some tools cannot handle.
func dropEmptyXattrs(t testing.TB, root string) {
	t.Helper()
	must(t, filepath.WalkDir(root, func(p string, _ os.DirEntry, err error) error {
		if xerr := unix.Lremovexattr(p, "user.empty"); xerr != nil && !errors.Is(xerr, unix.ENODATA) &&
			!errors.Is(xerr, unix.EPERM) {
			return xerr
		}
		return err
	}))
}

// walkImage lists an image as treewalk lists a mounted one, through Inode. Contents are read in pieces of odd sizes.
func walkImage(im *squashfs.Image) ([]treewalk.Node, error) {
	var nodes []treewalk.Node
	var visit func(ref squashfs.Ref, name string) error
	visit = func(ref squashfs.Ref, name string) error {
		n, err := im.Inode(ref)
		if err != nil {
			return err
		}
		node, err := imageNode(n)
		if err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		node.Path = name
		nodes = append(nodes, node)
		if node.Mode&unix.S_IFMT != unix.S_IFDIR {
			return nil
		}
		for e, err := range n.ReadDir("") {
			if err != nil {
				return err
			}
			if err := visit(e.Ref, path.Join(name, e.Name)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := visit(im.Root(), "."); err != nil {
		return nil, err
	}
	slices.SortFunc(nodes, func(a, b treewalk.Node) int { return strings.Compare(a.Path, b.Path) })
	first := map[uint64]int{}
	for i := range nodes {
		n := &nodes[i]
		if n.Nlink < 2 || n.Mode&unix.S_IFMT == unix.S_IFDIR {
			continue
		}
		if f, ok := first[n.Ino]; ok {
			nodes[f].Group, n.Group = nodes[f].Path, nodes[f].Path
		} else {
			first[n.Ino] = i
		}
	}
	return nodes, nil
}

func imageNode(n *squashfs.Inode) (treewalk.Node, error) {
	a := n.Attr()
	stamp := func(t squashfs.Time) treewalk.Time { return treewalk.Time{Sec: t.Sec, Nsec: int64(t.Nsec)} }
	node := treewalk.Node{
		Mode: a.Mode, UID: a.UID, GID: a.GID, Nlink: uint64(a.Nlink), Ino: a.Ino, Rdev: a.Rdev, Size: a.Size,
		Mtime: stamp(a.Mtime), Ctime: stamp(a.Ctime), Btime: stamp(a.Btime),
	}
	list, err := n.Xattrs()
	if err != nil {
		return node, err
	}
	for _, x := range list {
		if node.Xattrs == nil {
			node.Xattrs = map[string]string{}
		}
		node.Xattrs[x.Name] = string(x.Value)
	}
	switch a.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		node.Size = 0
	case unix.S_IFLNK:
		node.Target, err = n.Readlink()
	case unix.S_IFREG:
		if node.Hash, err = hashInode(n); err != nil {
			return node, err
		}
		var extents []squashfs.Extent
		extents, err = n.Extents()
		for _, x := range extents {
			node.Extents = append(node.Extents, treewalk.Extent(x))
		}
	}
	return node, err
}

func hashInode(n *squashfs.Inode) (string, error) {
	h := sha256.New()
	buf := make([]byte, 1<<20)
	pieces := []int{1, 4095, 131072, 70001, 1 << 20}
	off := int64(0)
	for i := 0; ; i++ {
		m, err := n.ReadAt(buf[:pieces[i%len(pieces)]], off)
		h.Write(buf[:m])
		off += int64(m)
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
}

// openImage opens an image file for the time of the test.
func openImage(t testing.TB, file string) *squashfs.Image {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	must(t, err)
	im, err := squashfs.Open(f, info.Size(), squashfs.Options{})
	must(t, err)
	return im
}

// sameTree compares a walk of an image with one of the source. Holes of images are whole blocks.
func sameTree(t testing.TB, want, got []treewalk.Node, opts treewalk.Options) {
	t.Helper()
	for _, line := range treewalk.Diff(want, got, opts) {
		t.Errorf("%.300s", line)
	}
}
