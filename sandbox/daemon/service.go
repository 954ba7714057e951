package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"snapfs/sandbox/api/caller"
	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/internal/pace"
	"snapfs/sandbox/internal/peer"
)

// Service is a handler of requests beside the calls of package wire, on the socket and at the addresses of the network.
//
// It is given requests of callers that are known, with a [caller.Caller] in their context: what a caller may do is for
// the handler to ask. The context ends when the client goes away and when the daemon ends; what streams must end then.
// Reading the body and writing the answer wait for a client as long as that keeps a pace, and then fail.
type Service struct {
	// Pattern is one of http.ServeMux, such as "/api/v1/" or "/mcp".
	Pattern string
	Handler http.Handler
	// Lane tells the kind of a request, by which it has a part of the calls; nil: all are ShortLane.
	Lane func(r *http.Request) Lane
	// Wait is how long a request waits until there is room for it in its lane, and then is refused; 0: 10 seconds.
	Wait time.Duration
	// Refuse answers a request that does not get to Handler in the service's own form of errors; nil: in that of wire. It
	// writes status and body; headers such as Retry-After are set.
	Refuse func(w http.ResponseWriter, r *http.Request, status int, e *wire.Error)
}

// Lane is a kind of call, see Service.
type Lane = lane

// Kinds of call.
const (
	ShortLane  = short  // done at once, unless something that it needs stands still
	LongLane   = lasts  // moves data, or waits for something
	FollowLane = follow // ends with its client only
)

// endWait is for how long a handler may use a connection that it has taken over once the daemon ends.
const endWait = 2 * time.Second

// serve makes the handler of a service's requests.
func (s *server) serve(v Service) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		if !x.who.trusted && !x.who.bound() {
			s.refuse(x, r, errStranger)
			return
		}
		l := ShortLane
		if v.Lane != nil {
			l = v.Lane(r)
		}
		leave, err := s.enterService(r.Context(), l, x, cmp.Or(v.Wait, placeWait))
		if err != nil {
			s.refuse(x, r, err)
			return
		}
		defer leave()
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.untilOf(l), cancel)()
		ctx = caller.With(x.who.during(ctx), x.caller)
		x.out.taker = func(c net.Conn) {
			context.AfterFunc(s.calls, func() { _ = c.SetDeadline(time.Now().Add(endWait)) })
		}
		inner := r.WithContext(ctx)
		body := &uploaded{
			ReadCloser: http.MaxBytesReader(x.out, r.Body, s.limits().Upload), ctl: http.NewResponseController(w),
			pace: newBodyPace(),
		}
		inner.Body = body
		defer func() {
			if !x.out.taken {
				body.end()
			}
			if inner.Pattern != r.Pattern && inner.Pattern != "" {
				x.route = inner.Pattern
			}
			if p := recover(); p != nil {
				s.panicked(x, r, p)
			}
		}()
		v.Handler.ServeHTTP(w, inner)
	}
}

// enterService counts a service's request until leave is called, and waits for room.
func (s *server) enterService(ctx context.Context, l lane, x *exchange, most time.Duration) (leave func(), err error) {
	if !s.begin() {
		return nil, s.again(errStopping)
	}
	left, err := s.waitLane(ctx, l, x.session, x.who.bound(), x.route, most)
	if err != nil {
		s.running.Done()
		return nil, err
	}
	return func() { left(); s.running.Done() }, nil
}

// panicked answers a request whose handler has failed by a fault of its own.
func (s *server) panicked(x *exchange, r *http.Request, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p)
	}
	s.log.ErrorContext(r.Context(), "a handler panicked", "request", x.id, "route", x.route, "panic", p, "stack", string(debug.Stack()))
	s.refuse(x, r, fmt.Errorf("request %s failed by a fault of the daemon; its log says where", x.id))
}

// uploaded is the body of a request: the client has bodyWait for each bodyBytes.
type uploaded struct {
	io.ReadCloser
	ctl   *http.ResponseController
	pace  pace.Pace
	whole bool // it was read to its end
}

// Read implements io.Reader.
func (u *uploaded) Read(p []byte) (int, error) {
	n, err := u.pace.Wait(func() (int, error) {
		_ = u.ctl.SetReadDeadline(u.pace.Deadline()) // only a writer that is not the server's has none
		return u.ReadCloser.Read(p)
	})
	if errors.Is(err, io.EOF) {
		u.whole = true
		_ = u.ctl.SetReadDeadline(time.Time{}) // from now on the server looks whether the client goes away
	}
	return n, err
}

// end gives the client bodyWait for the rest of a body that was not read, which the server throws away.
func (u *uploaded) end() {
	if !u.whole {
		_ = u.ctl.SetReadDeadline(time.Now().Add(bodyWait))
	}
}

// callerOf is who makes a request, as handlers are told.
func (s *server) callerOf(x *exchange) *caller.Caller {
	c := x.who.caller()
	c.Session, c.RequestID = x.session, x.id
	if !c.Trusted {
		c.Refused = func(call string, err error) {
			x.audited.Store(true)
			s.note(x, call, http.StatusForbidden, err)
		}
	}
	return c
}

// caller is the asker as handlers see it, of no request.
func (a *asker) caller() *caller.Caller {
	c := &caller.Caller{Trusted: a.trusted, Sessions: a.sessions, Remote: a.from()}
	if a.token != nil {
		c.Token, c.Scopes = a.token.ID, a.token.Scopes
	}
	return c
}

// during gives the context in which a call is made.
func (a *asker) during(ctx context.Context) context.Context {
	if a.trusted || a.user == nil {
		return ctx
	}
	return peer.With(ctx, a.user)
}
