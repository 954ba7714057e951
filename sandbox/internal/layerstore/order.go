package layerstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/hosttree"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// next takes the oldest layer that nothing keeps from being stored; nil if there is none.
func (s *Storer) next() *storing {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.queue) // ids grow
	queued := make(map[string]bool, len(s.queue))
	at := time.Now()
	for i, layer := range s.queue {
		if s.startsLocked(layer, queued, at) {
			s.queue = slices.Delete(s.queue, i, i+1)
			now := &storing{layer: layer, big: s.big[layer], ended: make(chan struct{})}
			if r := s.Catalog.Layer(layer); r != nil {
				now.source = r.Source
			}
			now.expected.Store(-1)
			s.now[layer] = now
			delete(s.big, layer)
			return now
		}
		queued[layer] = true
	}
	return nil
}

// startsLocked reports whether a layer may be stored beside those that are. Queued are the older ones that may not.
func (s *Storer) startsLocked(layer string, queued map[string]bool, at time.Time) bool {
	if s.now[layer] != nil || s.big[layer] && s.bigLocked() >= bigAtOnce || s.waitsLocked(layer, at) {
		return false
	}
	r := s.Catalog.Layer(layer)
	if r == nil {
		return true
	}
	return !queued[r.Parent] && s.now[r.Parent] == nil && s.placeLocked(r)
}

// placeLocked reports whether there is a place to store a layer. Imports have places of their own, and a session has one
// of them at most, so that one with many large directories keeps nobody waiting.
func (s *Storer) placeLocked(r *catalog.Layer) bool {
	imports := 0
	for _, now := range s.now {
		if now.source == nil {
			continue
		}
		imports++
		if r.Source != nil && now.source.Session == r.Source.Session {
			return false
		}
	}
	if r.Source != nil {
		return imports < importsAtOnce
	}
	return len(s.now)-imports < storeAtOnce
}

// bigLocked counts the big layers that are being stored.
func (s *Storer) bigLocked() int {
	n := 0
	for _, now := range s.now {
		if now.big {
			n++
		}
	}
	return n
}

// room reports whether a layer that was taken from the queue may be stored now. If there are too many big ones beside
// it, it puts the layer back.
func (s *Storer) room(ctx context.Context, now *storing) bool {
	s.mu.Lock()
	known := now.big
	s.mu.Unlock()
	if known || now.source != nil {
		return true
	}
	big := s.isBig(ctx, now.layer)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !big || s.bigLocked() < bigAtOnce {
		now.big = big
		return true
	}
	delete(s.now, now.layer)
	s.big[now.layer] = true
	s.queue = append(s.queue, now.layer)
	return false
}

// isBig reports whether much is to be stored of a layer. It looks at no more of the directory than it takes to tell.
func (s *Storer) isBig(ctx context.Context, layer string) bool {
	r := s.Catalog.Layer(layer)
	if r == nil || r.State != api.Sealed {
		return false
	}
	files, bytes := 0, int64(0)
	errBig := errors.New("is big")
	err := hosttree.Walk(ctx, s.Uppers.Path(r.Upper), func(st *unix.Stat_t) error {
		files++
		bytes += st.Size
		if files > smallFiles || bytes > smallBytes {
			return errBig
		}
		return nil
	})
	return err != nil // one that cannot be read may be big, too
}
