package layers

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
	"snapfs/squashfs"
)

// blockTable has the block maps of nodes that are in use.
type blockTable struct {
	mu lockorder.Mutex[lockorder.BlockTable]
	m  map[*part]*blockMap // nil for a file of which a layer has no blocks at all; guarded by mu
}

// drop forgets the maps of parts that nobody refers to, or that are partial no more.
func (t *blockTable) drop(parts ...*part) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range parts {
		delete(t.m, p)
	}
}

// has reports whether the map of a part is known.
func (t *blockTable) has(part *part) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.m[part] != nil
}

// blocksOf gives the map of a directory layer's part in a file, nil if it has no block. Those of n's parts are kept
// until n goes; n is nil for a part that no node has. tree is held.
func (o *Overlay) blocksOf(part *part, n *node) (*blockMap, error) {
	if part.dirStore() == nil && !n.pinned(part) {
		return nil, nil
	}
	if n == nil {
		return o.loadBlocks(part, nil)
	}
	o.blocks.mu.Lock()
	defer o.blocks.mu.Unlock()
	if m, ok := o.blocks.m[part]; ok {
		return m, nil
	}
	m, err := o.loadBlocks(part, n)
	if err == nil {
		o.blocks.putLocked(part, m)
	}
	return m, err
}

func (t *blockTable) put(part *part, m *blockMap) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.putLocked(part, m)
}

func (t *blockTable) putLocked(p *part, m *blockMap) {
	if t.m == nil {
		t.m = map[*part]*blockMap{}
	}
	t.m[p] = m
}

// loadBlocks reads a map from the host.
func (o *Overlay) loadBlocks(part *part, n *node) (*blockMap, error) {
	p, side := location{}, ""
	if n.pinned(part) {
		p, side = location{dirfd: int(n.pin) - 1}, o.sideOf(part)
	} else {
		s := part.dirStore()
		at, h, err := s.at(part)
		if err != nil {
			return nil, err
		}
		defer h.release()
		p, side = at, s.side
	}
	v, err := p.getxattr(xattrBlocks)
	if errors.Is(err, unix.ENODATA) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseBlockMap(v, side)
}

// pinned reports whether part, one of n's, is reached by its descriptor. n may be nil.
func (n *node) pinned(part *part) bool { return n != nil && n.pin > 0 && part == n.top }

// sideOf is where the side file of a part belongs that is in the upper, or has no name.
func (o *Overlay) sideOf(part *part) string {
	if s := part.dirStore(); s != nil {
		return s.side
	}
	return o.upper.store.side
}

// openParts opens the contents that the parts of a file, topmost first, make up: those of the first that has data, with
// what is below showing where that has only some blocks. tree is held.
func (o *Overlay) openParts(parts []*part, n *node) (content, error) {
	part, rest := parts[0], parts[1:]
	s := part.dirStore()
	host := s != nil || n.pinned(part)
	if len(rest) == 0 {
		return o.openPart(part, n)
	}
	if !host {
		// The image that a sealed directory has become: it has all data of what was partial.
		bare, err := part.imageStore().isMetacopy(part)
		if err != nil || !bare {
			return o.openPart(part, n)
		}
		return o.openParts(rest, n)
	}
	m, err := o.blocksOf(part, n)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return o.openParts(rest, n)
	}
	below, err := o.openParts(rest, n)
	if err != nil {
		return nil, err
	}
	own, err := o.openPart(part, n)
	if err == nil {
		f := &patched{own: own.(hostFile), m: m, below: below}
		if err = o.settle(f, part, n, s); err == nil {
			return f, nil
		}
		_ = own.Close() // read only
	}
	_ = below.Close() // read only
	return nil, err
}

// openPart opens what one layer has of a file.
func (o *Overlay) openPart(part *part, n *node) (content, error) {
	if n.pinned(part) {
		d, err := o.openFile(n, fdRead)
		if err != nil {
			return nil, err
		}
		return hostFile{d}, nil
	}
	return part.backend().open(part)
}

// patched is the contents of a partial file.
type patched struct {
	own   hostFile
	m     *blockMap
	below content
}

func (f *patched) Close() error {
	_ = f.own.Close() // read only
	return f.below.Close()
}

// run is blockMap.run, for one that holds no lock. What is below never changes, and what is own stays own.
func (f *patched) run(off, most int64) (own bool, n int64) {
	f.m.mu.RLock()
	defer f.m.mu.RUnlock()
	return f.m.run(off, most)
}

func (f *patched) ReadAt(p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) {
		own, n := f.run(off+int64(done), int64(len(p)-done))
		var from io.ReaderAt = f.below
		if own {
			from = f.own
		}
		k, err := from.ReadAt(p[done:done+int(n)], off+int64(done))
		done += k
		if int64(k) < n {
			if err == nil {
				err = io.EOF
			}
			return done, err
		}
	}
	return done, nil
}

// CopyTo implements squashfs.Copier for what is below.
func (f *patched) CopyTo(to squashfs.Sink, off, n int64) (int64, bool, error) {
	own, n := f.run(off, n)
	if below, ok := f.below.(squashfs.Copier); ok && !own {
		return below.CopyTo(to, off, n)
	}
	return n, false, nil
}

// Extents lists where data is: the host's extents of own blocks, and those below elsewhere.
func (f *patched) Extents() ([]squashfs.Extent, error) {
	f.m.mu.RLock()
	defer f.m.mu.RUnlock()
	size, err := fileSize(f.own.d.fd)
	if err != nil {
		return nil, err
	}
	own, err := f.own.Extents()
	if err != nil {
		return nil, err
	}
	below, err := f.below.Extents()
	if err != nil {
		return nil, err
	}
	var out []squashfs.Extent
	for off := int64(0); off < size; {
		mine, n := f.m.run(off, size-off)
		if mine {
			out, own = clip(out, own, off, off+n)
		} else {
			out, below = clip(out, below, off, off+n)
		}
		off += n
	}
	return out, nil
}

// clip appends to out what of the extents lies in a range, and gives back those that reach beyond or follow it.
func clip(out, extents []squashfs.Extent, from, to int64) (joined, rest []squashfs.Extent) {
	for len(extents) > 0 {
		x := extents[0]
		if x.Off >= to {
			break
		}
		if lo, hi := max(x.Off, from), min(x.Off+x.Len, to); lo < hi {
			if k := len(out); k > 0 && out[k-1].Off+out[k-1].Len == lo {
				out[k-1].Len += hi - lo
			} else {
				out = append(out, squashfs.Extent{Off: lo, Len: hi - lo})
			}
		}
		if x.Off+x.Len > to {
			break
		}
		extents = extents[1:]
	}
	return out, extents
}

func fileSize(fd int) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	return st.Size, nil
}
