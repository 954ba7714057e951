package daemon

import (
	"context"

	"snapfs/sandbox/api/caller"
	"snapfs/sandbox/api/wire"
)

// callName is a call's name, which its client gave, with whose it is.
type callName struct{ asker, id string }

// call gives the name of one of the asker's calls.
func (a *asker) call(id string) callName { return callName{a.name(), id} }

// enter makes a call known by its name until leave is called.
func (s *server) enter(id callName, cancel context.CancelFunc) (leave func()) {
	if id.id == "" {
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

// interrupt cancels a call of the asker.
func (s *server) interrupt(ctx context.Context, r wire.CancelRequest) (wire.CancelResult, error) {
	id := callName{id: r.Call}
	if by := caller.From(ctx); !by.Trusted {
		id.asker = by.String()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	cancel, found := s.named[id]
	if found {
		cancel()
	}
	return wire.CancelResult{Found: found}, nil
}
