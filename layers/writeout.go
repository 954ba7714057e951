package layers

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
)

const (
	// rowLeast is how many bytes must have been written in a row before their write-out is begun early: what is smaller
	// may be removed or overwritten before the kernel would write it.
	rowLeast = 16 << 20
	// rowStep is how many bytes are written out at a time.
	rowStep = 8 << 20
	// maxWriteOuts and allWriteOuts are how many of them an overlay, and the process, have under way at a time: each
	// holds a descriptor, and on a host that stands a thread, too. Beyond that nothing is begun early.
	maxWriteOuts, allWriteOuts = 4, 64
)

// writing counts the write-outs of the process.
var writing atomic.Int64

// enter counts one more, unless that were more than most.
func enter(n *atomic.Int64, most int64) bool {
	if n.Add(1) <= most {
		return true
	}
	n.Add(-1)
	return false
}

// row is what was last written through a descriptor without a gap. Who writes a long row is likely to wait for it in an
// fsync, which then finds most of it on the disk: the disk and another processor work while the next bytes come.
type row struct {
	mu         lockorder.Mutex[lockorder.Row]
	start, end int64 // guarded by mu
	begun      int64 // the write-out was begun up to here; guarded by mu
	busy       bool  // it is being begun; guarded by mu
}

// add notes a write, and gives what must be written out, n > 0, after which settled must be called.
func (r *row) add(off, size int64) (from, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if off != r.end {
		r.start, r.begun = off, off
	}
	r.end = off + size
	if r.busy || r.end-r.start < rowLeast || r.end-r.begun < rowStep {
		return 0, 0
	}
	from, n = r.begun, r.end-r.begun
	r.begun, r.busy = r.end, true
	return from, n
}

func (r *row) settled() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = false
}

// writeOut notes a write through the descriptor and has a long row of them written out beside what goes on. Errors are
// the next fsync's, as of all that the kernel writes by itself. Overlay.Close waits for it.
func (o *Overlay) writeOut(d *descriptor, off, size int64) {
	from, n := d.row.add(off, size)
	if n == 0 {
		return
	}
	if !enter(&o.writing, maxWriteOuts) {
		d.row.settled()
		return
	}
	if !enter(&writing, allWriteOuts) {
		o.writing.Add(-1)
		d.row.settled()
		return
	}
	d.share()
	o.writeOuts.Add(1)
	go func() {
		defer o.writeOuts.Done()
		defer o.writing.Add(-1)
		defer writing.Add(-1)
		defer d.release()
		_ = unix.SyncFileRange(d.fd, from, n, unix.SYNC_FILE_RANGE_WRITE) // fsync will tell
		d.row.settled()
	}()
}
