package layers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/internal/statcache"
	"snapfs/internal/testseed"
	"snapfs/squashfs"
)

// kernelUpper is a kernel overlayfs over a directory of the host, and the same tree as an image.
type kernelUpper struct {
	t     *testing.T
	store *chunkstore.Store
	base  *Lower
	lower string // directory
	upper string
	mount *kernelMount
	at    string // where it is mounted
	end   func()

	state *CaptureState // of the last capture that was asked to keep one
	stack []*Lower      // its image and what that lies on, topmost first

	notes string // directory; of Seen
	from  *statcache.Reader
	to    *statcache.Writer
	kept  int
}

func (k *kernelUpper) Len() int                             { return k.from.Len() }
func (k *kernelUpper) Find(f statcache.File) ([]byte, bool) { return k.from.Find(f) }
func (k *kernelUpper) Note(f statcache.File, note []byte)   { k.to.Note(f, note) }
func (k *kernelUpper) Keep(f statcache.File, note []byte)   { k.kept++; k.to.Note(f, note) }

// upperBase is Options.InoBase of the upper.
const upperBase = 7 << 32

// newKernelUpper mounts one over a tree, which must not change any more.
func newKernelUpper(t testing.TB, lower string) *kernelUpper {
	t.Helper()
	tt := t.(*testing.T)
	k := &kernelUpper{t: tt, store: openStore(tt), lower: lower, notes: t.TempDir()}
	m, err := StoreTree(t.Context(), k.store, lower, StoreOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	k.base = openStored(tt, k.store, "base", m)
	t.Cleanup(func() {
		if err := k.base.Close(); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	k.upper, k.at = filepath.Join(dir, "u"), filepath.Join(dir, "m")
	for _, d := range []string{k.upper, filepath.Join(dir, "w"), k.at} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // it may be called again
		if err := PrepareUpper(k.upper, []*Lower{k.base}); err != nil {
			t.Fatal(err)
		}
	}
	opts := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s/w,redirect_dir=on,metacopy=off,index=off,xino=off,nfs_export=off", lower, k.upper, dir)
	if err := unix.Mount("overlay", k.at, "overlay", 0, opts); err != nil {
		t.Fatal("mount: ", err)
	}
	fd, err := unix.Open(k.at, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	k.mount = &kernelMount{fd}
	ended := false
	k.end = func() {
		if ended {
			return
		}
		ended = true
		_ = unix.Close(fd)
		if err := unix.Unmount(k.at, 0); err != nil {
			t.Error("unmount: ", err)
		}
	}
	t.Cleanup(func() { k.end() })
	return k
}

// open opens the upper as a layer, which the test closes.
func (k *kernelUpper) open() *Lower {
	k.t.Helper()
	l, err := OpenSealed("upper", k.upper, upperBase)
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() {
		if err := l.Close(); err != nil {
			k.t.Error(err)
		}
	})
	return l
}

// capture captures the upper with what the capture before has noted.
func (k *kernelUpper) capture() (*Lower, chunkstore.Manifest, Captured) {
	k.t.Helper()
	var err error
	if k.from, err = statcache.Open(k.notes, statcache.Key{}); err != nil {
		k.t.Fatal(err)
	}
	if k.to, err = statcache.Create(k.notes, statcache.Key{}); err != nil {
		k.t.Fatal(err)
	}
	k.kept = 0
	m, told, err := Capture(k.t.Context(), k.store, k.open(), []*Lower{k.base}, k.options(), nil)
	if err != nil {
		k.t.Fatal(err)
	}
	if err := k.to.Commit(); err != nil {
		k.t.Fatal(err)
	}
	return k.stored(m), m, told
}

func (k *kernelUpper) options() StoreOptions {
	return StoreOptions{Home: 5, NoSync: true, Seen: func(_, _ uint64) Seen { return k }, Scratch: filepath.Dir(k.upper)}
}

// stored opens an image, which the test closes.
func (k *kernelUpper) stored(m chunkstore.Manifest) *Lower {
	k.t.Helper()
	l := openStored(k.t, k.store, fmt.Sprint("upper", m.ID), m)
	k.t.Cleanup(func() {
		if err := l.Close(); err != nil {
			k.t.Error(err)
		}
	})
	return l
}

// captureChanges captures what has changed since it was called last, and reports whether that is a layer over the last.
func (k *kernelUpper) captureChanges() (onLast bool, told Captured) {
	k.t.Helper()
	var err error
	if k.from, err = statcache.Open(k.t.TempDir(), statcache.Key{}); err != nil {
		k.t.Fatal(err)
	}
	if k.to, err = statcache.Create(k.t.TempDir(), statcache.Key{}); err != nil {
		k.t.Fatal(err)
	}
	opts := k.options()
	opts.Since, opts.Last, opts.SeenSince = k.state, k.stack, opts.Seen
	m, told, err := Capture(k.t.Context(), k.store, k.open(), []*Lower{k.base}, opts,
		func(_ *chunkstore.Tx, _ chunkstore.Manifest, on bool) error { onLast = on; return nil })
	if err := errors.Join(err, k.to.Abort()); err != nil {
		k.t.Fatal(err)
	}
	k.state = told.State
	switch {
	case told.Same:
	case onLast:
		k.stack = append([]*Lower{k.stored(m)}, k.stack...)
	default:
		k.stack = []*Lower{k.stored(m), k.base}
	}
	return onLast, told
}

// shown is a tree as stat, listxattr and read show it, but for what an overlay does not keep: inode numbers, and the link
// counts of directories, which are counted.
func shown(t testing.TB, root string) []string {
	t.Helper()
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	return shownTree(t, &hostTree{}, fd)
}

// hostTree gives the hard-link groups of a tree their first names.
type hostTree struct {
	lines []string
	first map[uint64]string
}

func shownTree(t testing.TB, h *hostTree, root int) []string {
	h.first = map[uint64]string{}
	var walk func(path string, dirfd int, name string)
	walk = func(path string, dirfd int, name string) {
		p := location{dirfd: dirfd, name: name, foreign: true}
		a, err := p.hostStat()
		if err != nil {
			t.Fatal(path, err)
		}
		xattrs, err := p.xattrs()
		if err != nil {
			t.Fatal(path, err)
		}
		e := squashfs.Entry{Attr: imageOf(a), Xattrs: xattrs}
		data := ""
		switch {
		case isLnk(a.Mode):
			e.Target, err = p.readlink()
		case isReg(a.Mode):
			var fd int
			if fd, err = openat(dirfd, name, unix.O_RDONLY, 0); err == nil {
				buf := make([]byte, a.Size)
				_, err = preadFull(fd, buf, 0)
				data = string(buf)
				_ = unix.Close(fd)
			}
		}
		if err != nil {
			t.Fatal(path, err)
		}
		first := path
		if a.Nlink > 1 && !isDir(a.Mode) {
			if f, ok := h.first[a.Ino]; ok {
				first = f
			}
			h.first[a.Ino] = first
		}
		at := len(h.lines)
		h.lines = append(h.lines, "")
		links := a.Nlink
		if isDir(a.Mode) {
			links = 2
			fd, err := openat(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
			if err != nil {
				t.Fatal(path, err)
			}
			var names []string
			err = eachName(fd, func(name string, _ uint64, typ uint32) error {
				names = append(names, name)
				if isDir(typ) {
					links++
				}
				return nil
			})
			if err != nil {
				t.Fatal(path, err)
			}
			slices.Sort(names)
			for _, n := range names {
				walk(path+"/"+n, fd, n)
			}
			_ = unix.Close(fd)
		}
		h.lines[at] = shownLine(path, e, links, first, data)
	}
	walk("", root, ".")
	slices.Sort(h.lines)
	return h.lines
}

func shownLine(path string, e squashfs.Entry, links uint32, first, data string) string {
	a := e.Attr
	if !isReg(a.Mode) {
		a.Size = 0
	}
	slices.SortFunc(e.Xattrs, func(x, y squashfs.Xattr) int { return strings.Compare(x.Name, y.Name) })
	return fmt.Sprintf("%s %o %d:%d %d %d rdev %d mtime %v ctime %v btime %v %q %q first %s %q",
		path, a.Mode, a.UID, a.GID, links, a.Size, a.Rdev, a.Mtime, a.Ctime, a.Btime, e.Target, e.Xattrs, first, data)
}

// shownBy is the same of an overlay of a stack.
func shownBy(t testing.TB, stack []*Lower) []string {
	t.Helper()
	o, err := New("", "", stack, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}()
	var lines []string
	first := map[uint64]string{}
	var walk func(path string, n NodeID, a Attr)
	walk = func(path string, n NodeID, a Attr) {
		e := squashfs.Entry{Attr: imageOf(a)}
		names, err := o.ListXattr(n)
		for _, name := range names {
			v, xerr := o.GetXattr(n, name)
			e.Xattrs = append(e.Xattrs, squashfs.Xattr{Name: name, Value: v})
			err = errors.Join(err, xerr)
		}
		data := ""
		switch {
		case isLnk(a.Mode):
			e.Target, _ = o.Readlink(n)
		case isReg(a.Mode):
			buf := make([]byte, a.Size)
			_, rerr := o.Read(n, buf, 0)
			data = string(buf)
			err = errors.Join(err, rerr)
		}
		if err != nil {
			t.Fatal(path, err)
		}
		f := path
		if a.Nlink > 1 && !isDir(a.Mode) {
			if have, ok := first[a.Ino]; ok {
				f = have
			}
			first[a.Ino] = f
		}
		lines = append(lines, shownLine(path, e, a.Nlink, f, data))
		if !isDir(a.Mode) {
			return
		}
		var list []string
		err = o.ReadDir(n, 0, func(d DirEntry) bool {
			if d.Name != "." && d.Name != ".." {
				list = append(list, d.Name)
			}
			return true
		})
		if err != nil {
			t.Fatal(path, err)
		}
		slices.Sort(list)
		for _, name := range list {
			c, err := o.Lookup(n, name)
			if err != nil {
				t.Fatal(path, name, err)
			}
			defer o.Forget(c.Node, 1)
			walk(path+"/"+name, c.Node, c.Attr)
		}
	}
	a, err := o.GetAttr(RootNode)
	if err != nil {
		t.Fatal(err)
	}
	walk("", RootNode, a)
	slices.Sort(lines)
	return lines
}

// kernelEdits are the steps of the twin test, most of them those of the other tests against the kernel.
func kernelEdit(t *testing.T, k *kernelUpper, rng *rand.Rand) {
	p := filepath.Join(k.at, randomPath(rng))
	switch rng.IntN(12) {
	case 0: // a device, a directory with attributes of an overlay
		_ = unix.Mknod(p, unix.S_IFBLK|0o600, int(unix.Mkdev(7, uint32(rng.IntN(200)))))
	case 1:
		_ = unix.Lsetxattr(p, "trusted.overlay."+[]string{"opaque", "redirect", "x"}[rng.IntN(3)], []byte("y"), 0)
	case 2:
		fd, err := unix.Open(p, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return
		}
		defer unix.Close(fd)
		if unix.Ftruncate(fd, 9000) != nil {
			return
		}
		m, err := unix.Mmap(fd, 0, 9000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return
		}
		m[rng.IntN(9000)] = byte(rng.IntN(256))
		if err := unix.Munmap(m); err != nil {
			t.Error(err)
		}
	case 3: // a directory in place of one that was removed
		_ = os.RemoveAll(p)
		_ = os.Mkdir(p, 0o750)
	case 4:
		_ = os.WriteFile(p, []byte(strings.Repeat(fmt.Sprint(rng.IntN(10)), 2<<20)), 0o600)
	case 5:
		_ = os.Symlink(strings.Repeat("x", 1+rng.IntN(200)), p)
	default:
		k.mount.do(randomStep(rng))
	}
}

// randomTree makes the tree below.
func randomTree(t *testing.T, rng *rand.Rand) string {
	dir := t.TempDir()
	for range 60 {
		p := filepath.Join(dir, randomPath(rng))
		switch rng.IntN(4) {
		case 0, 1:
			_ = os.MkdirAll(p, 0o755)
		case 2:
			_ = os.MkdirAll(filepath.Dir(p), 0o755)
			_ = os.WriteFile(p, []byte(strings.Repeat("base", rng.IntN(3000))), 0o644)
		case 3:
			_ = os.Link(filepath.Join(dir, randomPath(rng)), p)
		}
	}
	return dir
}

// keptFiles makes files that stay.
func keptFiles(t *testing.T, k *kernelUpper) (paths []string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(k.at, "kept"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		p := filepath.Join(k.at, "kept", fmt.Sprint(i))
		if err := os.WriteFile(p, []byte(strings.Repeat("kept", 1+i*100)), 0o644); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	return paths
}

// sameAgain writes to a file, such that neither size nor modification time tells.
func sameAgain(t *testing.T, path string, c byte) {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte{c}, 2)
	if err := errors.Join(err, f.Close(), os.Chtimes(path, fi.ModTime(), fi.ModTime())); err != nil {
		t.Fatal(err)
	}
}

// exact reports whether files are noted on this host.
func (k *kernelUpper) exact() bool {
	var st unix.Statfs_t
	return unix.Statfs(k.upper, &st) == nil && exactTimes[int64(st.Type)]
}

// interruptedFinish finishes the root and a directory in it, as FinishUpper leaves it when it is killed.
func interruptedFinish(t *testing.T, upper, base *Lower) {
	t.Helper()
	v, err := openView([]*Lower{upper, base})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = v.Close() }() // it cannot fail
	dirs, err := v.o.finishDir(&upperDir{part: v.o.root.top, below: v.o.root.below})
	if err == nil && len(dirs) > 0 {
		_, err = v.o.finishDir(&dirs[0])
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestCaptureRandom works on a kernel overlayfs, and compares what it shows with captures of its upper and with that upper
// once it is finished.
func TestCaptureRandom(t *testing.T) {
	seed := testseed.Of(t)
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel() // it waits for the disk
			captureRandom(t, rand.New(rand.NewPCG(seed, uint64(i))))
		})
	}
}

func captureRandom(t *testing.T, rng *rand.Rand) {
	k := newKernelUpper(t, randomTree(t, rng))
	kept := keptFiles(t, k)
	var want []string
	var image *Lower
	var digest any
	unread := 0
	for range 3 {
		for range 60 {
			kernelEdit(t, k, rng)
		}
		for range 3 {
			sameAgain(t, kept[rng.IntN(len(kept))], byte('a'+rng.IntN(26)))
		}
		if unread == 0 || rng.IntN(2) == 0 {
			age()
		}
		var told Captured
		var m chunkstore.Manifest
		image, m, told = k.capture()
		if !told.Quiet || told.TornFiles > 0 {
			t.Errorf("nobody wrote: %+v", told)
		}
		unread += told.Unread
		digest = m.Digest
		want = shown(t, k.at)
		samePicture(t, "captured", shownBy(t, []*Lower{image, k.base}), want)
		stored, err := Store(t.Context(), k.store, k.open(), []*Lower{k.base}, StoreOptions{Home: 5, NoSync: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if stored.Digest != m.Digest {
			t.Error("the capture is another image than Store makes")
		}
		if t.Failed() {
			return
		}
	}
	if unread == 0 && k.exact() {
		t.Error("all files were read each time")
	}
	k.end()
	upper := k.open()
	interruptedFinish(t, upper, k.base)
	if a, err := nameIn(upper.dir.root, ".").hostStat(); err != nil || a.Nlink < 2 {
		return // btrfs does not count the links of directories
	}
	for range 2 {
		if err := FinishUpper(t.Context(), upper, []*Lower{k.base}); err != nil {
			t.Fatal(err)
		}
		samePicture(t, "finished", shownBy(t, []*Lower{upper, k.base}), want)
	}
	samePicture(t, "merged", picture(t, []*Lower{upper, k.base}), picture(t, []*Lower{image, k.base}))
	m, err := Store(t.Context(), k.store, upper, []*Lower{k.base}, StoreOptions{Home: 5, NoSync: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.Digest != digest {
		t.Error("what was finished is stored as another image")
	}
	if got := lines(t, []*Lower{image, k.base}, []*Lower{upper, k.base}); got != "" {
		t.Errorf("diff: %s", got)
	}
}
