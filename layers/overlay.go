package layers

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
	"snapfs/internal/lockorder"
	"snapfs/internal/readset"
)

// Options are for New.
type Options struct {
	// InoBase is or-ed to the host's inode numbers of what is created in this upper, so that numbers are unique in a
	// home.
	InoBase uint64
	// WideIno gives what comes in place of the upper 32 bits of a host's inode number, where they are not all zero, in
	// the upper of that base: always the same, and of no other upper. nil: InoBase is or-ed all the same.
	WideIno  func(base, high uint64) (uint64, error)
	ReadOnly bool // no upper is written; Upper may be ""
	// Nested is for an overlay without an upper that is the lower of a kernel overlayfs, see nested.go.
	Nested bool
	// Whiteouts: "" probes the host; "char" or "xattr".
	Whiteouts string
	Logger    *slog.Logger // nil = discard
	// Held, if not nil, is told for how long a seal, a rollback or Restack has held changes back, once it has let them
	// go on.
	Held func(time.Duration)
	// BlockCopyUp is the size in bytes from which a lower file that is written is copied up by blocks; 0 is 1 MiB,
	// below 0 files are always copied as a whole.
	BlockCopyUp int64
	// Reads, if not nil, is told what callers read; nothing else may use it meanwhile but for listing and encoding it.
	Reads *readset.Set
	// Live, if not nil, is where the overlay notes what the kernel knows by its nodes, and where it finds what the
	// process before has noted: nodes, and files without a name, are then the same to the kernel. It must have been used
	// with the same upper, or one that the former was sealed to become a lower of, and with lowers that show the same.
	// Close leaves it as it is, and what it names on the host.
	Live *livestate.State
	// Account, if not nil, is what the workspace may take. One overlay at a time counts in it.
	Account *Account
	// Reserve, if not nil, is the room of the host that is left to others.
	Reserve *Reserve
}

// Overlay is one live workspace: an upper over lowers. All methods are safe for concurrent use; errors are
// unix.Errno (possibly wrapped) for everything a caller of the file system should see.
type Overlay struct {
	opts Options // immutable
	log  *slog.Logger
	// Immutable; nil: what callers read is not noted.
	reads *readset.Set

	// Mutations hold it for reading; Seal, Rollback and Pause for writing
	gate  barrier
	names lockorder.RWMutex[lockorder.OverlayNames] // see mutation
	tree  lockorder.RWMutex[lockorder.OverlayTree]  // see doc.go

	stack []*layer // topmost first, the upper included; guarded by tree
	upper *upper   // nil: read-only; guarded by tree
	root  *node    // immutable

	restacking lockorder.Mutex[lockorder.Restacking] // held by the one call of Restack or Rollback

	share    share // of the process's descriptors
	nodes    table
	listings listings
	ups      copyUps
	blocks   blockTable
	groups   groupTables
	lost     lostData
	caps     capabilities
	orphans  orphanTable
	detached detachedSets
	reaper   reaper
	ledger   ledger
	crowd    crowd

	requests    *livestate.Requests // set by Settle; nil: nothing is noted
	leftSettled chan struct{}       // closed when Settle is over; set by it
	leftErr     error               // what it gives; set before leftSettled is closed

	writeOuts sync.WaitGroup // those under way, see writeOut
	writing   atomic.Int64   // as many
}

// New opens an overlay. upper and work are directories on one host file system; lowers go from the topmost down.
func New(upperDir, workDir string, lowers []*Lower, opts Options) (*Overlay, error) {
	o := &Overlay{opts: opts, log: opts.Logger, reads: opts.Reads}
	if o.log == nil {
		o.log = slog.New(slog.DiscardHandler)
	}
	o.nodes.m = map[NodeID]*node{}
	for _, l := range lowers {
		o.stack = append(o.stack, &layer{lower: l.acquire(), share: &o.share})
	}
	if !opts.ReadOnly {
		u, err := openUpper(upperDir, workDir, opts, &o.share)
		if err != nil {
			_ = o.Close() // the first error counts
			return nil, err
		}
		if err := u.clean(opts.Live != nil); err != nil {
			u.release()
			_ = u.layer.lower.Close() // the first error counts
			_ = o.Close()
			return nil, err
		}
		o.upper = u
		o.stack = append([]*layer{u.layer}, o.stack...)
	} else if upperDir != "" && (len(o.stack) == 0 || inUse(upperDir)) {
		l, err := OpenSealed("", upperDir, opts.InoBase, opts.WideIno)
		if err != nil {
			_ = o.Close() // the first error counts
			return nil, err
		}
		o.stack = append([]*layer{{lower: l, share: &o.share}}, o.stack...)
	}
	if len(o.stack) == 0 {
		return nil, errors.New("a read-only overlay needs a lower")
	}
	if err := o.makeRoot(); err != nil {
		_ = o.Close() // the first error counts
		return nil, err
	}
	if o.upper != nil {
		if err := o.openUsed(); err != nil {
			_ = o.Close() // the first error counts
			return nil, fmt.Errorf("what the upper takes: %w", err)
		}
	}
	if opts.Live != nil {
		if err := o.openLive(opts.Live); err != nil {
			_ = o.Close() // the first error counts
			return nil, fmt.Errorf("take over what the kernel knows: %w", err)
		}
	}
	return o, nil
}

// makeRoot makes the root node, and gives a fresh upper the attributes of the root below it.
func (o *Overlay) makeRoot() error {
	o.root = &node{id: RootNode, ino: rootIno, typ: unix.S_IFDIR, lookups: 1}
	o.nodes.m[RootNode] = o.root
	if o.upper != nil {
		var below *part
		if len(o.stack) > 1 {
			below = rootPart(o.stack[1])
		}
		if err := o.upper.initRoot(below); err != nil {
			return fmt.Errorf("prepare the root of the upper: %w", err)
		}
	}
	parts, err := rootParts(o.stack)
	if err != nil {
		return err
	}
	o.root.top, o.root.below = parts[0], parts[1:]
	return nil
}

// rootParts merges the roots of a stack's layers down to the first opaque one.
func rootParts(stack []*layer) ([]*part, error) {
	var parts []*part
	for _, l := range stack {
		r := rootPart(l)
		parts = append(parts, r)
		xattrs, err := l.lower.be.xattrs(r)
		if err != nil {
			return nil, fmt.Errorf("root of layer %s: %w", l.lower.key, err)
		}
		for _, x := range xattrs {
			if x.Name == xattrOpaque && string(x.Value) == "y" {
				return parts, nil
			}
		}
	}
	return parts, nil
}

func rootPart(l *layer) *part {
	o := &part{layer: l, ino: rootIno}
	o.ref.Store(notes)
	return o
}

// Close releases descriptors and lowers. No call may be running.
func (o *Overlay) Close() error {
	o.writeOuts.Wait()
	mine := map[*layer]bool{}
	for _, l := range o.stack {
		mine[l] = true
	}
	descriptors.purge(func(k fdKey) bool { return mine[k.o.layer] })
	o.closeUsed()
	for _, n := range o.nodes.m {
		o.unpin(n)
	}
	o.reaper.drain()
	o.nodes.m = nil
	o.nodes.count(-int(o.nodes.own.Load()))
	o.listings.close()
	o.detached.close()
	o.orphans.close()
	if o.upper != nil {
		o.upper.release()
	}
	var err error
	for _, l := range o.stack {
		err = errors.Join(err, l.lower.Close())
	}
	o.stack = nil
	return err
}

// Forget gives back n references of a node.
func (o *Overlay) Forget(id NodeID, n uint64) {
	o.tree.RLock()
	defer o.tree.RUnlock()
	o.forget(id, n)
}

// forget is Forget with tree held.
func (o *Overlay) forget(id NodeID, n uint64) {
	o.nodes.mu.Lock()
	nd, holds := o.nodes.m[id], 0
	if nd == nil && o.nodes.takenLocked(id) {
		nd = o.nodes.live.forgetLocked(id, n)
		n, holds = 0, 1
	}
	o.nodes.mu.Unlock()
	if nd != nil && id != RootNode {
		o.discard(o.nodes.drop(nd, n, holds))
	}
}

// Forgotten is a node of which n references are given back.
type Forgotten struct {
	Node NodeID
	N    uint64
}

// forgetAtOnce is how many nodes are forgotten before others may go on: to let them costs more than to forget one.
const forgetAtOnce = 64

// ForgetAll is Forget for many nodes.
func (o *Overlay) ForgetAll(list []Forgotten) {
	for len(list) > 0 {
		some := list[:min(forgetAtOnce, len(list))]
		list = list[len(some):]
		o.tree.RLock()
		for _, f := range some {
			o.forget(f.Node, f.N)
		}
		o.tree.RUnlock()
	}
}

// discard frees what removed nodes hold.
func (o *Overlay) discard(gone []*node) {
	for _, n := range gone {
		o.countGone(n)
		o.listings.drop(n)
		var room [3]int
		fds := room[:0]
		if isDir(n.typ) || isReg(n.typ) {
			fds = descriptors.detach(n.top, fds)
			for _, p := range n.below {
				fds = descriptors.detach(p, fds)
			}
			if isReg(n.typ) && len(n.below) > 0 {
				o.dropBlocks(n)
			}
		}
		o.abandon(n, fds)
		o.detached.forget(n)
	}
}

// abandon closes the descriptors of a node that is gone, its pin included, and removes the name that it has in the orphan
// directory before, as its blocks are freed with the last of them.
func (o *Overlay) abandon(n *node, fds []int) {
	d := o.leaveOrphan(n)
	if n.pin == 0 {
		closeAll(fds)
		if d.name != "" {
			o.reaper.take(d)
		}
		return
	}
	o.share.hold(int64(len(fds)))
	for _, fd := range fds {
		o.reaper.take(reaped{fd: fd, of: &o.share})
	}
	d.fd, d.of = int(n.pin)-1, &o.share
	o.reaper.take(d)
	n.pin, n.free = 0, false
}

// closeGate closes the gate until open is called.
func (o *Overlay) closeGate() (open func()) {
	opener := o.gate.shut()
	return func() {
		if took := opener(); o.opts.Held != nil {
			o.opts.Held(took)
		}
	}
}

// errNeedUp is what a mutation returns from under the locks when a node must be copied up first.
type errNeedUp struct {
	n    *node
	data bool
}

func (e *errNeedUp) Error() string { return "copy-up needed" }

// mutateExclusive runs fn, which changes names, exclusively, with the gate and the tree held; fn checks before it
// changes, and returns errNeedUp for what must be copied up before it is run again.
func (o *Overlay) mutateExclusive(fn func() error) error {
	return o.withCopyUp(func() error {
		o.names.Lock()
		defer o.names.Unlock()
		if o.upper == nil {
			return unix.EROFS
		}
		o.upper.thaw()
		o.tree.Lock()
		defer o.tree.Unlock()
		return fn()
	})
}

// withCopyUp runs fn inside the gate until it needs no further copy-up.
func (o *Overlay) withCopyUp(fn func() error) error {
	for tries := 0; ; {
		o.gate.RLock()
		err := fn()
		o.gate.RUnlock()
		if err == nil {
			return nil
		}
		if err = o.settleErr(err, &tries); err != nil {
			return err
		}
	}
}

// settleErr does what an operation needs that has failed inside the gate: room on the host, or a file in the upper.
// nil: try it again. It is called outside the gate.
func (o *Overlay) settleErr(err error, tries *int) error {
	if o.mayFree(err, tries) {
		return nil
	}
	var name *errNeedName
	if errors.As(err, &name) {
		err = o.nameElsewhere(name.n)
		o.tree.RLock()
		o.discard(o.nodes.drop(name.n, 0, 1))
		o.tree.RUnlock()
		return err
	}
	var need *errNeedUp
	if !errors.As(err, &need) {
		return err
	}
	if err = o.copyUp(need.n, need.data); err != nil {
		err = o.reportNode(err, need.n)
	}
	o.tree.RLock()
	o.discard(o.nodes.drop(need.n, 0, 1))
	o.tree.RUnlock()
	return err
}

// needUp tells fn's runner to copy n up; it keeps n alive until then.
func (o *Overlay) needUp(n *node, data bool) error {
	o.nodes.hold(n)
	return &errNeedUp{n, data}
}

// inUpper reports whether n can be changed. tree is held.
func (o *Overlay) inUpper(n *node) bool { return n.free || n.top.layer == o.upper.layer }

// dirNode gives a directory by its id. tree is held.
func (o *Overlay) dirNode(id NodeID) (*node, error) {
	n, err := o.nodes.get(id)
	if err == nil && !isDir(n.typ) {
		return nil, unix.ENOTDIR
	}
	return n, err
}

// upperDir reports whether a directory is live and in the upper, for a change in it. tree is held.
func (o *Overlay) upperDir(n *node) error {
	if n.dead {
		return unix.ENOENT
	}
	if !o.inUpper(n) {
		return o.needUp(n, false)
	}
	return nil
}
