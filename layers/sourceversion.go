package layers

// Notes in part.ref of what lies in a source layer.
const (
	noteSource  = 1 << 60   // noteVersion counts
	noteFleet   = 1 << 59   // it is a regular file that was not fixed when it was looked up
	noteVersion = 1<<32 - 1 // of the regular file, when it was looked up
	sourceNotes = noteDir | noteSource
)

// fleeting reports whether o is a file that others may change. Overlay.tree is held.
func (o *part) fleeting() bool {
	const mark = sourceNotes | noteFleet
	return o.ref.Load()&mark == mark && o.layer.lower.source != nil
}

// settleVersions finds the files of a layer of which the kernel knows another version than the image has. What it reads of
// them before it looks them up again is an error. Overlay.tree is held for writing.
func (t *table) settleVersions(l *layer, s *sourceStore) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.m {
		if n.top.layer == l && isReg(n.typ) && !s.stored(n.top) {
			n.stale = true
		}
	}
}

// isStale reports whether the kernel must look a file up again before it reads it.
func (t *table) isStale(n *node) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return n.stale
}

// stored reports whether the version of a file that was told is the one that the image has.
func (s *sourceStore) stored(o *part) bool {
	ref := o.ref.Load()
	if ref&sourceNotes != sourceNotes {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.fixed[o.ino]; x != nil {
		return x.current(o) == nil
	}
	return uint32(ref&noteVersion) == s.storedLocked(o.ino).version
}
