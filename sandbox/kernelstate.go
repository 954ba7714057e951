package sandbox

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"

	"snapfs/internal/lockorder"
	"snapfs/internal/statcache"
	"snapfs/layers"
)

// maxCaptured bounds the names that captureStates knows: some 50 MB of memory.
const maxCaptured = 1 << 19

// captureStates knows what the last captures of uppers have found, so that the next ones store only what has changed.
// If they become too many, those go that have more than their share, the one first that was not used for the longest time.
// The zero value is ready.
type captureStates struct {
	mu    lockorder.Mutex[lockorder.CaptureStates]
	of    map[uint64]*captureState // by upper; guarded by mu
	names int                      // of all; guarded by mu
	uses  uint64                   // guarded by mu
}

type captureState struct {
	layer string // with what was found
	state *layers.CaptureState
	names int // that state has
	used  uint64
}

// get gives what the capture of an upper that a layer has, has found; nil if it is not known.
func (s *captureStates) get(upper uint64, layer string) *layers.CaptureState {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.of[upper]
	if c == nil || c.layer != layer {
		return nil
	}
	s.uses++
	c.used = s.uses
	return c.state
}

// put takes what the newest capture of an upper has found, and how many names that are; nil is what is not to be known.
func (s *captureStates) put(upper uint64, layer string, state *layers.CaptureState, names int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(upper)
	if state == nil || names > maxCaptured {
		return
	}
	if s.of == nil {
		s.of = map[uint64]*captureState{}
	}
	s.uses++
	s.of[upper] = &captureState{layer: layer, state: state, names: names, used: s.uses}
	for s.names += names; s.names > maxCaptured; {
		oldest, least, share := upper, s.uses, maxCaptured/len(s.of)
		for u, c := range s.of {
			if c.used < least && c.names > share {
				oldest, least = u, c.used
			}
		}
		s.forgetLocked(oldest)
	}
}

// forget drops what is known of an upper.
func (s *captureStates) forget(upper uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(upper)
}

func (s *captureStates) forgetLocked(upper uint64) {
	if c := s.of[upper]; c != nil {
		s.names -= c.names
		delete(s.of, upper)
	}
}

// fewFinds is how many files a capture of what has changed reads before it looks at what was noted: that takes longer
// than to read some files.
const fewFinds = 256

// oldNotes are the notes of an upper for a capture of what has changed, which notes nothing: who captures all of it does.
type oldNotes struct {
	notes *notes
	finds atomic.Int64
	once  sync.Once
	from  *statcache.Reader
}

// older gives the notes of before an import, which stay as they are.
func (n *notes) older(dev, ino uint64) layers.Seen {
	n.key.Dev, n.key.Ino = dev, ino
	return &oldNotes{notes: n}
}

// Len implements layers.Seen.
func (o *oldNotes) Len() int { return 0 }

// Find implements layers.Seen.
func (o *oldNotes) Find(f statcache.File) ([]byte, bool) {
	if o.finds.Add(1) <= fewFinds {
		return nil, false
	}
	o.once.Do(func() {
		var err error
		if o.from, err = statcache.Open(filepath.Join(o.notes.home.dir, seenDir), o.notes.key); err != nil {
			o.notes.home.log.Warn("what an earlier snapshot noted cannot be read", "error", err)
			o.from = &statcache.Reader{}
		}
	})
	return o.from.Find(f)
}

// Note implements layers.Seen.
func (o *oldNotes) Note(statcache.File, []byte) {}

// Keep implements layers.Seen.
func (o *oldNotes) Keep(statcache.File, []byte) {}

// pinLayer keeps a layer's record while a layer is made over it; false if it is gone. The caller calls unpin.
func (h *Home) pinLayer(ctx context.Context, layer string) (unpin func(), ok bool) {
	if !h.catalog.Pin(layer) {
		return nil, false
	}
	return func() {
		gone, err := h.catalog.Unpin(context.WithoutCancel(ctx), layer)
		h.cache.Forget(gone)
		if err != nil {
			h.log.Warn("a layer that nothing names may be kept until the home is opened again", "layer", layer, "error", err)
		}
	}, true
}
