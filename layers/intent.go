package layers

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
)

// Noted is an overlay whose changes are noted with a request, so that a request which the process before was handling
// when it was killed is answered as that would have done: what it had made is recognised, and what it had begun is
// undone or ended. docs/ARCHITECTURE.md says for each operation how. Until the answer is given, the kernel holds the lock
// of the directories or of the inode that the request changes, so nobody else has changed them.
type Noted struct {
	*Overlay
	in *livestate.Request
}

// Noting gives the overlay for the changes of one request; nothing is noted for nil.
func (o *Overlay) Noting(in *livestate.Request) Noted { return Noted{o, in} }

// Kinds of facts: what a change was about to do. Nodes[0], and Nodes[1] of a rename, are directories, Names are in
// them.
const (
	// intentCreate: Names[0] was free.
	intentCreate = 1 + iota
	// intentTmpfile: Nodes[0] is the file.
	intentTmpfile
	// intentLink: Names[0] was free, Nodes[1] gets it.
	intentLink
	// intentRemove: Names[0] led to Nodes[1]. Values[0]: see subsBefore.
	intentRemove
	// intentRename: Names[0] led to Nodes[2], inode Inodes[0] of the host, Names[1] to Nodes[3], if not 0. Values[0]: see
	// subsBefore; Values[1]: flags.
	intentRename
	// intentSetXattr: there was no such attribute.
	intentSetXattr
	// intentRemoveXattr: there was one.
	intentRemoveXattr
	// intentShift: a file's size changes from Values[0] to Values[1].
	intentShift
	// intentMode: Values[0] is the mode that a file keeps.
	intentMode
	// intentKeep: a copy-up is given the name Names[0], or one of a group some names. Values[0] to Values[2] are the
	// directory's number, ctime and subdirectories in its inode info, Values[3] and Values[4] its atime and mtime, as
	// packTime has them; Values[5] is 1 if the host counts the copy as a subdirectory then.
	intentKeep
)

// Flags of intentRename.
const (
	renameExchange = 1 << iota
	renameCovers   // a layer below has the old name
	renameWhiteout // callers see a whiteout at the old name
)

// entry runs a change that is answered with an entry, unless that was done before.
func (v Noted) entry(change func() (Entry, error)) (Entry, error) {
	if v.in == nil {
		return change()
	}
	if err := v.settleAgain(v.in); err != nil {
		return Entry{}, err
	}
	if a, ok := v.in.Answered(); ok {
		if a.Errno != 0 {
			return Entry{}, unix.Errno(a.Errno)
		}
		return v.Again(NodeID(a.Node))
	}
	e, err := change()
	if err == nil {
		v.in.Done(livestate.Answer{Node: uint64(e.Node)})
	}
	return e, err
}

// status is entry for a change that is answered with an error or none.
func (v Noted) status(change func() error) error {
	if v.in == nil {
		return change()
	}
	if err := v.settleAgain(v.in); err != nil {
		return err
	}
	if a, ok := v.in.Answered(); ok {
		if a.Errno != 0 {
			return unix.Errno(a.Errno)
		}
		return nil
	}
	err := change()
	if err == nil {
		v.in.Done(livestate.Answer{})
	}
	return err
}

// Again gives the entry of a node for which the caller has a reference already.
func (o *Overlay) Again(id NodeID) (Entry, error) {
	o.tree.RLock()
	defer o.tree.RUnlock()
	n, err := o.nodes.get(id)
	if err != nil {
		return Entry{}, err
	}
	a, err := o.attr(n)
	return Entry{Node: n.id, Gen: uint64(n.gen.Load()), Attr: a}, err
}

// keptTimes notes what a directory of the upper, self, is to show of itself after a change that callers do not see: inode
// info as it is now, and the times of its host inode. name is a copy that gets its place there, "" if that does not
// count. The result forgets it.
func (o *Overlay) keptTimes(n *node, name string, subs int, r inodeInfo, host Attr) (end func()) {
	if o.requests == nil {
		return func() {}
	}
	q := o.requests.BeginOwn(uint64(n.id) << 1)
	q.Doing(&livestate.Facts{
		Kind: intentKeep, Nodes: [4]uint64{uint64(n.id)}, Names: [2]string{name}, Values: [8]uint64{
			r.ino, uint64(r.ctime), uint64(r.subs), uint64(packTime(host.Atime)), uint64(packTime(host.Mtime)), uint64(-subs),
		},
	})
	return q.End
}

// settleKeep gives a directory back what a copy-up would have. tree is held for writing.
func (o *Overlay) settleKeep(q *livestate.Request, f *livestate.Facts) error {
	defer q.EndOwn()
	n, err := o.nodes.get(NodeID(f.Nodes[0]))
	if err != nil {
		return err
	}
	top := o.partBefore(n)
	if top == nil {
		return nil
	}
	p, h, err := top.dirStore().at(top)
	if err != nil {
		return err
	}
	defer h.release()
	subs := 0
	if f.Values[5] != 0 {
		d, err := top.dirStore().dir(top)
		if err != nil {
			return err
		}
		if _, err := nameIn(d.fd, f.Names[0]).stat(); err == nil {
			subs = -1
		}
		d.release()
	}
	r := inodeInfo{ino: f.Values[0], ctime: int64(f.Values[1]), subs: uint32(f.Values[2])}
	if err := top.setInodeInfo(p, r, true, subs); err != nil {
		return err
	}
	atime, mtime := int64(f.Values[3]), int64(f.Values[4])
	if atime == noCtime || mtime == noCtime {
		return nil
	}
	return p.utimes(timespec(unpackTime(atime)), timespec(unpackTime(mtime)))
}

// settleWait is how long a mount waits for what the process before has left.
const settleWait = 3 * time.Second

// errSettling says that changes of the process before are not settled yet.
var errSettling = errors.New("the host, or a paused workspace, keeps changes of the process before from being settled")

// Settle begins to note changes with requests that are being handled. First it looks at what the process before was
// changing when it was killed, before the first request is answered: each change is undone, or ended with its answer
// noted. What cannot be settled now, since the host is full, is settled when it is asked for again. A host that does not
// answer, and Pause, hold it up for a bounded time; it goes on beside, and requests that were left wait for it. A second
// call waits for the first one.
func (o *Overlay) Settle(r *livestate.Requests) error {
	if o.leftSettled == nil {
		o.requests, o.leftSettled = r, make(chan struct{})
		go func() {
			defer close(o.leftSettled)
			for _, q := range r.Left() {
				o.leftErr = errors.Join(o.leftErr, o.settleChange(q))
			}
		}()
	}
	select {
	case <-o.leftSettled:
		return o.leftErr
	case <-time.After(settleWait):
		return errSettling
	}
}

// settleAgain is settleChange for a request that is asked for again.
func (o *Overlay) settleAgain(q *livestate.Request) error {
	if _, ok := q.Unfinished(); ok && o.leftSettled != nil {
		<-o.leftSettled
	}
	return o.settleChange(q)
}

// settleChange does so for one request.
func (o *Overlay) settleChange(q *livestate.Request) error {
	f, ok := q.Unfinished()
	if !ok {
		return nil
	}
	switch f.Kind {
	case intentCreate:
		return o.settleCreate(q, &f)
	case intentTmpfile:
		o.forgetWholly(NodeID(f.Nodes[0]))
		q.NotDone()
	case intentLink:
		return o.settleLink(q, &f)
	case intentRemove:
		return o.mutateExclusive(func() error { return o.settleRemove(q, &f) })
	case intentRename:
		return o.settleRename(q, &f)
	case intentKeep:
		return o.mutateExclusive(func() error { return o.settleKeep(q, &f) })
	}
	return nil // the rest is of one inode, and recognised when it is asked for again
}

// forgetWholly gives all references of a node back that the kernel was never told of.
func (o *Overlay) forgetWholly(id NodeID) {
	o.tree.RLock()
	defer o.tree.RUnlock()
	if n, err := o.nodes.get(id); err == nil && id != RootNode {
		o.discard(o.nodes.drop(n, n.lookups, 0))
	}
}

// settleCreate undoes a creation: the kernel does not know of what was made, and its owner or mode may be missing.
func (o *Overlay) settleCreate(q *livestate.Request, f *livestate.Facts) error {
	dir, name := NodeID(f.Nodes[0]), f.Names[0]
	e, err := o.Lookup(dir, name)
	if errors.Is(err, unix.ENOENT) {
		q.NotDone()
		return nil
	}
	if err != nil {
		return err
	}
	remove := o.Unlink
	if isDir(e.Attr.Mode) {
		remove = o.Rmdir
	}
	switch err = remove(dir, name); {
	case err == nil:
		o.forgetWholly(e.Node)
		q.NotDone()
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		// There is no room for a whiteout. What has replaced one was complete before.
		q.Done(livestate.Answer{Node: uint64(e.Node)})
		err = nil
	default:
		o.Forget(e.Node, 1)
	}
	return err
}

// settleLink ends a link: to take the name away again could lose a file that had none.
func (o *Overlay) settleLink(q *livestate.Request, f *livestate.Facts) error {
	e, err := o.Lookup(NodeID(f.Nodes[0]), f.Names[0])
	switch {
	case errors.Is(err, unix.ENOENT):
		q.NotDone()
		return nil
	case err != nil:
		return err
	case e.Node != NodeID(f.Nodes[1]):
		o.Forget(e.Node, 1)
		q.NotDone()
		return nil
	}
	err = o.mutateExclusive(func() error {
		p, err := o.dirNode(NodeID(f.Nodes[0]))
		if err != nil {
			return err
		}
		n, err := o.nodes.get(e.Node)
		if err != nil {
			return err
		}
		return errors.Join(o.changedBefore(p), o.changedBefore(n))
	})
	if err != nil {
		o.Forget(e.Node, 1)
		return err
	}
	q.Done(livestate.Answer{Node: uint64(e.Node)})
	return nil
}

// settleRemove ends a removal of which the host has made the change. tree is held for writing.
func (o *Overlay) settleRemove(q *livestate.Request, f *livestate.Facts) error {
	p, err := o.dirNode(NodeID(f.Nodes[0]))
	if err != nil {
		return err
	}
	_, err = o.search(p, 0, f.Names[0])
	switch {
	case err == nil:
		q.NotDone()
		return nil
	case !errors.Is(err, unix.ENOENT):
		return err
	}
	if err := o.endSubs(p, f.Values[0]); err != nil {
		return err
	}
	o.lostName(NodeID(f.Nodes[1]), p, f.Names[0])
	o.listings.drop(p)
	q.Done(livestate.Answer{})
	return nil
}

// lostName notes that a node, if it is known, has lost a name. tree is held for writing.
func (o *Overlay) lostName(id NodeID, p *node, name string) {
	if n, err := o.nodes.get(id); err == nil && !n.dead {
		o.unlinked(n, p, name, false)
	}
}

// settleRename ends a rename of which the host has made the change.
func (o *Overlay) settleRename(q *livestate.Request, f *livestate.Facts) error {
	moved := false
	err := o.mutateExclusive(func() (err error) {
		moved, err = o.endMove(f)
		return err
	})
	if err != nil {
		return err
	}
	if !moved {
		q.NotDone()
		return nil
	}
	if f.Values[1]&renameWhiteout != 0 {
		e, err := o.Mknod(Caller{}, NodeID(f.Nodes[0]), f.Names[0], unix.S_IFCHR, 0)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		o.Forget(e.Node, 1)
	}
	q.Done(livestate.Answer{})
	return nil
}

// partBefore gives the part of n that the process before may have changed: in the upper, or, if it was killed while it was
// to seal that, in the topmost sealed directory. nil: it has none. tree is held.
func (o *Overlay) partBefore(n *node) *part {
	for _, p := range n.parts() {
		if o.before(p) {
			return p
		}
	}
	return nil
}

// before reports whether the process before may have changed a part. tree is held.
func (o *Overlay) before(p *part) bool {
	return p.layer == o.upper.layer || len(o.stack) > 1 && p.layer == o.stack[1] && p.dirStore() != nil
}

// endMove does what follows once the host has moved a name, and reports whether it has. tree is held for writing.
func (o *Overlay) endMove(f *livestate.Facts) (moved bool, err error) {
	fromDir, err := o.dirNode(NodeID(f.Nodes[0]))
	if err != nil {
		return false, err
	}
	toDir, err := o.dirNode(NodeID(f.Nodes[1]))
	if err != nil {
		return false, err
	}
	at, err := o.search(toDir, 0, f.Names[1])
	switch {
	case errors.Is(err, unix.ENOENT):
		return false, nil
	case err != nil:
		return false, err
	}
	if top := at.parts[0]; top.host != f.Inodes[0] || top.host == 0 || !o.before(top) {
		return false, nil
	}
	if f.Values[1]&renameCovers != 0 {
		if err := o.cover(fromDir, at.parts[0].layer, f.Names[0]); err != nil {
			return true, err
		}
	}
	o.listings.drop(fromDir)
	o.listings.drop(toDir)
	return true, o.entered(f, fromDir, toDir)
}

// cover leaves a whiteout at a name of a directory in a layer, unless there is something.
func (o *Overlay) cover(dir *node, in *layer, name string) error {
	for _, p := range dir.parts() {
		if p.layer != in {
			continue
		}
		d, err := p.dirStore().dir(p)
		if err != nil {
			return err
		}
		defer d.release()
		at := nameIn(d.fd, name)
		if _, err = at.stat(); errors.Is(err, unix.ENOENT) {
			err = o.upper.whiteout(at)
		}
		return err
	}
	return nil
}

// entered enters a rename that was found done.
func (o *Overlay) entered(f *livestate.Facts, fromDir, toDir *node) error {
	err := errors.Join(o.changedBefore(fromDir), o.endSubs(toDir, f.Values[0]))
	n, nerr := o.nodes.get(NodeID(f.Nodes[2]))
	target, terr := o.nodes.get(NodeID(f.Nodes[3]))
	exchange := f.Values[1]&renameExchange != 0
	if nerr == nil && terr == nil && exchange {
		if n.parent != toDir || n.name != f.Names[1] { // else a look-up has met them
			o.swapped(&move{fromDir: fromDir, toDir: toDir, fromName: f.Names[0], toName: f.Names[1], node: n, target: target})
		}
		return errors.Join(err, o.changedBefore(n), o.changedBefore(target))
	}
	if terr == nil {
		if exchange {
			o.renamed(target, toDir, f.Names[1], fromDir, f.Names[0])
		} else {
			o.lostName(target.id, toDir, f.Names[1])
		}
	}
	if nerr == nil {
		o.renamed(n, fromDir, f.Names[0], toDir, f.Names[1])
		err = errors.Join(err, o.changedBefore(n))
	}
	return err
}

// changedBefore notes that callers have changed a node in the process before.
func (o *Overlay) changedBefore(n *node) error {
	if n.free {
		return o.changed(n)
	}
	p := o.partBefore(n)
	if p == nil || p.ref.Load()&noteLook == 0 {
		return nil
	}
	at, h, err := p.dirStore().at(p)
	if err != nil {
		return err
	}
	defer h.release()
	return p.touched(at, isDir(n.typ), 0)
}

// subsBefore is a fact: how many subdirectories only the layers below a directory have, plus one, before the change that
// takes one away; 0 if it takes none.
func subsBefore(p location, subs int) uint64 {
	if subs == 0 {
		return 0
	}
	r, ok, err := readInodeInfo(p)
	if err != nil || !ok || r.subs == uncounted {
		return 0
	}
	return uint64(r.subs) + 1
}

// endSubs notes that callers have changed a directory, and takes the subdirectory off that subsBefore has told of, unless
// that was done.
func (o *Overlay) endSubs(p *node, before uint64) error {
	top := o.partBefore(p)
	if before == 0 || top == nil {
		return o.changedBefore(p)
	}
	at, h, err := top.dirStore().at(top)
	if err != nil {
		return err
	}
	defer h.release()
	r, ok, err := readInodeInfo(at)
	if err != nil || !ok {
		return err
	}
	subs := 0
	if uint64(r.subs)+1 == before {
		subs = -1
	}
	return top.touched(at, true, subs)
}
