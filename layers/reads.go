package layers

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"snapfs/internal/readset"
)

// What programs read is noted when they are answered for the first time: later the kernel answers them. Each node
// remembers of which kinds a read was noted, so that only the first one costs more than a look at that. All functions
// are for overlays with Options.Reads.

const (
	seenBits = 8
	ownFile  = 1 << 7 // in node.seen: programs made it, and nothing of it is noted
)

// noteRead notes a read of n. tree is held for reading.
func (o *Overlay) noteRead(n *node, k readset.Kind) {
	epoch := o.reads.Epoch()
	if !n.unseen(epoch, uint32(k)) {
		return
	}
	if !n.dead {
		var room [32]string
		if path, ok := n.path(room[:0]); ok {
			o.reads.Note(path, k)
		} else {
			o.reads.Lose(lostName)
		}
	} else if n.held != nil {
		o.reads.NoteEntity(n.held, k)
	} else if k == readset.Content && n.seen.Load()&uint32(k) == 0 {
		o.reads.Lose(lostName)
	}
	n.see(epoch, uint32(k))
}

// lostName is the gap that a read leaves of what has lost its name when the workspace was set back.
const lostName = "a program read a file that it had open while the workspace was set back"

// unseen reports whether no read of that kind was noted in that epoch of the set.
func (n *node) unseen(epoch, k uint32) bool {
	seen := n.seen.Load()
	return seen&ownFile == 0 && (seen>>seenBits != epoch&(1<<(32-seenBits)-1) || seen&k == 0)
}

// see remembers that reads of that kind are noted, or need not be. What an earlier epoch has noted counts on for a file
// without a name, which is what it was. Overlay.tree is held.
func (n *node) see(epoch, k uint32) {
	for {
		seen := n.seen.Load()
		next := seen
		if seen>>seenBits != epoch&(1<<(32-seenBits)-1) {
			next = epoch<<seenBits | seen&ownFile
			if n.dead {
				next |= seen & uint32(readset.All)
			}
		}
		if n.seen.CompareAndSwap(seen, next|k) {
			return
		}
	}
}

// path gives the names that lead from the root to n; false if there are none. tree is held.
func (n *node) path(room []string) ([]string, bool) {
	for ; n.parent != nil; n = n.parent {
		if n.dead {
			return nil, false
		}
		room = append(room, n.name)
	}
	slices.Reverse(room)
	return room, true
}

// pathIn is path for a name in p.
func (p *node) pathIn(room []string, name string) ([]string, bool) {
	path, ok := p.path(room)
	return append(path, name), ok
}

// noteLookup notes that a name was asked for, which leads to n, or to nothing if n is nil. tree is held.
func (o *Overlay) noteLookup(p *node, name string, n *node) {
	if n != nil && n.parent == p && n.name == name {
		o.noteRead(n, readset.Attributes)
		return
	}
	var room [32]string
	path, ok := p.pathIn(room[:0], name)
	switch {
	case !ok:
		o.reads.Lose(lostName)
	case n == nil:
		o.reads.Note(path, readset.Missing)
	default: // a further name
		o.reads.Note(path, readset.Attributes)
	}
}

// noteMade notes that programs made n, as a name of p. tree is held for writing.
func (o *Overlay) noteMade(p *node, name string, n *node) {
	if !isDir(n.typ) { // directories are found by their paths, as another one may come in the node's place
		n.see(o.reads.Epoch(), ownFile)
	}
	if path, ok := p.pathIn(nil, name); ok {
		o.reads.Make(path, isDir(n.typ))
	}
}

// noteGone notes that a name of n, which may be nil, is about to go. tree is held for writing.
func (o *Overlay) noteGone(p *node, name string, n *node) {
	path, ok := p.pathIn(nil, name)
	if !ok {
		return
	}
	if n != nil {
		n.held = o.reads.At(path)
	}
	o.reads.Put(path, readset.Made())
}

// noteMoved notes that a name is about to move. tree is held for writing.
func (o *Overlay) noteMoved(fromDir *node, fromName string, toDir *node, toName string, exchange bool) {
	from, ok := fromDir.pathIn(nil, fromName)
	to, there := toDir.pathIn(nil, toName)
	if !ok || !there {
		return
	}
	e, back := o.reads.At(from), readset.Made()
	if exchange {
		back = o.reads.At(to)
	}
	o.reads.Put(to, e)
	o.reads.Put(from, back)
}

// noteLinked notes that n is about to get a further name, or one again. tree is held for writing.
func (o *Overlay) noteLinked(n, p *node, name string) {
	to, ok := p.pathIn(nil, name)
	if !ok {
		return
	}
	e := n.held
	if !n.dead {
		if path, ok := n.path(nil); ok {
			e = o.reads.At(path)
		}
	}
	if e == nil {
		e = readset.Made()
		if n.seen.Load()&ownFile == 0 { // it was open when the workspace was set back
			o.reads.Lose(lostName)
		}
	}
	o.reads.Put(to, e)
}

// noteEmptied notes that programs have cut a file off at its beginning: what it holds from now on is theirs.
func (o *Overlay) noteEmptied(id NodeID) {
	o.tree.RLock()
	defer o.tree.RUnlock()
	n, err := o.nodes.get(id)
	if err != nil || !isReg(n.typ) {
		return
	}
	var room [32]string
	if path, ok := n.path(room[:0]); ok && !n.dead {
		o.reads.Replaced(path)
		n.see(o.reads.Epoch(), uint32(readset.Content))
	}
}

// noteAbsent is noteLookup for a look-up that failed. tree is held.
func (o *Overlay) noteAbsent(p *node, name string, err error) {
	if errors.Is(err, unix.ENOENT) {
		o.noteLookup(p, name, nil)
	}
}
