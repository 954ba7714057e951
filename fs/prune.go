package fs

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"snapfs/fs/internal/proto"
	"snapfs/internal/limits"
	"snapfs/layers"
)

// The kernel forgets what it has looked up when memory is short, its own or that of the control group of the program
// that looked. The daemon's memory is neither: one find through large images would fill it. So the kernel is asked to
// forget nodes that a mount has beyond its share of those that there is room for. It forgets what is not in use: no
// open file, no working directory, no mountpoint.
const (
	// nodeBytes is about what a node takes, with what belongs to it.
	nodeBytes = 512
	// nodesShare-th of the memory may be nodes, of all mounts. A mount may have as many as are left, and minNodes in
	// any case.
	nodesShare = 16
	minNodes   = 16384
	// prunedAtOnce is how many nodes the kernel is asked for at a time, pruneEvery after how many new ones it is asked
	// again: half of what is asked for may be in use.
	prunedAtOnce = 2048
	pruneEvery   = 512
)

// nodeRoom bounds nodes.
type nodeRoom struct{ most, least int64 }

// roomForNodes is the process's.
var roomForNodes = sync.OnceValue(func() nodeRoom {
	return nodeRoom{most: limits.Memory() / nodesShare / nodeBytes, least: minNodes}
})

// noPrune says that the kernel, older than 6.18, cannot be asked to forget.
var noPrune atomic.Bool

// pruner asks for the nodes of one mount.
type pruner struct {
	room    nodeRoom     // immutable
	next    atomic.Int64 // with how many nodes it asks again
	running sync.WaitGroup
}

// check asks the kernel for nodes if the overlay has more than its share. It is called after nodes have been made, and
// does not wait: what answers requests must not.
func (p *pruner) check(m *Mount, o *layers.Overlay) {
	own, all := o.Nodes()
	if own <= p.room.least || own <= p.room.most-all || noPrune.Load() {
		return
	}
	next := p.next.Load()
	if own < next && own > next-2*pruneEvery || !p.next.CompareAndSwap(next, own+pruneEvery) {
		return
	}
	p.running.Go(func() {
		err := m.prune(o.Idle(prunedAtOnce))
		switch {
		case errors.Is(err, unix.EINVAL):
			noPrune.Store(true)
			m.log.Debug("the kernel cannot be asked to forget; it does when memory is short")
		case err != nil:
			m.log.Debug("asking the kernel to forget", slog.String("error", err.Error()))
		}
	})
}

// prune makes the kernel forget those of the nodes that are not in use. See InvalidateNode for when it may be called.
func (m *Mount) prune(nodes []layers.NodeID) error {
	b := make([]byte, proto.OutHeaderSize, proto.OutHeaderSize+16+8*len(nodes))
	b = binary.NativeEndian.AppendUint32(b, uint32(len(nodes)))
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = binary.NativeEndian.AppendUint64(b, 0)
	for _, id := range nodes {
		b = binary.NativeEndian.AppendUint64(b, uint64(id))
	}
	return m.notify(proto.NotifyPrune, b, "node")
}
