package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/caller"
	"snapfs/sandbox/api/wire"
)

// SessionHeader chooses the session of a request to a Service, for callers that may use several.
const SessionHeader = "Snapfs-Session"

// exchange is a request and its answer. One goroutine at a time uses it, but for audited.
type exchange struct {
	id      string
	who     *asker
	out     *answer
	session string         // for which a service is asked
	caller  *caller.Caller // as handlers see who asks
	route   string         // what is asked for: one of the patterns of the server, "" for none
	refuse  func(w http.ResponseWriter, r *http.Request, status int, e *wire.Error)
	audited atomic.Bool
}

// exchangeKey is the context key of an exchange.
type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange {
	x, _ := r.Context().Value(exchangeKey{}).(*exchange)
	return x
}

// front is what each request passes first: it gets an id, and is refused if it comes from the page of a browser, from
// nobody who is known, or from somebody who asks too much. next answers what is left.
func (s *server) front(next *http.ServeMux) http.Handler {
	services := map[string]Service{}
	for _, v := range s.Services {
		services[v.Pattern] = v
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{id: requestID(r), who: connected(r), out: newAnswer(w)}
		begun := time.Now()
		s.metrics.begin()
		defer func() { s.metrics.end(x.route, x.out.status, time.Since(begun)) }()
		h := w.Header()
		h.Set(RequestIDHeader, x.id)
		if x.who.network {
			h.Set("X-Content-Type-Options", "nosniff")
			h.Set("Cache-Control", "no-store")
		}
		if s.socket.crowded() && !x.who.network {
			h.Set("Connection", "close")
		}
		ctx := context.WithValue(r.Context(), exchangeKey{}, x)
		r = r.WithContext(ctx)
		if s.healthy(x, r) {
			return
		}
		_, pattern := next.Handler(r)
		if x.who.only != nil && !slices.Contains(x.who.only, pattern) {
			pattern = "/"
		}
		x.route = pattern
		if pattern == "/" {
			x.route = ""
		}
		if v, ok := services[pattern]; ok {
			x.refuse = v.Refuse
		}
		leave, err := s.admitted(x, r)
		if err != nil {
			s.refuse(x, r, err)
			return
		}
		defer leave()
		x.caller = s.callerOf(x)
		s.log.DebugContext(ctx, "request", "request", x.id, "method", r.Method, "route", x.route, "caller", x.caller.String())
		if pattern == "/" { // the mux answers what it has no pattern for, or only one of another method
			s.unknown(x, r)
			return
		}
		next.ServeHTTP(x.out, r)
		if status := x.out.status; status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusTooManyRequests {
			s.audit(x, x.route, status, fmt.Errorf("answered with status %d", status))
		}
	})
}

// connected is what was found out about the other end of a request's connection.
func connected(r *http.Request) *asker {
	if who, ok := r.Context().Value(askerKey{}).(*asker); ok {
		return who
	}
	return &asker{}
}

// asks is who makes a request.
func asks(r *http.Request) *asker { return exchangeOf(r).who }

// admitted decides whether a request may get to its handler, and counts it until leave is called.
func (s *server) admitted(x *exchange, r *http.Request) (leave func(), err error) {
	leave = func() {}
	if x.who.network {
		if err := s.sameSite(r); err != nil {
			return nil, err
		}
		if x.who, err = s.authenticate(r, x.who); err != nil {
			return nil, err
		}
		if leave, err = s.meters.enter(x.who.token.Session, s.limits()); err != nil {
			return nil, err
		}
	}
	if x.session, err = x.who.sessionFor(r.Header.Get(SessionHeader)); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// sessionFor is the session of a request to a service that asks for one, or for none in particular.
func (a *asker) sessionFor(asked string) (string, error) {
	switch {
	case !a.trusted && !a.bound():
		return "", nil // it is refused by the handler
	case a.trusted:
		return api.Access{Session: asked}.SessionID()
	}
	access := api.Access{Session: asked}
	err := a.caller().Bind(&access)
	return access.Session, err
}

// unknown answers a request for which there is no handler.
func (s *server) unknown(x *exchange, r *http.Request) {
	hurry(x.out)
	others := []string{http.MethodPost, http.MethodGet}
	if x.who.only != nil { // what there is elsewhere is not told
		others = nil
	}
	for _, method := range others {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := s.mux.Handler(other); pattern != "/" {
			x.out.Header().Set("Allow", method)
			x.out.refuse(http.StatusMethodNotAllowed, x.wireError(fmt.Errorf("%w: method %s", sandbox.ErrInvalid, api.Quoted(r.Method))))
			return
		}
	}
	x.out.refuse(http.StatusNotFound, x.wireError(fmt.Errorf("%w: there is nothing at this path", sandbox.ErrNotFound)))
}

// refuse answers a request with an error in the form of what it asked for, and has that audited.
func (s *server) refuse(x *exchange, r *http.Request, err error) {
	status := statusOf(x.out.Header(), err)
	if errors.As(err, new(noTokenError)) {
		status = http.StatusUnauthorized
		x.out.Header().Set("WWW-Authenticate", `Bearer realm="snapfs"`)
	}
	if status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusTooManyRequests {
		s.audit(x, x.route, status, err)
	}
	if x.out.status != 0 || x.out.taken {
		return
	}
	hurry(x.out) // the server reads what is left of the body before it answers
	if x.refuse != nil {
		x.refuse(x.out, r, status, x.wireError(err))
		return
	}
	x.out.refuse(status, x.wireError(err))
}

// stream begins the lines of the answer to a call. From the network an error that begins one has its own status; on the
// socket each call has status 200, as clients of earlier versions expect.
func (x *exchange) stream() *stream {
	out := newStream(x.out)
	if x.who.network {
		out.begin = func(err error) {
			x.out.Header().Set("Content-Type", "application/json")
			x.out.WriteHeader(statusOf(x.out.Header(), err))
		}
	}
	return out
}

// fail sends the error of a call.
func (s *stream) fail(x *exchange, err error) {
	e := wire.NewError(err)
	if x.who.network {
		e.Request = x.id
	}
	_ = s.send(wire.Frame{Error: e}) // the client is gone
}

// wireError is the form in which an error of the request travels.
func (x *exchange) wireError(err error) *wire.Error {
	e := wire.NewError(err)
	e.Request = x.id
	return e
}

// audit notes that a request was refused, once.
func (s *server) audit(x *exchange, call string, status int, err error) {
	if x.who.trusted || x.audited.Swap(true) {
		return
	}
	s.note(x, call, status, err)
}

// note is audit for what may come several times in a request. Safe for concurrent use.
func (s *server) note(x *exchange, call string, status int, err error) {
	if call == "" {
		call = "an unknown path"
	}
	r := sandbox.Refusal{Call: call, Remote: x.who.from(), Request: x.id, Why: whyRefused(err)}
	if x.who.bound() {
		r.Session = x.who.sessions[0]
	}
	if t := x.who.token; t != nil {
		r.Token = t.ID
	}
	s.metrics.refuse(status)
	s.auditor.note(status, r)
}

// whyRefused is the reason that an event gives, which the one who was refused may read: of what belongs to another session
// nothing but that there is nothing of that name.
func whyRefused(err error) string {
	if hidden := caller.Hidden(err); hidden != nil {
		return api.ClassOf(hidden).Meaning
	}
	return err.Error()
}

// limits are those of tokens as they are now.
func (s *server) limits() Limits {
	if s.Limits == nil {
		return Limits{}.orDefaults()
	}
	return s.Limits().orDefaults()
}
