package sandbox

import (
	"encoding/json"
	"errors"
	"os"
	"strings"

	"snapfs/internal/livestate"
	"snapfs/sandbox/internal/catalog"
)

// With a Keeper, a connection outlives the process that serves it: the Keeper has its device, the live state, which
// packages fs and layers write, and a keptMount. What is durable of a workspace is in the catalog, which is the truth
// where both know something: whether and where it is mounted, how, whether it is paused, what its tree is.
//
// Killed at any moment, the successor finds one of these:
//
//	mount    intent recorded ─▶ mounted ─▶ kept ─▶ device recorded
//	         Not kept: the connection died with the process, and its mount is taken away, as without a Keeper. Kept: the
//	         connection is adopted, by the name of the workspace until the record has the device, then by that.
//	unmount  ended ─▶ forgotten ─▶ recorded
//	         What is kept has ended: it is forgotten, and what the record says is mounted again or given up.
//	seal     recorded ─▶ swapped ─▶ kept with the new upper
//	         The tree is the same before and after the swap, and so are its nodes. What has no name any more package
//	         layers finds in either work directory.
//	move     kept as moving ─▶ recorded ─▶ swapped ─▶ the kernel told ─▶ kept with the new upper
//	         A rollback, or what works like one. What is kept as moving may show either tree, and the kernel names of
//	         both: the connection is not adopted but ended, and the workspace, whose record has one tree, mounted again.
//	rename   recorded: the device in the record is what the connection is known by, and the mount tables' name of it.
//
// A pause is recorded while the gate is closed, and a successor closes the gate of a paused workspace before the first
// request comes.

// keptMount is what is kept of a connection beside its device and state. JSON.
type keptMount struct {
	Home      string `json:"home"` // id of the home
	Workspace string `json:"workspace"`
	Device    string `json:"device"` // major:minor
	Upper     uint64 `json:"upper"`
	Frozen    bool   `json:"frozen,omitempty"` // the overlay takes no changes
	Moving    bool   `json:"moving,omitempty"` // see above
}

// keptPrefix begins the names of mounts in a Keeper.
const keptPrefix = "mount/"

// keptName is the name of a connection in a Keeper, by its device.
func keptName(device string) string { return keptPrefix + strings.ReplaceAll(device, ":", "-") }

// newState makes the state of a connection that is to outlive this process; nil if it is not to.
func (h *Home) newState(workspace string) (*livestate.State, error) {
	if !h.outlive {
		return nil, nil
	}
	return livestate.Create(workspace)
}

// keepable reports whether another process can go on with a connection. Over io_uring it cannot.
func (l *live) keepable() bool { return l.memory != nil && l.mount.Transport() != "uring" }

// isKept reports whether a process that follows can go on with a connection as it is now. An overlay of the kernel is
// kept with what it stands on.
func (h *Home) isKept(l *live) bool {
	if l.kernel() != nil {
		w := h.named(l.names.Load())
		if w == nil || w.Kernel == nil || w.Kernel.View == "" {
			return w != nil && w.Kernel != nil
		}
		below := h.liveOf(w.Kernel.View)
		return below != nil && h.isKept(below)
	}
	return l.keepable() && l.known.Load() && !l.moving.Load()
}

// keep has the Keeper know a connection as it is now. One that cannot be kept ends with this process. The caller holds
// the lock of the workspace, or nothing else knows the connection yet.
func (h *Home) keep(l *live) {
	if !l.keepable() {
		return
	}
	data, err := json.Marshal(keptMount{
		Home: h.id, Workspace: l.workspace(), Device: l.device, Upper: l.upper.Load(), Frozen: l.frozen,
		Moving: l.moving.Load(),
	})
	if err == nil {
		err = h.keeper.Keep(keptName(l.device), data, l.mount.DeviceFile(), l.memory.File())
	}
	l.known.Store(err == nil)
	if err != nil {
		h.log.Warn("a mount will not outlive this process", "workspace", l.workspace(), "error", err)
	}
}

// beginMove has the Keeper know that the tree of a connection is about to be moved; l may be nil.
func (h *Home) beginMove(l *live) {
	if l != nil && !l.moving.Swap(true) {
		h.keep(l)
	}
}

// endMove has the Keeper know on which upper the overlay of a connection stands, and whether the kernel has to be told
// yet what has moved. l may be nil.
func (h *Home) endMove(l *live, upper uint64, told bool) {
	if l != nil {
		l.upper.Store(upper)
		l.moving.Store(!told)
		h.keep(l)
		if told {
			l.tellMoved()
		}
	}
}

// forget has the Keeper forget a connection that has ended.
func (h *Home) forget(l *live) {
	if !l.keepable() {
		return
	}
	if err := h.keeper.Forget(keptName(l.device)); err != nil {
		h.log.Warn("a mount that has ended is still kept", "workspace", l.workspace(), "error", err)
	}
}

// kept is a connection of an earlier process that was recognised.
type kept struct {
	keptMount
	name      string // in the Keeper
	workspace *catalog.Workspace
	device    *os.File
	state     *livestate.State
}

// close gives up what is left of a connection.
func (k *kept) close() error {
	var err error
	if k.device != nil {
		err = k.device.Close()
	}
	if k.state != nil {
		err = errors.Join(err, k.state.Close())
	}
	return err
}
