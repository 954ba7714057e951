package transport

import (
	"sync/atomic"
	"time"

	"snapfs/fs/internal/proto"
)

// slow reports whether a request may wait for a disk for long, and must not be handled by a leader or a ring thread.
func slow(op uint32) bool {
	switch op {
	case proto.OpFallocate, proto.OpCopyFileRange:
		return true
	case proto.OpFsync, proto.OpFsyncdir:
		return !syncs.quick()
	}
	return false
}

const (
	// quickSync is what an fsync may take to be handled by the thread that read it: passing it on and having its answer
	// submitted wakes two threads, which costs as much. One that takes longer than those before is the watchdog's.
	quickSync = 200 * time.Microsecond
	// syncWeight is how many earlier fsyncs count as much as the last one.
	syncWeight = 3
)

// syncs is how long fsyncs take, of all mounts of the process: their uppers lie on one disk, as a rule.
var syncs = newSyncTime()

// syncTime is a smoothed duration; safe for concurrent use. What two goroutines note at once may count as one.
type syncTime struct{ nanos atomic.Int64 }

// newSyncTime expects a slow disk.
func newSyncTime() *syncTime {
	t := new(syncTime)
	t.nanos.Store(int64(2 * quickSync))
	return t
}

func (t *syncTime) quick() bool { return t.nanos.Load() < int64(quickSync) }

// since notes an fsync that began at start and has ended.
func (t *syncTime) since(start time.Time) { t.note(time.Since(start)) }

func (t *syncTime) note(d time.Duration) {
	t.nanos.Store((t.nanos.Load()*syncWeight + int64(d)) / (syncWeight + 1))
}
