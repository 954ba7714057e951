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
	// maxSpare bounds the names of forgotten inodes that are kept to be given to others, of files and of directories.
	maxSpare = 16
	// maxReaped bounds the descriptors that wait to be closed; who brings more closes them himself.
	maxReaped = 1 << 14
)

// reaper closes the last descriptors of removed inodes. The host frees an inode and its blocks at that moment, for
// which ext4 may tell the disk, so it is not done where others wait. The zero value is ready.
type reaper struct {
	mu    lockorder.Mutex[lockorder.Reaper]
	queue []reaped    // guarded by mu
	spare [2][]reaped // files and directories with names that others may be given; guarded by mu
	busy  int         // goroutines, at least one as long as something waits; guarded by mu
	idle  *sync.Cond  // of mu, when busy becomes 0; made when first waited for
}

// reaped is a descriptor to be closed, which counts in a share until then, unless that is nil.
type reaped struct {
	fd int // -1: none
	of *share
	// from is the orphan directory in which the inode has a name, which is removed before; name "": none.
	from *orphanTable
	name string
	// serial is all that the name says, so that another inode of the kind may be given it; 0: it says more.
	serial uint32
	dir    bool
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
	for _, d := range fds {
		if kind := d.kind(); d.serial != 0 && len(r.spare[kind]) < maxSpare {
			r.spare[kind] = append(r.spare[kind], d)
		} else {
			r.queue = append(r.queue, d)
		}
	}
	if r.busy == 0 || r.busy < min(reapers, len(r.queue)/reapBacklog) {
		r.busy++
		go r.run()
	}
	r.mu.Unlock()
}

// kind is where it waits if its name is spare.
func (d reaped) kind() int {
	if d.dir {
		return 1
	}
	return 0
}

// again gives something whose name another inode may be given: what has it then loses it by that, and is the caller's to
// have closed.
func (r *reaper) again(dir bool) (d reaped, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return pop(&r.spare[reaped{dir: dir}.kind()])
}

func pop(list *[]reaped) (d reaped, ok bool) {
	n := len(*list)
	if n == 0 {
		return d, false
	}
	d, *list = (*list)[n-1], (*list)[:n-1]
	return d, true
}

// run closes what is queued; drain waits for it. Names that nobody has wanted for a while are removed.
func (r *reaper) run() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for paused := false; ; {
		d, ok := pop(&r.queue)
		if ok {
			paused = false
		} else if !paused {
			paused = true
			r.mu.Unlock()
			time.Sleep(reapPause)
			r.mu.Lock()
			continue
		} else if d, ok = pop(&r.spare[0]); !ok {
			if d, ok = pop(&r.spare[1]); !ok {
				break
			}
		}
		r.mu.Unlock()
		d.close()
		r.mu.Lock()
	}
	if r.busy--; r.busy == 0 {
		r.queue, r.spare = nil, [2][]reaped{}
		if r.idle != nil {
			r.idle.Broadcast()
		}
	}
}

// drain waits until all that was taken is closed.
func (r *reaper) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for kind := range r.spare {
		r.queue = append(r.queue, r.spare[kind]...)
		r.spare[kind] = nil
	}
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
