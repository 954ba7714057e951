package fs

import (
	"log/slog"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"

	"snapfs/fs/internal/proto"
	"snapfs/fs/internal/transport"
	"snapfs/internal/livestate"
	"snapfs/layers"
)

// again notes the requests that are being handled in the live state, with what they are answered, so that one which the
// process before has done, but not answered, is not done twice. Package layers notes what it takes to recognise one that
// was done without an answer noted. docs/ARCHITECTURE.md has what that means for each request.
type again struct {
	a       *adapter
	r       *livestate.Requests
	refused func(Refused) // nil: nobody asks
	next    transport.Handler
}

// noting says how requests are noted.
type noting uint8

const (
	notedAlone  noting = iota // with no more than that they are handled
	notNoted                  // not at all: nobody waits, or it is before the first one
	notedChange               // with facts and the answer
	notedLookup               // with the node that the kernel gets a reference of
)

var notings = [proto.Opcodes]noting{
	proto.OpForget: notNoted, proto.OpBatchForget: notNoted, proto.OpInterrupt: notNoted, proto.OpInit: notNoted,
	proto.OpDestroy: notNoted, proto.OpNotifyReply: notNoted,

	proto.OpLookup: notedLookup,

	proto.OpSymlink: notedChange, proto.OpMknod: notedChange, proto.OpMkdir: notedChange, proto.OpTmpfile: notedChange,
	proto.OpLink: notedChange, proto.OpUnlink: notedChange, proto.OpRmdir: notedChange, proto.OpRename: notedChange,
	proto.OpRename2: notedChange, proto.OpSetattr: notedChange, proto.OpWrite: notedChange,
	proto.OpFallocate: notedChange, proto.OpCopyFileRange: notedChange, proto.OpCopyFileRange64: notedChange,
	proto.OpSetxattr: notedChange, proto.OpRemovexattr: notedChange,
}

// answers is what the answer to a request holds.
type answers uint8

const (
	answersStatus answers = iota
	answersEntry
	answersAttr
	answersSize
)

func answerOf(op uint32) answers {
	switch op {
	case proto.OpLookup, proto.OpSymlink, proto.OpMknod, proto.OpMkdir, proto.OpTmpfile, proto.OpLink:
		return answersEntry
	case proto.OpSetattr:
		return answersAttr
	case proto.OpWrite, proto.OpCopyFileRange, proto.OpCopyFileRange64:
		return answersSize
	}
	return answersStatus
}

// HandleRequest implements transport.Handler.
func (s *again) HandleRequest(in, out [][]byte) (int, fuse.Status) {
	h := proto.View[fuse.InHeader](in[0])
	op := h.Opcode
	how := notedAlone
	if op < proto.Opcodes {
		how = notings[op]
	}
	h.Padding = 0
	if how == notNoted {
		return s.next.HandleRequest(in, out)
	}
	q := s.r.Begin(h.Unique, op, h.NodeId, how == notedChange)
	h.Padding = q.Slot()
	if h.Unique&livestate.Resent != 0 {
		if q.Poisoned() {
			return s.refuse(in[0])
		}
		if a, ok := q.Answered(); ok {
			if n, ok := s.answer(h, a, out); ok {
				return n, fuse.OK
			}
		}
	}
	node := h.NodeId
	n, st := s.next.HandleRequest(in, out)
	if how != notedAlone && q != nil && st == fuse.OK && n >= proto.OutHeaderSize {
		note(q, op, node, out)
	}
	return n, st
}

// note notes what a request is answered.
func note(q *livestate.Request, op uint32, node uint64, out [][]byte) {
	head, body := split(out)
	a := livestate.Answer{Errno: uint32(-proto.View[fuse.OutHeader](head).Status)}
	if a.Errno == 0 {
		switch answerOf(op) {
		case answersEntry:
			a.Node = proto.View[fuse.EntryOut](body).NodeId
		case answersAttr:
			a.Node = node
		case answersSize:
			a.Size = proto.View[writeOut](body)[0]
		case answersStatus:
		}
	}
	if op == proto.OpLookup && a.Node == 0 {
		return // no reference was given
	}
	q.Done(a)
}

// split gives the header of an answer and the rest.
func split(out [][]byte) (head, body []byte) {
	if len(out) > 1 {
		return out[0], out[1]
	}
	return out[0][:proto.OutHeaderSize], out[0][proto.OutHeaderSize:]
}

// answer gives the answer that was noted; false if that is not possible any more.
func (s *again) answer(h *fuse.InHeader, a livestate.Answer, out [][]byte) (n int, ok bool) {
	head, body := split(out)
	status := fuse.Status(a.Errno)
	if status == fuse.OK {
		switch answerOf(h.Opcode) {
		case answersEntry:
			e, err := s.a.o.Again(layers.NodeID(a.Node))
			if err != nil {
				return 0, false
			}
			n = entrySize
			if h.Opcode == proto.OpTmpfile {
				n = int(unsafe.Sizeof(fuse.CreateOut{}))
			}
			clear(body[:n])
			putEntry(proto.View[fuse.EntryOut](body), &e)
		case answersAttr:
			n = attrSize
			status = s.a.getAttr(layers.NodeID(a.Node), proto.View[fuse.AttrOut](body))
		case answersSize:
			n = int(unsafe.Sizeof(writeOut{}))
			*proto.View[writeOut](body) = writeOut{a.Size, 0}
		case answersStatus:
		}
	}
	if status != fuse.OK {
		n = 0
	}
	*proto.View[fuse.OutHeader](head) = fuse.OutHeader{
		Length: uint32(proto.OutHeaderSize + n), Status: -int32(status), Unique: h.Unique,
	}
	return proto.OutHeaderSize + n, true
}

// references are those that a listing gives. The process before may have given the same: the directory's lock is the
// kernel's until the answer, so that the listing is the same, and the sum tells if it is not. Then they stay: a reference
// too many costs memory, one too few would take a node from under the kernel.
type references struct {
	q           *livestate.Request
	n, sum      uint64
	before, was uint64 // those of the process before
	nodes       []layers.NodeID
	same        bool
}

func listed(q *livestate.Request) references {
	r := references{q: q}
	r.before, r.was = q.Listed()
	return r
}

// add notes one more.
func (r *references) add(id layers.NodeID) {
	if r.q == nil {
		return
	}
	const odd = 0x9e3779b97f4a7c15 // spreads what is added over all bits
	r.n, r.sum = r.n+1, (r.sum+uint64(id))*odd
	switch {
	case r.before == 0:
		r.q.SetListed(r.n, r.sum)
		return
	case r.n <= r.before:
		r.nodes = append(r.nodes, id)
	}
	if r.n == r.before {
		r.same = r.sum == r.was
	}
}

// twice gives those that were given twice, once nothing more is added.
func (r *references) twice() []layers.NodeID {
	if !r.same {
		return nil
	}
	r.q.SetListed(r.n, r.sum)
	return r.nodes
}

// End implements transport.Ender.
func (s *again) End(h *fuse.InHeader) { s.r.At(h.Padding).End() }

// on gives the overlay for the changes of a request.
func (a *adapter) on(h *fuse.InHeader) layers.Noted { return a.o.Noting(a.requests.At(h.Padding)) }

// settle ends what a process before has begun, and begins to note requests.
func (a *adapter) settle(opts Options) {
	if opts.Live == nil {
		return
	}
	a.requests, a.refused = opts.Live.Requests(), opts.Refused
	if opts.Crashed {
		a.requests.Died(time.Now())
	}
	if err := a.o.Settle(a.requests); err != nil {
		a.log.Warn("a change that the process before has begun is ended when it is asked for again", slog.String("error", err.Error()))
	}
}

// noting has requests noted, if anybody is to go on with the mount.
func (a *adapter) noting(h transport.Handler) transport.Handler {
	if a.requests == nil {
		return h
	}
	return &again{a: a, r: a.requests, refused: a.refused, next: h}
}
