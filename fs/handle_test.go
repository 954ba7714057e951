package fs

import (
	"log/slog"
	"testing"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"

	"snapfs/fs/internal/fakefs"
)

// BenchmarkHandle is what one request costs between the device and the overlay.
func BenchmarkHandle(b *testing.B) {
	f := fakefs.New()
	opts := Options{Logger: slog.New(slog.DiscardHandler)}
	ps := fuse.NewProtocolServer(f, protocolOptions(opts, false))
	for name, req := range map[string][]byte{
		"GETATTR": request(3, make([]byte, 16)),
		"LOOKUP":  request(1, []byte("name\x00")),
		"FORGET":  request(2, make([]byte, 8)),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			in, out := [][]byte{req}, [][]byte{make([]byte, 1024)}
			for b.Loop() {
				if n, st := ps.HandleRequest(in, out); st != fuse.OK || n == 0 && name != "FORGET" {
					b.Fatal(n, st)
				}
			}
		})
	}
}

func request(op uint32, body []byte) []byte {
	h := fuse.InHeader{Opcode: op, Unique: 1, NodeId: 2}
	h.Length = uint32(unsafe.Sizeof(h)) + uint32(len(body))
	return append(append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&h)), unsafe.Sizeof(h))...), body...)
}
