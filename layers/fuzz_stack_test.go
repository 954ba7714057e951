package layers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/testimage"
	"snapfs/squashfs"
)

// stackRun is one stack of two images that may be damaged, and what is done with it.
type stackRun struct {
	t      *testing.T
	ctx    context.Context
	lowers []*Lower // topmost first
}

// FuzzStack makes overlays of two whole images in which anything may be changed, looks at everything, changes the tree,
// seals, stores and merges it. All forms show the same tree; what cannot be read is EIO for callers and damage for who
// stores it. It must be run with a bound on memory (ulimit -v).
func FuzzStack(f *testing.F) {
	seeds := stackSeeds(f)
	var ops []byte
	for kind := range byte(len(stackOps)) {
		ops = append(ops, kind, 3*kind, 5*kind+1, kind)
	}
	for i := range seeds {
		f.Add(uint8(i), uint8(0), []byte{}, []byte{}, ops[:8])
		f.Add(uint8(1), uint8(i), []byte{}, []byte{}, ops[24:32])
	}
	for i := range stackTrees() {
		for k := 0; k < len(ops); k += opSize {
			f.Add(uint8(i), uint8(0), []byte{16, 0, 0, 0, 3, 0}, []byte{32, 0, 0, 0, 1, 0}, ops[k:k+opSize])
		}
	}
	f.Fuzz(func(t *testing.T, top, below uint8, patches, others, ops []byte) {
		if len(patches) > testimage.MaxPatches || len(others) > testimage.MaxPatches || len(ops) > 4*opSize {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		r := &stackRun{t: t, ctx: ctx}
		defer r.close()
		for _, img := range [][]byte{
			testimage.Altered(seeds[int(top)%len(seeds)], patches), testimage.Altered(seeds[int(below)%len(seeds)], others),
		} {
			l, err := OpenImage(fmt.Sprint(len(r.lowers)), testimage.Bytes(img), 0)
			if r.onlyDamage("open", err); err != nil {
				return
			}
			r.lowers = append(r.lowers, l)
		}
		r.run(ops)
	})
}

func (r *stackRun) close() {
	for _, l := range r.lowers {
		if err := l.Close(); err != nil {
			r.t.Error(err)
		}
	}
}

// onlyDamage fails on errors that say neither that an image is damaged nor that something is beyond a limit.
func (r *stackRun) onlyDamage(what string, err error) {
	r.t.Helper()
	switch {
	case err == nil, errors.Is(err, squashfs.ErrCorrupt), errors.Is(err, squashfs.ErrLimit), errors.Is(err, errBufferFull), errors.Is(err, unix.EIO):
		return
	}
	r.t.Fatalf("%s: error of another class: %v", what, err)
}

func (r *stackRun) run(ops []byte) {
	t := r.t
	want, ok := r.readOnly(r.lowers)
	if !ok || want.partial {
		return
	}
	r.export("the stack", r.lowers, want)

	dir := t.TempDir()
	fresh := func(name string) (string, string) {
		up, work := filepath.Join(dir, name), filepath.Join(dir, name+"-work")
		if err := errors.Join(os.Mkdir(up, 0o700), os.Mkdir(work, 0o700)); err != nil {
			t.Fatal(err)
		}
		return up, work
	}
	up, work := fresh("upper")
	opts := Options{InoBase: 1 << 48, BlockCopyUp: 64 << 10}
	o, err := New(up, work, r.lowers, opts)
	if err != nil {
		r.mayRefuse(err)
		return
	}
	closed := false
	defer func() {
		if !closed {
			_ = o.Close() // the test has failed
		}
	}()
	wantSame(t, "with an upper", sceneOf(t, o), want)
	for i := 0; i+opSize <= len(ops); i += opSize {
		want = r.change(o, want, ops[i:i+opSize])
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	closed = true
	if o, err = New(up, work, r.lowers, opts); err != nil {
		t.Fatalf("open it again: %v", err)
	}
	closed = false
	wantSame(t, "opened again", sceneOf(t, o), want)

	up, work = fresh("next")
	sealed, err := o.Seal(r.ctx, "sealed", up, work, 2<<48)
	if err != nil {
		t.Fatalf("seal: %v", err)
	}
	below := r.lowers
	r.lowers = append([]*Lower{sealed}, below...)
	wantSame(t, "sealed", sceneOf(t, o), want)
	r.export("the sealed stack", r.lowers, want)
	if stored := r.store(sealed, below, want); stored != nil {
		if err := o.Replace(stored); err != nil {
			t.Fatal(err)
		}
		if err := sealed.Close(); err != nil {
			t.Fatal(err)
		}
		r.lowers[0] = stored
		wantSame(t, "stored", sceneOf(t, o), want)
		if got, ok := r.readOnly(r.lowers); ok {
			wantSame(t, "stored, without an upper", got, want)
		}
		r.merge(2, want)
		r.merge(3, want)
	}
	closed = true
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
}

// mayRefuse judges the error of an overlay that could not be made. The host takes not everything that an image has.
func (r *stackRun) mayRefuse(err error) {
	r.t.Helper()
	var errno unix.Errno
	if !errors.As(err, &errno) {
		r.onlyDamage("open the stack", err)
	}
}

// readOnly is what a stack shows by itself; false if it is refused.
func (r *stackRun) readOnly(stack []*Lower) (scene, bool) {
	r.t.Helper()
	o, err := New("", "", stack, Options{ReadOnly: true})
	if err != nil {
		r.mayRefuse(err)
		return scene{}, false
	}
	s := sceneOf(r.t, o)
	if err := o.Close(); err != nil {
		r.t.Fatal(err)
	}
	return s, true
}

// bounded is a source that ends when it gets too large.
type bounded struct {
	squashfs.Source
	left int
}

var errTooLarge = fmt.Errorf("%w: larger than a scene", squashfs.ErrLimit)

func (b *bounded) Entry(ctx context.Context, dir *squashfs.Entry, name string) (*squashfs.Entry, error) {
	if b.left--; b.left < 0 {
		return nil, errTooLarge
	}
	return b.Source.Entry(ctx, dir, name)
}

// write makes an image of a source, of which all can be read if the scene has no damage. nil: it was refused. There is
// nothing to close.
func (r *stackRun) write(what string, src squashfs.Source, of scene) *Lower {
	r.t.Helper()
	m := newImageBuffer()
	_, err := squashfs.WriteStore(r.ctx, m, &bounded{src, 3 * sceneNames}, squashfs.StoreOptions{})
	if err != nil {
		if r.onlyDamage(what, err); !of.damaged && !errors.Is(err, squashfs.ErrLimit) && !errors.Is(err, errBufferFull) {
			r.t.Fatalf("%s: all of it can be read, and yet: %v", what, err)
		}
		return nil
	}
	err = squashfs.Check(r.ctx, bytes.NewReader(m.b), int64(len(m.b)), func(v squashfs.Violation) {
		r.t.Fatalf("%s: the image is unsound: %+v", what, v)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	l, err := OpenImage("sealed", testimage.Bytes(m.b), 0)
	if err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
	return l
}

// export stores a stack as one tree.
func (r *stackRun) export(what string, stack []*Lower, want scene) {
	r.t.Helper()
	src, err := Merged(stack)
	if err != nil {
		r.mayRefuse(err)
		return
	}
	l := r.write("export "+what, src, want)
	if err := src.(merged).Close(); err != nil {
		r.t.Fatal(err)
	}
	if l == nil {
		return
	}
	tree := foreign{squashfs.ImageSource(l.image.im)} // as StoreImage
	if l = r.write("import "+what, tree, want); l == nil {
		return
	}
	if got, ok := r.readOnly([]*Lower{l}); ok {
		wantSame(r.t, "exported "+what, got, want)
	}
}

// store stores the sealed layer.
func (r *stackRun) store(sealed *Lower, below []*Lower, want scene) *Lower {
	r.t.Helper()
	src, err := Delta(sealed, below)
	if err != nil {
		r.t.Fatal(err)
	}
	l := r.write("store the layer", src, want)
	if err := src.(*delta).Close(); err != nil {
		r.t.Fatal(err)
	}
	return l
}

// merge makes one image of the topmost layers.
func (r *stackRun) merge(n int, want scene) {
	r.t.Helper()
	v, err := openView(r.lowers)
	if err != nil {
		r.t.Fatal(err)
	}
	what := fmt.Sprintf("merge %d layers", n)
	l := r.write(what, newJoined(v, n), want)
	if err := v.Close(); err != nil {
		r.t.Fatal(err)
	}
	if l == nil {
		return
	}
	if got, ok := r.readOnly(append([]*Lower{l}, r.lowers[n:]...)); ok {
		wantSame(r.t, what, got, want)
	}
}

// opSize is how many bytes say what to do: which operation, two paths and a number.
const opSize = 4

// stackOps are what is done with a stack: each changes the overlay at paths of the scene, and the scene in the same
// way. A new name is one that the scene does not have.
var stackOps = []struct {
	name string
	do   func(o *Overlay, at func(path string) (Entry, error), a, b, fresh string, n byte) error
	also func(s scene, a, b, fresh string)
}{
	{"chmod", func(o *Overlay, at func(string) (Entry, error), a, _, _ string, n byte) error {
		return onEntry(at, a, func(id NodeID) error {
			_, err := o.SetAttr(Caller{}, id, SetAttr{Valid: SetMode, Mode: uint32(n)})
			return err
		})
	}, func(s scene, a, _, _ string) { s.changed(a) }},
	{"setxattr", func(o *Overlay, at func(string) (Entry, error), a, _, _ string, n byte) error {
		return onEntry(at, a, func(id NodeID) error { return o.SetXattr(id, "trusted.overlay.t", []byte{n}, 0) })
	}, func(s scene, a, _, _ string) { s.changed(a) }},
	{"write", func(o *Overlay, at func(string) (Entry, error), a, _, _ string, n byte) error {
		return onEntry(at, a, func(id NodeID) error {
			_, err := o.Write(id, []byte("written"), int64(n)<<9, nil)
			return err
		})
	}, func(s scene, a, _, _ string) { s.changed(a) }},
	{"truncate", func(o *Overlay, at func(string) (Entry, error), a, _, _ string, n byte) error {
		return onEntry(at, a, func(id NodeID) error {
			_, err := o.SetAttr(Caller{}, id, SetAttr{Valid: SetSize, Size: uint64(n) << 9})
			return err
		})
	}, func(s scene, a, _, _ string) { s.changed(a) }},
	{"unlink", func(o *Overlay, at func(string) (Entry, error), a, _, _ string, _ byte) error {
		return onEntry(at, path.Dir("/" + a)[1:], func(id NodeID) error { return o.Unlink(id, path.Base(a)) })
	}, func(s scene, a, _, _ string) { s.touched(a); s.take(a) }},
	{"rmdir", func(o *Overlay, at func(string) (Entry, error), a, _, _ string, _ byte) error {
		return onEntry(at, path.Dir("/" + a)[1:], func(id NodeID) error { return o.Rmdir(id, path.Base(a)) })
	}, func(s scene, a, _, _ string) { s.touched(a); s.take(a) }},
	{"rename", renameOp(0, false), renamed},
	{"rename to a new name", renameOp(0, true), func(s scene, a, _, fresh string) { renamed(s, a, fresh, "") }},
	{"exchange", renameOp(unix.RENAME_EXCHANGE, false), func(s scene, a, b, _ string) {
		if x, y := s.m[a], s.m[b]; !x.dir && !y.dir && x.node == y.node {
			return
		}
		s.touched(a)
		s.touched(b)
		x, y := s.take(a), s.take(b)
		s.put(a, y)
		s.put(b, x)
	}},
	{"link", func(o *Overlay, at func(string) (Entry, error), a, _, fresh string, _ byte) error {
		return onEntry(at, a, func(id NodeID) error {
			return onEntry(at, path.Dir("/" + fresh)[1:], func(dir NodeID) error {
				e, err := o.Link(id, dir, path.Base(fresh))
				o.Forget(e.Node, 1)
				return err
			})
		})
	}, func(s scene, a, _, fresh string) {
		s.touched(a)
		s.stirred(fresh)
		s.m[fresh] = s.m[a]
	}},
	{"mkdir", makeOp(unix.S_IFDIR), func(s scene, _, _, fresh string) { s.made(fresh, true) }},
	{"create", makeOp(unix.S_IFREG), func(s scene, _, _, fresh string) { s.made(fresh, false) }},
	{"make a device", makeOp(unix.S_IFCHR), func(s scene, _, _, fresh string) { s.made(fresh, false) }},
}

func onEntry(at func(string) (Entry, error), path string, fn func(id NodeID) error) error {
	e, err := at(path)
	if err != nil {
		return err
	}
	return fn(e.Node)
}

func renameOp(flags uint32, toFresh bool) func(o *Overlay, at func(string) (Entry, error), a, b, fresh string, _ byte) error {
	return func(o *Overlay, at func(string) (Entry, error), a, b, fresh string, _ byte) error {
		if toFresh {
			b = fresh
		}
		return onEntry(at, path.Dir("/" + a)[1:], func(from NodeID) error {
			return onEntry(at, path.Dir("/" + b)[1:], func(to NodeID) error {
				return o.Rename(from, path.Base(a), to, path.Base(b), flags)
			})
		})
	}
}

func makeOp(mode uint32) func(o *Overlay, at func(string) (Entry, error), _, _, fresh string, n byte) error {
	return func(o *Overlay, at func(string) (Entry, error), _, _, fresh string, n byte) error {
		return onEntry(at, path.Dir("/" + fresh)[1:], func(dir NodeID) (err error) {
			var e Entry
			if isDir(mode) {
				e, err = o.Mkdir(Caller{}, dir, path.Base(fresh), uint32(n))
			} else {
				e, err = o.Mknod(Caller{}, dir, path.Base(fresh), mode|uint32(n), 0)
			}
			o.Forget(e.Node, 1)
			return err
		})
	}
}

// renamed moves a name in a scene.
func renamed(s scene, a, b, _ string) {
	if x, y := s.m[a], s.m[b]; x.node != 0 && !x.dir && !y.dir && x.node == y.node {
		return // two names of one file
	}
	s.touched(a)
	s.touched(b)
	tree := s.take(a)
	s.take(b)
	s.put(b, tree)
}

// made adds a new name to a scene.
func (s scene) made(p string, dir bool) {
	s.stirred(p)
	s.m[p] = sceneEntry{dir: dir, any: true}
}

// change does one operation, which changes the overlay as it changes the scene, or with an error not at all, and gives
// the new scene.
func (r *stackRun) change(o *Overlay, s scene, code []byte) scene {
	t := r.t
	t.Helper()
	op := stackOps[int(code[0])%len(stackOps)]
	paths := slices.Sorted(maps.Keys(s.m))
	a, b := paths[int(code[1])%len(paths)], paths[int(code[2])%len(paths)]
	if a == "" || b == "" {
		return s
	}
	fresh := b
	for !s.m[fresh].dir {
		fresh = path.Dir("/" + fresh)[1:]
	}
	unlisted := s.m[fresh].err // what is made there is not seen
	fresh = path.Join(fresh, "new")
	if _, ok := s.m[fresh]; ok || unlisted {
		return s
	}
	what := fmt.Sprintf("%s %q %q %q %d", op.name, a, b, fresh, code[3])
	var held []Forgotten
	err := op.do(o, func(p string) (Entry, error) {
		e := Entry{Node: RootNode}
		for _, name := range split(p) {
			next, err := o.Lookup(e.Node, name)
			if err != nil {
				return e, err
			}
			held = append(held, Forgotten{next.Node, 1})
			e = next
		}
		return e, nil
	}, a, b, fresh, code[3])
	o.ForgetAll(held)
	want := s.clone()
	if err != nil {
		what += ": " + errnoName(t, what, err)
	} else {
		op.also(want, a, b, fresh)
	}
	got := sceneOf(t, o)
	wantSame(t, what, got, want)
	return got
}
