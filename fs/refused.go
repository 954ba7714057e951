package fs

import (
	"bytes"
	"log/slog"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/fs/internal/proto"
)

// Refused is a request that is answered with EIO because process after process has died of it.
type Refused struct {
	Request string   // the protocol's name
	Node    uint64   // that it is of, by its inode number as a rule
	Names   []string // in the directory of that node, and in another one
}

// refuse answers such a request. Nothing is looked up for that: it may be what the processes have died of.
func (s *again) refuse(in []byte) (int, fuse.Status) {
	h := proto.Header(in)
	r := Refused{Request: proto.Name(h.Opcode), Node: h.NodeId, Names: namesIn(in)}
	s.a.log.Error("a request is refused: three times within a minute the process that handled it has died",
		slog.String("request", r.Request), slog.Uint64("node", r.Node), slog.Any("names", r.Names))
	if s.refused != nil {
		s.refused(r)
	}
	return 0, fuse.Status(unix.EIO)
}

// named says where the names in a request begin, and how many there are. RENAME is an older RENAME2 without flags.
var named = [proto.Opcodes]struct{ at, names int }{
	proto.OpLookup:  {proto.InHeaderSize, 1},
	proto.OpSymlink: {proto.InHeaderSize, 1},
	proto.OpUnlink:  {proto.InHeaderSize, 1},
	proto.OpRmdir:   {proto.InHeaderSize, 1},
	proto.OpMknod:   {int(unsafe.Sizeof(fuse.MknodIn{})), 1},
	proto.OpMkdir:   {int(unsafe.Sizeof(fuse.MkdirIn{})), 1},
	proto.OpCreate:  {int(unsafe.Sizeof(fuse.CreateIn{})), 1},
	proto.OpLink:    {int(unsafe.Sizeof(fuse.LinkIn{})), 1},
	proto.OpRename:  {int(unsafe.Offsetof(fuse.RenameIn{}.Flags)), 2},
	proto.OpRename2: {int(unsafe.Sizeof(fuse.RenameIn{})), 2},
}

// namesIn gives the names in a request that is in one piece.
func namesIn(in []byte) (names []string) {
	op := proto.Header(in).Opcode
	if op >= proto.Opcodes {
		return nil
	}
	rest := in[min(len(in), named[op].at):]
	for range named[op].names {
		name, after, ok := bytes.Cut(rest, []byte{0})
		if !ok {
			break
		}
		names, rest = append(names, string(name)), after
	}
	return names
}
