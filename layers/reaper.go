package layers

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
)

const (
	// reapers is how many descriptors an overlay closes at a time: the host may wait for the disk with each.
	reapers = 4
	// reapBacklog is for how many waiting descriptors another goroutine comes to help.
	reapBacklog = 64
	// reapPause is how long one stays that has nothing to do: to start one for each descriptor costs more than most are
	// worth.
	reapPause = 2 * time.Millisecond
	// maxReaped bounds the descriptors that wait to be closed; who brings more closes them himself.
	maxReaped = 1 << 14
)

// reaper closes the last descriptors of removed inodes. The host frees an inode and its blocks at that moment, for
// which ext4 may tell the disk, so it is not done where others wait. The zero value is ready.
type reaper struct {
	mu    lockorder.Mutex[lockorder.Reaper]
	queue []reaped   // guarded by mu
	busy  int        // goroutines; guarded by mu
	idle  *sync.Cond // of mu, when busy becomes 0; made when first waited for
}

// reaped is a descriptor to be closed, which counts in a share until then, unless that is nil.
type reaped struct {
	fd int // -1: none
	of *share
	// from is the orphan directory in which the inode has a name, which is removed before; name "": none.
	from *orphanTable
	name string
}

// take has descriptors closed.
func (r *reaper) take(fds ...reaped) {
	r.mu.Lock()
	if len(r.queue)+len(fds) > min(maxReaped, int(maxPins()/2)) {
		r.mu.Unlock()
		for _, d := range fds {
			d.close()
		}
		return
	}
	r.queue = append(r.queue, fds...)
	if r.busy == 0 || r.busy < min(reapers, len(r.queue)/reapBacklog) {
		r.busy++
		go r.run()
	}
	r.mu.Unlock()
}

// run closes what is queued; drain waits for it.
func (r *reaper) run() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for paused := false; len(r.queue) > 0 || !paused; {
		n := len(r.queue)
		if paused = n == 0; paused {
			r.mu.Unlock()
			time.Sleep(reapPause)
			r.mu.Lock()
			continue
		}
		d := r.queue[n-1]
		r.queue = r.queue[:n-1]
		r.mu.Unlock()
		d.close()
		r.mu.Lock()
	}
	if r.busy--; r.busy == 0 {
		r.queue = nil
		if r.idle != nil {
			r.idle.Broadcast()
		}
	}
}

// drain waits until all that was taken is closed.
func (r *reaper) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.busy > 0 {
		if r.idle == nil {
			r.idle = sync.NewCond(&r.mu)
		}
		r.idle.Wait()
	}
}

func (d reaped) close() {
	if d.name != "" {
		d.from.remove(d.name)
	}
	if d.fd >= 0 {
		_ = unix.Close(d.fd) // nobody reads the inode again
	}
	if d.of != nil {
		d.of.hold(-1)
	}
}
