package layers

import (
	"context"
	"maps"
	"path/filepath"

	"golang.org/x/sys/unix"

	"snapfs/internal/hosttree"
	"snapfs/internal/lockorder"
)

// ledger is what the account was told of inodes that callers have changed: the sum of what the account has of an upper
// changes by what an inode has now, less what it had then. So a change is counted by what the host says, whatever it
// was, and an error is made good by the next change of the inode. What nobody has changed is not in it.
type ledger struct {
	mu lockorder.Mutex[lockorder.Ledger]
	m  map[*node]tally // guarded by mu
	// Those of m that have lost their last name; guarded by mu.
	nameless map[*node]struct{}
	// What was counted before the upper was replaced, until carryNameless has taken what goes along; guarded by mu.
	before map[*node]tally
	turn   uint64 // of the account, from which all of this is; guarded by mu
}

// lockLedger locks the ledger, and forgets what it has from before nothing was counted for a while.
func (o *Overlay) lockLedger() *ledger {
	l := &o.ledger
	l.mu.Lock()
	if turn := o.opts.Account.turns.Load(); l.turn != turn {
		l.turn, l.m, l.nameless, l.before = turn, nil, nil, nil
	}
	return l
}

// tally is what the account has of one inode.
type tally struct {
	blocks int64 // of 512 bytes
	last   bool  // it has lost its last name, and goes with its node
}

func (c tally) usage() Usage { return Usage{c.blocks * 512, 1} }

// counts reports whether what changes is counted.
func (o *Overlay) counts() bool { return o.opts.Account.counts() }

// countChange counts a change, and notes the sum now and then. The gate or tree is held.
func (o *Overlay) countChange(u Usage) {
	o.opts.Account.count(u)
	o.noteUsed()
}

// countBefore learns what an inode of the upper, n at p, has before it is changed.
func (o *Overlay) countBefore(n *node, p location) {
	if !o.counts() {
		return
	}
	l := o.lockLedger()
	defer l.mu.Unlock()
	l.learnLocked(n, p)
}

// learnLocked gives what the account has of n, at p, by asking the host if it is not known. mu is held.
func (l *ledger) learnLocked(n *node, p location) (c tally, ok bool) {
	if c, ok = l.m[n]; ok {
		return c, true
	}
	blocks, err := p.blocks()
	if err != nil {
		return tally{}, false
	}
	c = tally{blocks: blocks}
	l.putLocked(n, c)
	return c, true
}

func (l *ledger) putLocked(n *node, c tally) {
	if l.m == nil {
		l.m = map[*node]tally{}
	}
	l.m[n] = c
	if !c.last {
		delete(l.nameless, n)
		return
	}
	if l.nameless == nil {
		l.nameless = map[*node]struct{}{}
	}
	l.nameless[n] = struct{}{}
}

// countAfter counts what a change has made of an inode of the upper, n at p.
func (o *Overlay) countAfter(n *node, p location) {
	if !o.counts() {
		return
	}
	l := o.lockLedger()
	c, ok := l.m[n]
	blocks, err := p.blocks()
	if err != nil {
		l.mu.Unlock()
		return
	}
	l.putLocked(n, tally{blocks, c.last})
	l.mu.Unlock()
	if ok && blocks != c.blocks {
		o.countChange(Usage{Bytes: (blocks - c.blocks) * 512})
	}
}

// countingHere is countBefore for a node of which the caller has no location, and gives what counts the change. tree is
// held.
func (o *Overlay) countingHere(n *node) (after func()) {
	count := func(f func(n *node, p location)) {
		if p, h, err := n.location(); err == nil {
			f(n, p)
			h.release()
		}
	}
	if !o.counts() {
		return func() {}
	}
	count(o.countBefore)
	return func() { count(o.countAfter) }
}

// countNew counts an inode that the upper has got, or that has no name and is written where it is (last).
func (o *Overlay) countNew(n *node, blocks int64, last bool) {
	if !o.counts() {
		return
	}
	c := tally{blocks, last}
	l := o.lockLedger()
	l.putLocked(n, c)
	l.mu.Unlock()
	o.countChange(c.usage())
}

// countLast notes that an inode of the upper, n at p, is about to lose its last name.
func (o *Overlay) countLast(n *node, p location) {
	if !o.counts() {
		return
	}
	l := o.lockLedger()
	defer l.mu.Unlock()
	if c, ok := l.learnLocked(n, p); ok {
		c.last = true
		l.putLocked(n, c)
	}
}

// countNamed notes that n has a name, again or still.
func (o *Overlay) countNamed(n *node) {
	if !o.counts() {
		return
	}
	l := o.lockLedger()
	defer l.mu.Unlock()
	if c, ok := l.m[n]; ok {
		c.last = false
		l.putLocked(n, c)
	}
}

// countGone counts that n is forgotten, and its inode gone if it has no name. It is called while that is still there.
func (o *Overlay) countGone(n *node) {
	if !o.counts() {
		return
	}
	lost, known := o.lostElsewhere(n)
	l := o.lockLedger()
	c, ok := l.m[n]
	before, carried := l.before[n]
	switch {
	case !ok && carried:
		delete(l.before, n) // the account has forgotten it with the upper
		l.mu.Unlock()
		return
	case !ok && known:
		c, ok = lost, true
	case known:
		c.last = true // it was changed since
	}
	delete(l.m, n)
	delete(l.nameless, n)
	delete(l.before, n)
	l.mu.Unlock()
	switch {
	case !ok || !c.last && !before.last:
	case carried:
		o.countChange(Usage{Bytes: (before.blocks - c.blocks) * 512})
	default:
		o.countChange(Usage{-c.usage().Bytes, -1})
	}
}

// lostElsewhere is what there is of a node without a name that lost it under another process.
func (o *Overlay) lostElsewhere(n *node) (c tally, known bool) {
	if !n.free || !o.orphans.live {
		return tally{}, false
	}
	p, h, err := n.location()
	if err != nil {
		return tally{}, false
	}
	defer h.release()
	blocks, err := p.blocks()
	return tally{blocks, true}, err == nil
}

// countErased counts that what has a name in the orphan directory is about to go, which no node is made of.
func (o *Overlay) countErased(name string) {
	if !o.counts() {
		return
	}
	a, err := nameIn(o.orphans.root(), name).hostStat()
	if err == nil && (isDir(a.Mode) || a.Nlink == 1) {
		o.countChange(Usage{-int64(a.Blocks) * 512, -1})
	}
}

// countAnew begins with an empty upper. What the account has had of the former one, which is sealed or given up, it keeps
// until its owner knows better. carryNameless must follow. tree is held for writing.
func (o *Overlay) countAnew(sealed bool) {
	a := o.opts.Account
	if a == nil {
		return
	}
	a.seals.Add(1)
	if !a.on.Load() {
		return
	}
	l := o.lockLedger()
	l.before, l.m, l.nameless = l.m, nil, nil
	l.mu.Unlock()
	was := a.used.get()
	var now Usage
	if blocks, err := nameIn(o.upper.store.root, ".").blocks(); err == nil {
		now = tally{blocks: blocks}.usage()
	}
	if sealed {
		a.kept.add(was)
	}
	a.used.add(Usage{now.Bytes - was.Bytes, now.Inodes - was.Inodes})
	a.changes.Add(1)
}

// carryNameless counts what has no name, and so is in no layer, in the present upper.
func (o *Overlay) carryNameless() {
	if !o.counts() {
		return
	}
	o.tree.RLock()
	defer o.tree.RUnlock()
	var sum Usage
	l := o.lockLedger()
	for n, c := range l.before {
		if !c.last {
			continue
		}
		sum = sum.add(c.usage())
		if now, ok := l.m[n]; ok { // what has changed since is counted
			c.blocks = now.blocks
		}
		l.putLocked(n, c)
	}
	l.before = nil
	l.mu.Unlock()
	if sum != (Usage{}) {
		o.countChange(sum)
	}
	o.writeUsed(false)
}

// nameless is what inodes without a name take.
func (o *Overlay) nameless() (sum Usage) {
	l := o.lockLedger()
	defer l.mu.Unlock()
	for c := range maps.Values(l.m) {
		if c.last {
			sum = sum.add(c.usage())
		}
	}
	return sum
}

// recounts is how often Recount begins again when something changes meanwhile.
const recounts = 4

// Recount measures what the account has of the upper, after a crash or where something is counted from now on. Changes
// go on meanwhile. exact tells that there were none in the end; else the account may be wrong by what they have changed
// during the last measurement.
func (o *Overlay) Recount(ctx context.Context) (exact bool, err error) {
	for range recounts {
		if exact, err = o.recountOnce(ctx); exact || err != nil {
			break
		}
	}
	return exact, err
}

func (o *Overlay) recountOnce(ctx context.Context) (exact bool, err error) {
	a := o.opts.Account
	o.tree.RLock()
	u := o.upper
	if u != nil {
		u.use()
	}
	o.tree.RUnlock()
	if u == nil {
		return true, nil
	}
	defer u.release()
	if !o.counts() {
		return true, nil
	}
	o.reaper.drain()
	changes, was := a.changes.Load(), a.used.get()
	sum, err := Measure(ctx, u.dir)
	if err != nil {
		return false, err
	}
	nameless := o.nameless()
	if o.orphans.live {
		if nameless, err = Measure(ctx, filepath.Join(u.path, orphanDir)); err != nil {
			return false, err
		}
	}
	o.tree.RLock()
	defer o.tree.RUnlock()
	if o.upper != u {
		return false, nil
	}
	exact = a.changes.CompareAndSwap(changes, changes+1)
	sum = sum.add(nameless)
	a.used.add(Usage{sum.Bytes - was.Bytes, sum.Inodes - was.Inodes})
	a.known.Store(true)
	o.writeUsed(false)
	return exact, nil
}

// Measure walks the directory of an upper, and tells what it takes. Whiteouts of the host's kind are no inodes of the
// workspace: they are links of one.
func Measure(ctx context.Context, dir string) (sum Usage, err error) {
	seen := map[uint64]bool{} // inodes with several names
	err = hosttree.Walk(ctx, dir, func(st *unix.Stat_t) error {
		if isWhiteoutDevice(st.Mode, st.Rdev) {
			return nil
		}
		if st.Nlink > 1 && !isDir(st.Mode) {
			if seen[st.Ino] {
				return nil
			}
			seen[st.Ino] = true
		}
		sum = sum.add(tally{blocks: st.Blocks}.usage())
		return nil
	})
	return sum, err
}
