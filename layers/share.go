package layers

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// The process's descriptors, of which Go has raised the limit as far as it may be, are divided: a quarter, maxPins, may
// pin inodes that have lost their names; a quarter at most is the cache of fdCache, which gives way; the rest is for
// what cannot: roots of layers, connections of mounts, calls in progress, the store and the API's socket.
//
// Within these parts one overlay does not take what others need. It may pin as long as it has fewer pins than are left
// in all, so that the next overlay finds room, and what it must keep beyond that lies in its orphan directory. In the
// cache it keeps its newest descriptors whatever others do.

// share is what one overlay has of the process's descriptors.
type share struct {
	pinned atomic.Int64 // pins, and descriptors that wait for the reaper
	cached fdList       // its newest in the cache; guarded by fdCache.mu
}

// unowned is the share of layers that belong to no overlay.
var unowned share

// of gives a layer's share.
func (l *layer) of() *share {
	if l == nil || l.share == nil {
		return &unowned
	}
	return l.share
}

// pins counts the pinned inodes of the process.
var pins atomic.Int64

// maxPins is how many inodes the process may pin.
var maxPins = sync.OnceValue(func() int64 { return int64(min(fileLimit()/4, 1<<20)) })

// fileLimit is how many descriptors the process may have.
func fileLimit() uint64 {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 1024
	}
	return r.Cur
}

// hold counts descriptors that nothing can take away from the overlay.
func (s *share) hold(n int64) {
	s.pinned.Add(n)
	pins.Add(n)
}

// mayPin reports whether the overlay may pin one more inode.
func (o *Overlay) mayPin() bool {
	if limit := o.orphans.limit; limit != 0 {
		return pins.Load() < limit
	}
	return o.share.pinned.Load() < maxPins()-pins.Load()
}

// mustPin is mayPin for an inode that the orphan directory cannot take: for some of these there is room in any case.
func (o *Overlay) mustPin() bool { return pins.Load() < maxPins()+maxPins()/2 }

// errNeedName is what a removal returns from under the locks where the inode has names that nobody has looked at and
// there is no descriptor for it: they must be looked for before the retry.
type errNeedName struct{ n *node }

func (e *errNeedName) Error() string { return "further name needed" }

// needName tells the runner of a removal to find a further name of n; it keeps n alive until then.
func (o *Overlay) needName(n *node) error {
	o.nodes.hold(n)
	return &errNeedName{n}
}

// nameElsewhere looks for the further names of a file of the upper, and lets the table know of them. It takes as long
// as the upper is large. The caller holds no lock.
func (o *Overlay) nameElsewhere(n *node) error {
	o.tree.RLock()
	o.nodes.refresh(n)
	top, dir, name := n.top, n.parent, n.name
	o.tree.RUnlock()
	links, err := o.namesOf(top)
	if err != nil {
		return err
	}
	found, err := o.lookUp(n, links, func(at *node, as string) bool { return at != dir || as != name })
	if found || err != nil {
		return err
	}
	o.tree.Lock()
	n.alone = true
	o.tree.Unlock()
	return nil
}

// noRoom reports whether the table of descriptors, of the process or of the system, is full.
func noRoom(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }
