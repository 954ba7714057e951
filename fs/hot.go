package fs

import (
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"

	"snapfs/fs/internal/proto"
	"snapfs/fs/internal/transport"
	"snapfs/layers"
)

// hot answers the requests that programs cause all the time without the protocol server, which allocates about a
// kilobyte for each and keeps a list of those that could be interrupted; ours never are. Everything else, and what is
// malformed, goes to the protocol server. A request is read from and its answer written to the transport's buffers;
// nothing is allocated on the way.
type hot struct {
	a    *adapter
	next transport.Handler
}

const (
	entrySize = int(unsafe.Sizeof(fuse.EntryOut{}))
	attrSize  = int(unsafe.Sizeof(fuse.AttrOut{}))
)

// HandleRequest implements transport.Handler. in is a request in one piece, or its header, fixed part and payload; out
// is one buffer, or one for the header and one for the rest.
func (s *hot) HandleRequest(in, out [][]byte) (int, fuse.Status) {
	h := proto.View[fuse.InHeader](in[0])
	size := hotSize(h.Opcode)
	if size < 0 || len(in[0]) < proto.InHeaderSize || h.TotalExtlen != 0 {
		return s.next.HandleRequest(in, out)
	}
	var fixed, payload []byte
	switch {
	case len(in) == 1 && len(in[0]) >= proto.InHeaderSize+size:
		fixed, payload = in[0][proto.InHeaderSize:proto.InHeaderSize+size], in[0][proto.InHeaderSize+size:]
	case len(in) == 3 && len(in[0]) == proto.InHeaderSize && len(in[1]) == size:
		fixed, payload = in[1], in[2]
	default:
		return s.next.HandleRequest(in, out)
	}
	switch h.Opcode {
	case proto.OpForget:
		s.a.Forget(h.NodeId, proto.View[forgetIn](fixed).lookups)
		return 0, fuse.OK
	case proto.OpBatchForget:
		if n := proto.View[batchForgetIn](fixed).count; uint64(len(payload)) >= uint64(n)*forgetOneSize {
			s.a.o.ForgetAll(unsafe.Slice(proto.View[layers.Forgotten](payload), n))
		}
		return 0, fuse.OK
	case proto.OpInterrupt:
		return 0, fuse.OK // nothing can be stopped half done; package transport handles those that have not begun
	}
	var head, body []byte
	switch {
	case len(out) == 1 && len(out[0]) >= proto.OutHeaderSize:
		head, body = out[0][:proto.OutHeaderSize], out[0][proto.OutHeaderSize:]
	case len(out) == 2 && len(out[0]) == proto.OutHeaderSize:
		head, body = out[0], out[1]
	default:
		return s.next.HandleRequest(in, out)
	}
	n, st, ok := s.answer(h, fixed, payload, body)
	if !ok {
		return s.next.HandleRequest(in, out)
	}
	if st != fuse.OK {
		n = 0
	}
	*proto.View[fuse.OutHeader](head) = fuse.OutHeader{
		Length: uint32(proto.OutHeaderSize + n), Status: -int32(st), Unique: h.Unique,
	}
	return proto.OutHeaderSize + n, fuse.OK
}

// hotSize is the size of a request's fixed part, -1 for what hot does not handle.
func hotSize(op uint32) int {
	switch op {
	case proto.OpLookup:
		return 0
	case proto.OpForget, proto.OpBatchForget, proto.OpInterrupt, proto.OpGetxattr, proto.OpListxattr:
		return 8
	case proto.OpGetattr:
		return 16
	case proto.OpRead, proto.OpWrite:
		return 40
	case proto.OpSetattr:
		return setattrSize
	}
	return -1
}

const forgetOneSize = uint64(unsafe.Sizeof(layers.Forgotten{}))

const setattrSize = int(unsafe.Sizeof(fuse.SetAttrInCommon{})) - proto.InHeaderSize

// Fixed parts of requests as they come without their header (include/uapi/linux/fuse.h).
type (
	forgetIn struct{ lookups uint64 }
	// batchForgetIn is followed by struct fuse_forget_one, node and references: a layers.Forgotten.
	batchForgetIn struct{ count, _ uint32 }
	getxattrIn    struct{ size, _ uint32 }
	rwIn          struct {
		_, offset   uint64
		size, flags uint32 // of WRITE: write_flags
		_           uint64
		_, _        uint32
	}
	writeOut [2]uint32 // size, and padding
)

// answer does what a request asks and puts all but the answer's header into body; ok is false if it is not for hot.
func (s *hot) answer(h *fuse.InHeader, fixed, payload, body []byte) (n int, st fuse.Status, ok bool) {
	switch h.Opcode {
	case proto.OpLookup:
		name, whole := nameIn(payload)
		if !whole || len(body) < entrySize {
			return 0, 0, false
		}
		var out fuse.EntryOut // body may be where the name is
		st := s.a.Lookup(nil, h, name, &out)
		*proto.View[fuse.EntryOut](body) = out
		return entrySize, st, true
	case proto.OpGetattr:
		if len(body) < attrSize {
			return 0, 0, false
		}
		return attrSize, s.a.getAttr(layers.NodeID(h.NodeId), proto.View[fuse.AttrOut](body)), true
	case proto.OpSetattr:
		if len(body) < attrSize {
			return 0, 0, false
		}
		var in fuse.SetAttrIn
		in.InHeader = *h
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&in)), unsafe.Sizeof(in))[proto.InHeaderSize:], fixed)
		return attrSize, s.a.SetAttr(nil, &in, proto.View[fuse.AttrOut](body)), true
	case proto.OpRead:
		in := proto.View[rwIn](fixed)
		if uint64(len(body)) < uint64(in.size) {
			return 0, 0, false
		}
		k, err := s.a.o.Read(layers.NodeID(h.NodeId), body[:in.size], int64(in.offset))
		return k, s.a.status(err), true
	case proto.OpWrite:
		in := proto.View[rwIn](fixed)
		if uint64(len(payload)) < uint64(in.size) || len(body) < int(unsafe.Sizeof(writeOut{})) {
			return 0, 0, false
		}
		k, st := s.a.write(h, in.offset, in.flags, payload[:in.size])
		*proto.View[writeOut](body) = writeOut{k, 0}
		return int(unsafe.Sizeof(writeOut{})), st, true
	}
	return s.xattrs(h, proto.View[getxattrIn](fixed).size, payload, body)
}

// xattrs answers GETXATTR and LISTXATTR with the value or the names, or with their size if the caller has no room.
func (s *hot) xattrs(h *fuse.InHeader, size uint32, payload, body []byte) (n int, st fuse.Status, ok bool) {
	if uint64(len(body)) < max(uint64(size), uint64(unsafe.Sizeof(fuse.GetXAttrOut{}))) {
		return 0, 0, false
	}
	var k uint32
	if h.Opcode == proto.OpListxattr {
		k, st = s.a.ListXAttr(nil, h, body[:size])
	} else {
		name, whole := nameOf(payload)
		if !whole {
			return 0, 0, false
		}
		k, st = s.a.GetXAttr(nil, h, name, body[:size])
	}
	if size > 0 {
		return int(k), st, true
	}
	if st == fuse.ERANGE {
		st = fuse.OK // the size is what was asked for
	}
	*proto.View[fuse.GetXAttrOut](body) = fuse.GetXAttrOut{Size: k}
	return int(unsafe.Sizeof(fuse.GetXAttrOut{})), st, true
}

// nameOf takes a name off its terminator; false if that is missing.
func nameOf(payload []byte) (string, bool) {
	n := len(payload) - 1
	if n < 0 || payload[n] != 0 {
		return "", false
	}
	return string(payload[:n]), true
}

// nameIn is nameOf without a copy: the name is good until the answer is written, which may be to the same memory.
func nameIn(payload []byte) (string, bool) {
	n := len(payload) - 1
	if n < 0 || payload[n] != 0 {
		return "", false
	}
	return unsafe.String(unsafe.SliceData(payload), n), true
}
