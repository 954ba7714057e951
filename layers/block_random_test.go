package layers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/internal/testseed"
)

// blockRig runs the same operations on a file of an overlay that is copied up by blocks and on a plain file.
type blockRig struct {
	*rig
	model *os.File
	rnd   *rand.Rand
	store *chunkstore.Store
	name  string
	step  int
	op    string
}

const blockRigSize = 3<<20 + 12345

// sparseFile writes a file with data, zeros and holes.
func sparseFile(t *testing.T, path string, size int64, rnd *rand.Rand) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for off := int64(0); off < size; {
		n := min(1+rnd.Int64N(300<<10), size-off)
		var err error
		switch rnd.IntN(4) {
		case 0: // a hole
		case 1:
			_, err = f.WriteAt(make([]byte, n), off)
		default:
			_, err = f.WriteAt(randomData(rnd, n), off)
		}
		if err != nil {
			t.Fatal(err)
		}
		off += n
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func randomData(rnd *rand.Rand, n int64) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(rnd.Uint32())
	}
	return p
}

func newBlockRig(t *testing.T, seed uint64, stored bool) *blockRig {
	rnd := rand.New(rand.NewPCG(seed, 1))
	base := t.TempDir()
	sparseFile(t, filepath.Join(base, "f"), blockRigSize, rnd)
	b := &blockRig{rnd: rnd, name: "f"}
	var err error
	if b.model, err = os.Create(filepath.Join(t.TempDir(), "model")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.model.Close() })
	data, err := os.ReadFile(filepath.Join(base, "f"))
	if err == nil {
		_, err = b.model.Write(data)
	}
	if err != nil {
		t.Fatal(err)
	}
	if stored {
		b.store = openStore(t)
		m, err := StoreTree(t.Context(), b.store, base, StoreOptions{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.rig = newRigOver(t, openStored(t, b.store, "base", m))
	} else {
		b.rig = newRig(t, base)
	}
	b.o.opts.BlockCopyUp = 64 << 10
	return b
}

func (b *blockRig) fatal(args ...any) {
	b.t.Helper()
	b.t.Fatal(append([]any{"step " + strconv.Itoa(b.step), b.op + ":"}, args...)...)
}

func (b *blockRig) size() int64 {
	b.t.Helper()
	fi, err := b.model.Stat()
	if err != nil {
		b.fatal(err)
	}
	return fi.Size()
}

// offset picks a range that may reach a little beyond the end.
func (b *blockRig) offset() (off, n int64) {
	size := b.size()
	off = b.rnd.Int64N(size + 100<<10)
	n = 1 + b.rnd.Int64N([]int64{10, 5000, 70 << 10, 400 << 10}[b.rnd.IntN(4)])
	if b.rnd.IntN(3) == 0 {
		off, n = off&^0xFFFF, (n+0xFFFF)&^0xFFFF
	} else if b.rnd.IntN(3) == 0 {
		off, n = off&^0xFFF, (n+0xFFF)&^0xFFF
	}
	return off, n
}

// same compares errors; the overlay's may be wrapped.
func (b *blockRig) same(got, want error) {
	b.t.Helper()
	if !errors.Is(got, want) || (got == nil) != (want == nil) {
		b.fatal("got error", got, "want", want)
	}
}

func (b *blockRig) write() {
	off, n := b.offset()
	p := randomData(b.rnd, n)
	if b.rnd.IntN(6) == 0 {
		clear(p)
	}
	b.op = fmt.Sprint("write ", off, " ", n)
	if _, err := b.model.WriteAt(p, off); err != nil {
		b.fatal(err)
	}
	b.same(b.on(b.name, func(id NodeID) error {
		k, err := b.o.Write(id, p, off, nil)
		if err == nil && k != len(p) {
			b.fatal("wrote", k)
		}
		return err
	}), nil)
}

func (b *blockRig) truncate() {
	size := b.rnd.Int64N(b.size() + 300<<10)
	switch b.rnd.IntN(12) {
	case 0:
		size = 0
	case 1, 2:
		size &^= 0xFFFF
	}
	if b.size() > 6<<20 {
		size = 2 << 20
	}
	b.op = fmt.Sprint("truncate ", size)
	if err := b.model.Truncate(size); err != nil {
		b.fatal(err)
	}
	b.same(b.on(b.name, func(id NodeID) error {
		a, err := b.o.SetAttr(Caller{}, id, SetAttr{Valid: SetSize, Size: uint64(size)})
		if err == nil && a.Size != uint64(size) {
			b.fatal("size is", a.Size)
		}
		return err
	}), nil)
}

func (b *blockRig) fallocate() {
	modes := []uint32{
		0, unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_ZERO_RANGE,
		unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE,
	}
	if b.rnd.IntN(12) == 0 {
		modes = []uint32{unix.FALLOC_FL_COLLAPSE_RANGE, unix.FALLOC_FL_INSERT_RANGE, unix.FALLOC_FL_PUNCH_HOLE}
	}
	mode := modes[b.rnd.IntN(len(modes))]
	off, n := b.offset()
	if movesData(mode) {
		off, n = off&^0xFFF, (n+0xFFF)&^0xFFF
	}
	b.op = fmt.Sprintf("fallocate %#x %d %d", mode, off, n)
	want := unix.Fallocate(int(b.model.Fd()), mode, off, n)
	b.same(b.on(b.name, func(id NodeID) error { return b.o.Fallocate(id, mode, off, n) }), want)
}

func (b *blockRig) copyRange() {
	off, n := b.offset()
	to, _ := b.offset()
	if off >= b.size() || to < off+n && off < to+n {
		return
	}
	n = min(n, b.size()-off)
	b.op = fmt.Sprint("copy ", off, " ", to, " ", n)
	p := make([]byte, n)
	if _, err := b.model.ReadAt(p, off); err != nil {
		b.fatal(err)
	}
	if _, err := b.model.WriteAt(p, to); err != nil {
		b.fatal(err)
	}
	b.same(b.on(b.name, func(id NodeID) error {
		for done := int64(0); done < n; {
			k, err := b.o.CopyRange(id, off+done, id, to+done, n-done)
			if err != nil || k == 0 {
				b.fatal("copied", done, k, err)
			}
			done += k
		}
		return nil
	}), nil)
}

// meta changes what leaves the contents alone.
func (b *blockRig) meta() {
	switch b.rnd.IntN(3) {
	case 0:
		b.op = "chmod"
		b.same(b.on(b.name, func(id NodeID) error {
			_, err := b.o.SetAttr(Caller{}, id, SetAttr{Valid: SetMode, Mode: 0o600 + b.rnd.Uint32N(0o200)})
			return err
		}), nil)
	case 1:
		b.op = "rename"
		next := "f" + strconv.Itoa(b.step)
		b.same(b.rename(b.name, next, 0), nil)
		b.name = next
	case 2:
		b.op = "link"
		next := "l" + strconv.Itoa(b.step)
		b.same(errors.Join(b.link(b.name, next), b.unlink(b.name)), nil)
		b.name = next
	}
}

// reseal seals, and puts the image of the sealed layer in its place.
func (b *blockRig) reseal() {
	b.op = "seal"
	hold, err := b.find(b.name) // a node that lives over it
	b.same(err, nil)
	l := b.seal()
	if b.store != nil && b.rnd.IntN(3) > 0 {
		b.op = "store"
		b.check()
		below := 1
		for _, low := range b.lowers[1:] {
			if low.dir != nil {
				below = 0 // layers are stored from the bottom up
			}
		}
		if below == 1 {
			m, err := Store(b.t.Context(), b.store, l, b.lowers[1:], StoreOptions{}, nil)
			if err != nil {
				b.fatal(err)
			}
			b.lowers[0] = openStored(b.t, b.store, l.Key(), m)
			if err := errors.Join(b.o.Replace(b.lowers[0]), l.Close()); err != nil {
				b.fatal(err)
			}
		}
	}
	b.check()
	b.o.Forget(hold.Node, 1)
}

// restart opens everything anew, as another boot of the machine would.
func (b *blockRig) restart() {
	b.op = "restart"
	boot := b.rnd.Uint64()
	bootID = func() uint64 { return boot }
	b.reopen()
	b.o.opts.BlockCopyUp = 64 << 10
}

// check compares contents, and that what is said to be a hole is zeros.
func (b *blockRig) check() {
	b.t.Helper()
	size := b.size()
	want := make([]byte, size)
	if _, err := b.model.ReadAt(want, 0); err != nil && !errors.Is(err, io.EOF) {
		b.fatal(err)
	}
	e, err := b.find(b.name)
	if err != nil {
		b.fatal(err)
	}
	defer b.o.Forget(e.Node, 1)
	if int64(e.Attr.Size) != size {
		b.fatal("size is", e.Attr.Size, "want", size)
	}
	got := make([]byte, size+10)
	k, err := b.o.Read(e.Node, got, 0)
	if err != nil {
		b.fatal(err)
	}
	if !bytes.Equal(got[:k], want) {
		at := 0
		for at < k && at < len(want) && got[at] == want[at] {
			at++
		}
		b.fatal("contents differ at", at, "of", size, "read", k)
	}
	for off := int64(0); off < size; {
		data, err := b.o.Seek(e.Node, off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			data, err = size, nil
		}
		if err != nil || data < off || !allZero(want[off:data]) {
			b.fatal("hole from", off, "to", data, err)
		}
		if data == size {
			break
		}
		if off, err = b.o.Seek(e.Node, data, unix.SEEK_HOLE); err != nil || off <= data {
			b.fatal("data from", data, "to", off, err)
		}
	}
}

func (b *blockRig) run(steps int, until time.Time) {
	for b.step = range steps {
		switch k := b.rnd.IntN(40); {
		case k < 20:
			b.write()
		case k < 25:
			b.truncate()
		case k < 31:
			b.fallocate()
		case k < 33:
			b.copyRange()
		case k < 35:
			b.meta()
		case k < 38:
			b.reseal()
		case k < 39:
			b.restart()
		default:
			b.op = "complete"
			b.same(b.o.Complete(b.t.Context()), nil)
		}
		b.check()
		if time.Now().After(until) {
			return
		}
	}
}

// TestBlockRandom: any history of a file that is copied up by blocks gives the contents of a plain file with that
// history.
func TestBlockRandom(t *testing.T) {
	rounds, steps, until := 4, 60, time.Now().Add(20*time.Second)
	if os.Getenv("SNAPFS_LONG") == "1" {
		rounds, steps, until = 200, 400, time.Now().Add(20*time.Minute)
	}
	first := testseed.Of(t)
	for i := range rounds {
		seed := first + uint64(i)
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Log("SNAPFS_SEED=" + strconv.FormatUint(seed, 10))
			if seed%3 == 0 {
				sideFiles(t)
			}
			boot := bootID
			defer func() { bootID = boot }()
			newBlockRig(t, seed, seed%2 == 0).run(steps, until)
		})
	}
}
