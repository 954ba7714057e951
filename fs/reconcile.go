package fs

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/fs/internal/proto"
	"snapfs/layers"
)

// reconcileEvery is far more than a program needs to take an answer that was written, on a machine that works at all.
const reconcileEvery = 20 * time.Second

// reconcile gives back, while the mount lives, what a server that was killed has not noted that the kernel gave back.
func (m *Mount) reconcile(o *layers.Overlay, every time.Duration) {
	tick := time.NewTimer(every)
	defer tick.Stop()
	for {
		select {
		case <-m.ending:
			return
		case <-tick.C:
		}
		if err := o.Reconcile(m.has); err != nil {
			m.log.Debug("asking the kernel what it has", slog.String("error", err.Error()))
		}
		tick.Reset(every) // from the end on: a round must see nothing of the one before
	}
}

// has asks the kernel whether it has a node, which makes it ask again for its attributes. That it has none is true of the
// moment: an answer that gives it one may be on its way. See invalidateAttr for when it may be called; a node that is
// being forgotten is waited for.
func (m *Mount) has(node layers.NodeID) (bool, error) {
	select {
	case <-m.ending:
		return false, unix.ENODEV
	default:
	}
	b := make([]byte, proto.OutHeaderSize, proto.OutHeaderSize+24)
	b = binary.NativeEndian.AppendUint64(b, uint64(node))
	b = binary.NativeEndian.AppendUint64(b, math.MaxUint64) // an offset of -1: no contents
	b = binary.NativeEndian.AppendUint64(b, 0)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	code := int32(proto.NotifyInvalInode)
	binary.NativeEndian.PutUint32(b[4:], uint32(code))
	switch err := m.conn.Notify(b); {
	case errors.Is(err, unix.ENOENT):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, nil
}
