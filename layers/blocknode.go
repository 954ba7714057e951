package layers

import (
	"errors"

	"golang.org/x/sys/unix"
)

// mapsOf gives the block maps of a file that is in part below. tree is held.
func (o *Overlay) mapsOf(n *node) ([]*blockMap, error) {
	var maps []*blockMap
	for _, part := range n.parts() {
		m, err := o.blocksOf(part, n)
		if err != nil {
			return nil, err
		}
		if m != nil {
			maps = append(maps, m)
		}
	}
	return maps, nil
}

// sync makes a side file durable.
func (m *blockMap) sync() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.side == 0 {
		return nil
	}
	fd, err := m.openSide(unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) {
		return nil // see save
	}
	if err != nil {
		return err
	}
	err = unix.Fsync(fd)
	_ = unix.Close(fd) // read only
	return err
}

// hostBlocks is the st_blocks of a file that is in part below: what it takes in the layer that has its data, but for
// the blocks that are its own. tree is held.
func (o *Overlay) hostBlocks(n *node, a Attr) uint64 {
	parts, err := o.dataParts(n.parts(), n)
	if err != nil || len(parts) == 1 && parts[0] == n.top {
		return a.Blocks
	}
	data := parts[len(parts)-1]
	d, err := data.backend().stat(data)
	if err != nil {
		return a.Blocks
	}
	m, err := o.blocksOf(n.top, n)
	if err != nil || m == nil {
		return d.Blocks
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := (m.limit + 1<<m.shift - 1) >> m.shift
	return min(a.Blocks+d.Blocks*uint64(max(all-m.owned, 0))/uint64(max(all, 1)), (a.Size+4095)/4096*8)
}

// dropBlocks forgets the maps of a node that goes, and removes the side file of a file that is gone.
func (o *Overlay) dropBlocks(n *node) {
	if o.orphans.has(n) {
		o.removeSide(n)
	} else if n.dead && n.pin > 0 {
		if a, err := (location{dirfd: int(n.pin) - 1}).stat(); err == nil && (a.Nlink == 0 || n.kept != 0) {
			o.removeSide(n)
		}
	}
	o.blocks.drop(n.parts()...)
}

// removeSide removes the side file of a file in the upper.
func (o *Overlay) removeSide(n *node) {
	o.blocks.mu.Lock()
	m := o.blocks.m[n.top]
	o.blocks.mu.Unlock()
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.side != 0 {
		_ = unix.Unlink(m.sidePath()) // nothing names it any more; it goes with the layer at the latest
	}
}

// adoptBlocks writes the map of a file without a name anew for the upper that it is going to be linked into. tree is
// held for writing.
func (o *Overlay) adoptBlocks(n *node, top *part) error {
	if !isReg(n.typ) || len(n.below) == 0 {
		return nil
	}
	m, err := o.blocksOf(n.top, n)
	if err != nil {
		return err
	}
	o.blocks.drop(n.top)
	o.blocks.mu.Lock()
	o.blocks.putLocked(top, m)
	o.blocks.mu.Unlock()
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.side != 0 {
		_ = unix.Unlink(m.sidePath()) // as in removeSide
	}
	m.side, m.dir = 0, o.upper.store.side
	return m.put(location{dirfd: int(n.pin) - 1})
}

// dataParts gives those of a file's parts, topmost first, that have data of it; n is the node that has the parts, or
// nil. tree is held, or nobody else uses the overlay.
func (o *Overlay) dataParts(parts []*part, n *node) ([]*part, error) {
	var out []*part
	for i, part := range parts {
		if i == len(parts)-1 {
			return append(out, part), nil
		}
		if s := part.imageStore(); s != nil && !n.pinned(part) {
			bare, err := s.isMetacopy(part)
			if err != nil {
				return nil, err
			}
			if !bare {
				return append(out, part), nil
			}
			continue
		}
		m, err := o.blocksOf(part, n)
		if err != nil {
			return nil, err
		}
		if m != nil {
			out = append(out, part)
		}
	}
	return out, nil
}
