package fs

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/fs/internal/proto"
	"snapfs/fs/internal/transport"
	"snapfs/internal/livestate"
	"snapfs/layers"
)

// BenchmarkNoted is what it costs a request that it is noted, without the kernel's part.
func BenchmarkNoted(b *testing.B) {
	for _, noted := range []bool{false, true} {
		d := newNotedServer(b, noted)
		name := "plain"
		if noted {
			name = "noted"
		}
		mknod, unlink := fuse.MknodIn{Mode: unix.S_IFREG | 0o644}, message(proto.OpUnlink, 1, text("x"))
		create := message(proto.OpMknod, 1, body(&mknod), text("x"))
		d.must(b, message(proto.OpMknod, 1, body(&mknod), text("y")))
		file := d.entry()
		getattr := message(proto.OpGetattr, file, make([]byte, 16))
		read := message(proto.OpRead, file, make([]byte, 40))
		ask := func(b *testing.B, unique uint64, req []byte) {
			proto.Header(req).Unique = unique
			d.must(b, req)
			if e, ok := d.h.(transport.Ender); ok {
				e.End(proto.Header(req))
			}
		}
		b.Run("getattr/"+name, func(b *testing.B) {
			for i := range b.N {
				ask(b, uint64(2+2*i), getattr)
			}
		})
		b.Run("read/"+name, func(b *testing.B) {
			for i := range b.N {
				ask(b, uint64(2+2*i), read)
			}
		})
		b.Run("create-unlink/"+name, func(b *testing.B) {
			for i := range b.N {
				ask(b, uint64(2+4*i), create)
				node := d.entry()
				ask(b, uint64(4+4*i), unlink)
				d.o.Forget(layers.NodeID(node), 1)
			}
		})
	}
}

// notedServer is a directServer over a live state.
type notedServer struct {
	directServer
	o *layers.Overlay
}

func newNotedServer(b *testing.B, noted bool) *notedServer {
	b.Helper()
	dir := b.TempDir()
	for _, name := range []string{"upper", "work"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	state, err := livestate.Create("bench")
	if err != nil {
		b.Fatal(err)
	}
	o, err := layers.New(filepath.Join(dir, "upper"), filepath.Join(dir, "work"), nil, layers.Options{Live: state})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(o.Close(), state.Close()); err != nil {
			b.Error(err)
		}
	})
	opts := Options{Logger: slog.New(slog.DiscardHandler), Live: state}
	opts.setDefaults()
	a := newAdapter(o, opts.Logger)
	if noted {
		a.settle(opts)
	}
	d := &notedServer{o: o}
	d.h, d.out = newHandler(a, opts, false), make([]byte, transport.MaxIO+4096)
	d.to[0] = d.out
	init := fuse.InitIn{Major: 7, Minor: 45}
	d.must(b, message(proto.OpInit, 1, body(&init)))
	return d
}
