package fs

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/fs/internal/proto"
	"snapfs/fs/internal/transport"
	"snapfs/internal/livestate"
	"snapfs/layers"
)

// lives answers requests without a kernel, in one process after the other.
type lives struct {
	directServer
	t     *testing.T
	dir   string
	o     *layers.Overlay
	state *livestate.State

	refused []Refused
}

func newLives(t *testing.T) *lives {
	t.Helper()
	l := &lives{t: t, dir: t.TempDir()}
	for _, d := range []string{"upper", "work"} {
		if err := os.Mkdir(filepath.Join(l.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l.out = make([]byte, transport.MaxIO+4096)
	l.to[0] = l.out
	var err error
	if l.state, err = livestate.Create("lives"); err != nil {
		t.Fatal(err)
	}
	l.begin()
	return l
}

// begin serves the state, after a crash if there was a process before.
func (l *lives) begin() {
	l.t.Helper()
	o, err := layers.New(filepath.Join(l.dir, "upper"), filepath.Join(l.dir, "work"), nil, layers.Options{Live: l.state})
	if err != nil {
		l.t.Fatal(err)
	}
	state := l.state
	l.t.Cleanup(func() {
		if err := errors.Join(o.Close(), state.Close()); err != nil {
			l.t.Error(err)
		}
	})
	opts := Options{Logger: slog.New(slog.DiscardHandler), Live: l.state, Crashed: true, Refused: func(r Refused) {
		l.refused = append(l.refused, r)
	}}
	opts.setDefaults()
	a := newAdapter(o, opts.Logger)
	a.settle(opts)
	l.o, l.h = o, newHandler(a, opts, false)
	init := fuse.InitIn{Major: 7, Minor: 45}
	l.must(l.t, message(proto.OpInit, 1, body(&init)))
}

// die leaves everything to a successor.
func (l *lives) die() {
	l.t.Helper()
	fd, err := unix.FcntlInt(l.state.File().Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	if l.state, err = livestate.Open(os.NewFile(uintptr(fd), "state")); err != nil {
		l.t.Fatal(err)
	}
	l.begin()
}

// send has a request answered, without an end.
func (l *lives) send(unique uint64, req []byte) unix.Errno {
	l.t.Helper()
	proto.Header(req).Unique = unique
	l.in[0] = req
	n, st := l.h.HandleRequest(l.in[:], l.to[:])
	if st != fuse.OK || n == 0 {
		return unix.Errno(st)
	}
	return unix.Errno(-proto.View[fuse.OutHeader](l.out).Status)
}

// end says that the answer was given.
func (l *lives) end(req []byte) {
	if e, ok := l.h.(transport.Ender); ok {
		e.End(proto.Header(req))
	}
}

// gone reports whether one FORGET of a node is the last.
func (l *lives) gone(node uint64) bool {
	l.o.Forget(layers.NodeID(node), 1)
	_, err := l.o.GetAttr(layers.NodeID(node))
	return errors.Is(err, unix.ESTALE)
}

// TestReferencesOnce: what a look-up, a listing or a creation gives counts once, however often it is asked.
func TestReferencesOnce(t *testing.T) {
	l := newLives(t)
	caller := layers.Caller{}
	made := map[string]uint64{}
	for _, name := range []string{"a", "b", "c"} {
		e, err := l.o.Mknod(caller, layers.RootNode, name, unix.S_IFREG|0o644, 0)
		if err != nil {
			t.Fatal(err)
		}
		l.o.Forget(e.Node, 1)
		made[name] = uint64(e.Node)
	}
	look := message(proto.OpLookup, 1, text("a"))
	for i := range 3 {
		if errno := l.send(2|uint64(min(i, 1))<<63, look); errno != 0 || l.entry() != made["a"] {
			t.Fatalf("look-up %d: node %d, %v", i, l.entry(), errno)
		}
		l.die()
	}
	if !l.gone(made["a"]) {
		t.Error("a look-up has counted twice")
	}
	list := fuse.ReadIn{Size: 4096}
	for i := range 3 {
		if errno := l.send(4|uint64(min(i, 1))<<63, message(proto.OpReaddirplus, 1, body(&list))); errno != 0 {
			t.Fatalf("listing %d: %v", i, errno)
		}
		l.die()
	}
	for name, node := range made {
		if !l.gone(node) {
			t.Errorf("%s: a listing has counted twice", name)
		}
	}
	mkdir := fuse.MkdirIn{Mode: 0o755}
	var first uint64
	for i := range 3 {
		req := message(proto.OpMkdir, 1, body(&mkdir), text("d"))
		if errno := l.send(6|uint64(min(i, 1))<<63, req); errno != 0 {
			t.Fatalf("mkdir %d: %v", i, errno)
		}
		if i == 0 {
			first = l.entry()
		}
		if l.entry() != first {
			t.Errorf("mkdir %d: node %d, was %d", i, l.entry(), first)
		}
		if i < 2 {
			l.die()
			continue
		}
		l.end(req)
	}
	if errno := l.send(8, message(proto.OpMkdir, 1, body(&mkdir), text("d"))); errno != unix.EEXIST {
		t.Errorf("another mkdir: %v", errno)
	}
	if !l.gone(first) {
		t.Error("a creation has counted twice")
	}
}

// TestRefused: the request of which three processes have died is refused by the next one, and no other.
func TestRefused(t *testing.T) {
	l := newLives(t)
	rename2 := fuse.RenameIn{Newdir: 1}
	bad := message(proto.OpRename2, 1, body(&rename2), text("bad"), text("worse"))
	good := message(proto.OpGetattr, 1, make([]byte, 16))
	for death := range 3 {
		resent := uint64(min(death, 1)) << 63
		l.send(2|resent, bad)
		if death == 0 {
			l.send(4, good) // a process that dies of it handles nothing else that it was handling at the first death
		}
		l.die()
	}
	if errno := l.send(4|1<<63, good); errno != 0 {
		t.Errorf("another request: %v", errno)
	}
	if len(l.refused) > 0 {
		t.Errorf("refused: %+v", l.refused)
	}
	if errno := l.send(2|1<<63, bad); errno != unix.EIO {
		t.Errorf("what processes die of: %v", errno)
	}
	if want := (Refused{"RENAME2", 1, []string{"bad", "worse"}}); len(l.refused) != 1 || !reflect.DeepEqual(l.refused[0], want) {
		t.Errorf("refused: %+v", l.refused)
	}
	if errno := l.send(6, bad); errno != unix.ENOENT {
		t.Errorf("the same asked anew: %v", errno)
	}
}
