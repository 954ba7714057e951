package mcp

import (
	"context"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"snapfs/internal/lockorder"
)

// Bounds of the sessions that clients of older protocols have.
const (
	maxOwnSessions = 16   // of one caller
	maxSessions    = 1024 // of all
)

// sessionHeader names a session.
const sessionHeader = "Mcp-Session-Id"

// sessions bounds the sessions of older protocols: a caller that has too many loses the one that it used longest ago, and
// so does the caller with the most if there are too many of all. Safe for concurrent use.
type sessions struct {
	mu   lockorder.Mutex[lockorder.MCPSessions]
	open map[string]map[string]*open // guarded by mu: by caller and id
}

// open is one session.
type open struct {
	used time.Time // guarded by sessions.mu

	ctx context.Context //nolint:containedctx // of the calls, which end with the session
	end context.CancelFunc
}

// serve serves a request of a caller, and makes room for the session that it may begin. Find gives sessions by their id.
func (s *sessions) serve(
	next http.Handler, find func(id string) *mcp.ServerSession, caller string, w http.ResponseWriter, r *http.Request,
) {
	id := r.Header.Get(sessionHeader)
	if id != "" {
		if r.Method == http.MethodDelete {
			s.drop(caller, id) // the SDK waits for the calls of a session before it ends
		} else {
			s.use(caller, id, false)
		}
		next.ServeHTTP(w, r)
		return
	}
	if r.Method == http.MethodPost {
		s.sweep(find)
		for _, old := range s.surplus(caller) {
			if session := find(old); session != nil {
				_ = session.Close() // its client is told that it is gone
			}
		}
	}
	next.ServeHTTP(&begun{ResponseWriter: w, note: func(id string) { s.use(caller, id, true) }}, r)
}

// use notes that a session is used; one that is not known only if it begins.
func (s *sessions) use(caller, id string, begins bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.open[caller]
	if o := own[id]; o != nil {
		o.used = time.Now()
	}
	if own[id] != nil || !begins {
		return // what is not known has ended, or is another caller's: the SDK says so
	}
	if own == nil {
		if s.open == nil {
			s.open = map[string]map[string]*open{}
		}
		own = map[string]*open{}
		s.open[caller] = own
	}
	ctx, end := context.WithCancel(context.Background())
	own[id] = &open{time.Now(), ctx, end}
}

// during gives the context of the calls of a session; that of an ended one for what is not known.
func (s *sessions) during(caller, id string) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.open[caller][id]; o != nil {
		return o.ctx
	}
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}

// endAll ends the calls of all sessions.
func (s *sessions) endAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for caller, own := range s.open {
		for id := range own {
			s.dropLocked(caller, id)
		}
	}
}

// drop forgets a session, and ends its calls.
func (s *sessions) drop(caller, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(caller, id)
}

func (s *sessions) dropLocked(caller, id string) {
	if o := s.open[caller][id]; o != nil {
		o.end()
	}
	delete(s.open[caller], id)
	if len(s.open[caller]) == 0 {
		delete(s.open, caller)
	}
}

// sweep forgets sessions that have ended by themselves.
func (s *sessions) sweep(find func(id string) *mcp.ServerSession) {
	type one struct{ caller, id string }
	var old []one
	s.mu.Lock()
	for caller, own := range s.open {
		for id, o := range own {
			if time.Since(o.used) > idleWait {
				old = append(old, one{caller, id})
			}
		}
	}
	s.mu.Unlock()
	for _, o := range old {
		if find(o.id) == nil {
			s.drop(o.caller, o.id)
		}
	}
}

// surplus takes out what must end before a caller begins one more session.
func (s *sessions) surplus(caller string) (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := 0
	most := caller
	for other, own := range s.open {
		if all += len(own); len(own) > len(s.open[most]) {
			most = other
		}
	}
	if len(s.open[caller]) >= maxOwnSessions {
		ids = append(ids, s.oldestLocked(caller))
	} else if all >= maxSessions {
		ids = append(ids, s.oldestLocked(most))
	}
	return ids
}

// oldestLocked takes out the session that a caller, who has one, used longest ago.
func (s *sessions) oldestLocked(caller string) (oldest string) {
	own := s.open[caller]
	for id, o := range own {
		if oldest == "" || o.used.Before(own[oldest].used) {
			oldest = id
		}
	}
	s.dropLocked(caller, oldest)
	return oldest
}

// begun notes the id of the session that an answer begins.
type begun struct {
	http.ResponseWriter

	note func(id string)
	told bool
}

// WriteHeader implements http.ResponseWriter.
func (b *begun) WriteHeader(status int) {
	b.look()
	b.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (b *begun) Write(p []byte) (int, error) {
	b.look()
	return b.ResponseWriter.Write(p)
}

func (b *begun) look() {
	if id := b.Header().Get(sessionHeader); id != "" && !b.told {
		b.told = true
		b.note(id)
	}
}

// Unwrap is for http.ResponseController.
func (b *begun) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// Flush implements http.Flusher, for those who do not ask by a ResponseController.
func (b *begun) Flush() {
	b.look()
	_ = http.NewResponseController(b.ResponseWriter).Flush() // one that cannot flush does not have to
}
