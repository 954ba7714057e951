package daemon

import (
	"context"

	"snapfs/sandbox/api/wire"
)

// enter makes a call known by its name until leave is called.
func (s *server) enter(id string, cancel context.CancelFunc) (leave func()) {
	if id == "" {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.named[id] = cancel
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.named, id)
	}
}

// interrupt cancels a call.
func (s *server) interrupt(_ context.Context, r wire.CancelRequest) (wire.CancelResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cancel, found := s.named[r.Call]
	if found {
		cancel()
	}
	return wire.CancelResult{Found: found}, nil
}
