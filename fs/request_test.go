package fs

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/fs/internal/proto"
	"snapfs/fs/internal/transport"
	"snapfs/internal/testimage"
	"snapfs/layers"
)

// directServer answers requests without a kernel: the test makes the requests, and answers go to a buffer.
type directServer struct {
	h   transport.Handler
	out []byte
	in  [1][]byte
	to  [1][]byte
}

// newDirectServer serves an overlay of an empty upper over an image that holds low/file.
func newDirectServer(tb testing.TB) *directServer {
	tb.Helper()
	dir := tb.TempDir()
	for _, d := range []string{"src/low", "upper", "work"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "src/low/file"), make([]byte, 8192), 0o644); err != nil {
		tb.Fatal(err)
	}
	image := filepath.Join(dir, "image")
	cmd := exec.Command("mksquashfs", filepath.Join(dir, "src"), image,
		"-quiet", "-no-progress", "-noI", "-noD", "-noF", "-noX")
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("mksquashfs: %v: %s", err, out)
	}
	f, err := testimage.Open(image)
	if err != nil {
		tb.Fatal(err)
	}
	low, err := layers.OpenImage("image", f, 0)
	if err != nil {
		tb.Fatal(err)
	}
	o, err := layers.New(filepath.Join(dir, "upper"), filepath.Join(dir, "work"), []*layers.Lower{low}, layers.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := o.Close(); err != nil {
			tb.Error(err)
		}
		if err := low.Close(); err != nil {
			tb.Error(err)
		}
	})
	opts := Options{Logger: slog.New(slog.DiscardHandler)}
	opts.setDefaults()
	d := &directServer{h: newHandler(newAdapter(o, opts.Logger), opts, false), out: make([]byte, transport.MaxIO+4096)}
	d.to[0] = d.out
	init := fuse.InitIn{Major: 7, Minor: 45}
	d.must(tb, message(26, 1, body(&init)))
	return d
}

// message makes a message: header, then the parts.
func message(op uint32, node uint64, parts ...[]byte) []byte {
	h := fuse.InHeader{Opcode: op, Unique: 2, NodeId: node}
	b := append([]byte{}, unsafe.Slice((*byte)(unsafe.Pointer(&h)), unsafe.Sizeof(h))...)
	for _, p := range parts {
		b = append(b, p...)
	}
	proto.Header(b).Length = uint32(len(b))
	return b
}

// ask has a request answered and gives the status.
func (d *directServer) ask(tb testing.TB, req []byte) unix.Errno {
	d.in[0] = req
	n, st := d.h.HandleRequest(d.in[:], d.to[:])
	if st != fuse.OK || n == 0 && proto.Header(req).Opcode != proto.OpForget {
		tb.Fatalf("%s: no answer: %v", proto.Name(proto.Header(req).Opcode), st)
	}
	return unix.Errno(-(*fuse.OutHeader)(unsafe.Pointer(&d.out[0])).Status)
}

// entry is the node of the last answer, which was an entry.
func (d *directServer) entry() uint64 {
	return (*fuse.EntryOut)(unsafe.Pointer(&d.out[proto.OutHeaderSize])).NodeId
}

func (d *directServer) must(tb testing.TB, req []byte) {
	if e := d.ask(tb, req); e != 0 {
		tb.Fatalf("%s: %v", proto.Name(proto.Header(req).Opcode), e)
	}
}

func text(s string) []byte { return append([]byte(s), 0) }

// body is the part of a request structure behind its header.
func body[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))[unsafe.Sizeof(fuse.InHeader{}):]
}

// hotRequests are what programs cause all the time, ready to be asked again and again.
func (d *directServer) hotRequests(tb testing.TB) map[string][]byte {
	d.must(tb, message(1, 1, text("low")))
	low := d.entry()
	d.must(tb, message(1, low, text("file")))
	lowFile := d.entry()
	d.must(tb, message(9, 1, body(&fuse.MkdirIn{Mode: 0o755}), text("up")))
	up := d.entry()
	d.must(tb, message(8, up, body(&fuse.MknodIn{Mode: unix.S_IFREG | 0o644}), text("file")))
	upFile := d.entry()
	write := message(16, upFile, body(&fuse.WriteIn{Size: 4096}), make([]byte, 4096))
	d.must(tb, write)
	read := body(&fuse.ReadIn{Size: 4096})
	getattr := body(&fuse.GetAttrIn{})
	setattr := func(c fuse.SetAttrInCommon) []byte {
		return message(4, upFile, body(&fuse.SetAttrIn{SetAttrInCommon: c}))
	}
	return map[string][]byte{
		"LOOKUP upper":         message(1, up, text("file")),
		"LOOKUP lower":         message(1, low, text("file")),
		"LOOKUP missing":       message(1, up, text("none")),
		"LOOKUP lower missing": message(1, low, text("none")),
		"GETATTR upper":        message(3, upFile, getattr),
		"GETATTR dir":          message(3, up, getattr),
		"GETATTR lower":        message(3, lowFile, getattr),
		"READ upper":           message(15, upFile, read),
		"READ lower":           message(15, lowFile, read),
		"WRITE":                write,
		"GETXATTR":             message(22, upFile, body(&fuse.GetXAttrIn{}), text("security.capability")),
		"SETATTR mode":         setattr(fuse.SetAttrInCommon{Valid: fuse.FATTR_MODE, Mode: 0o644}),
		"SETATTR owner":        setattr(fuse.SetAttrInCommon{Valid: fuse.FATTR_UID}),
		"SETATTR times":        setattr(fuse.SetAttrInCommon{Valid: fuse.FATTR_ATIME | fuse.FATTR_MTIME}),
		"READDIR":              message(28, up, read),
		"READDIRPLUS":          message(44, up, read),
	}
}

// BenchmarkRequest is what the server itself spends on a request, system calls included, the kernel's side not.
func BenchmarkRequest(b *testing.B) {
	d := newDirectServer(b)
	for name, req := range d.hotRequests(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d.ask(b, req)
			}
		})
	}
	d.must(b, message(1, 1, text("up")))
	up := d.entry()
	mknod := message(8, up, body(&fuse.MknodIn{Mode: unix.S_IFREG | 0o644}), text("new"))
	unlink := message(10, up, text("new"))
	b.Run("MKNOD+UNLINK", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			d.must(b, mknod)
			node := d.entry()
			d.must(b, unlink)
			d.ask(b, message(2, node, body(&fuse.ForgetIn{Nlookup: 1})))
		}
	})
	runtime.KeepAlive(d)
}

// TestNoGarbage checks that what is hot allocates nothing: neither decoding, nor finding the node, nor answering.
func TestNoGarbage(t *testing.T) {
	d := newDirectServer(t)
	for name, req := range d.hotRequests(t) {
		most, known := map[string]float64{
			"GETATTR upper": 0, "GETATTR dir": 0, "GETXATTR": 1, "READ upper": 0, "WRITE": 0,
			"LOOKUP missing": 0, "LOOKUP lower missing": 0, "LOOKUP upper": 0, "LOOKUP lower": 0,
		}[name]
		if !known {
			continue
		}
		got := testing.AllocsPerRun(200, func() { d.ask(t, req) })
		if got > most {
			t.Errorf("%s: %v allocations, at most %v expected", name, got, most)
		}
	}
}

// TestAnswerOverName has a LOOKUP answered into the memory that holds the name, as the ring's requests are.
func TestAnswerOverName(t *testing.T) {
	d := newDirectServer(t)
	shared := make([]byte, transport.MaxIO+4096)
	for _, name := range []string{"low", "none", "low"} {
		want := d.ask(t, message(1, 1, text(name)))
		entry := *proto.View[fuse.EntryOut](d.out[proto.OutHeaderSize:])
		head := make([]byte, proto.OutHeaderSize)
		req := message(1, 1)
		n, st := d.h.HandleRequest([][]byte{req, nil, shared[:copy(shared, text(name))]}, [][]byte{head, shared})
		got := unix.Errno(-proto.View[fuse.OutHeader](head).Status)
		if st != fuse.OK || got != want || n != proto.OutHeaderSize+entrySize {
			t.Errorf("%s: %v, %v, %d bytes; want %v", name, st, got, n, want)
		}
		if got := *proto.View[fuse.EntryOut](shared); got != entry {
			t.Errorf("%s: got %+v, want %+v", name, got, entry)
		}
	}
}
