package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"snapfs/internal/lockorder"
	"snapfs/sandbox"
	"snapfs/sandbox/api/caller"
	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/internal/places"
)

// headerWait is how long a client may take to send the header of a request.
var headerWait = 10 * time.Second

const (
	// maxHeader bounds the header of a request, in bytes: connections that have no share of the calls yet hold one each.
	maxHeader = 16 << 10
	// drainWait is how long calls may take to notice that they are cancelled.
	drainWait = 10 * time.Second
)

// Options say what Serve serves, and how.
type Options struct {
	Dir     string // of the home
	Home    *sandbox.Home
	Version string // of the program, as clients see it in Info
	Log     string // where its log goes, as of Info
	Access  Access // who may ask besides root and this process's user

	// Network are the addresses of the network at which it serves, too, for who has a token; nil: none. Serve closes it.
	Network *Network
	// Services answer requests that are no calls of package wire.
	Services []Service
	// Socket serves some of these services, too; nil: there is none. Serve closes it.
	Socket *ServiceSocket
	// Limits gives what a token may ask; it is called for each request. nil = the defaults.
	Limits func() Limits
	// Logger is told of requests that are refused or fail; nil: nobody is.
	Logger *slog.Logger

	// Listener is the socket, if it is there already. nil = Serve makes it.
	Listener net.Listener
	// Kept leaves the path of Listener where it is when the server ends: a service manager has made it.
	Kept bool
	// Reload is called for a client that asks the daemon to read its settings again. nil = that is refused.
	Reload func() error
	// Stopping is called once, before the server begins to end. nil = nothing is called.
	Stopping func()
	// Holder is the process that keeps what a successor takes over, as clients see it in Info; nil: there is none.
	Holder func() int
	// Replace is called in the place of Stopping if a program is to go on as the daemon once Serve has returned. The socket
	// is a copy of the listener, which Serve closes: those who connect meanwhile wait in it. nil = that is refused.
	Replace func(program string, socket *os.File)
	// Leave is called in the place of Stopping if the process goes on as the daemon that has asked for it. It has the socket
	// from somewhere else. nil = that is refused.
	Leave func(successor int)
	// MayLeave gives the reason why no other process may take the place of this one, nil if one may; needed for Leave.
	MayLeave func() error
}

// server is one run of Serve.
type server struct {
	Options

	home    *sandbox.Home
	log     *slog.Logger
	mux     *http.ServeMux
	meters  *meters
	auditor *auditor
	metrics *httpMetrics

	calls  context.Context // ends when the server stops: cancels what runs, but for short calls
	stop   context.CancelFunc
	shorts context.Context // ends then or somewhat later: cancels short calls
	shares *shares
	large  *places.Places // of requests whose bodies are large
	socket *limited
	silent sync.Map // connections to Socket on which nothing was asked yet

	closed   chan struct{} // closed when the home is
	closeErr error         // of the home; set before closed is closed

	mu        lockorder.Mutex[lockorder.DaemonServer]
	stopping  bool                            // guarded by mu
	settling  bool                            // guarded by mu: another program is about to take the daemon's place
	program   string                          // guarded by mu: to go on as the daemon, "" for none
	successor int                             // guarded by mu: process that goes on as the daemon, 0 for none
	named     map[callName]context.CancelFunc // guarded by mu: calls that run, by the name that their client gave
	under     map[*underway]bool              // guarded by mu: calls that run, but those that are in no lane
	refused   [lanes]bool                     // guarded by mu: new calls are to be made again
	fewer     chan struct{}                   // of capacity 1: a call in under has ended
	running   sync.WaitGroup                  // calls but stop; Add only under mu while not stopping
}

// Serve serves a home's API on its socket until ctx ends or a client asks it to stop. Then it refuses new calls, cancels
// those that run, and closes the home: everything is unmounted and background storing is parked.
func Serve(ctx context.Context, o Options) error {
	home, socket := o.Home, o.Listener
	var err error
	if socket == nil {
		var made *net.UnixListener
		if made, err = Listen(o.Dir, o.Access); err == nil {
			socket = made
		}
	} else {
		err = o.Access.openMade(o.Dir)
	}
	if err != nil {
		return errors.Join(err, o.Network.Close(), o.Socket.Close(), home.Close())
	}
	l := limit(socket, 2*callLimit(), o.Access.who)
	s := &server{
		Options: o, home: home, socket: l, closed: make(chan struct{}),
		shares: newShares(callLimit()), large: places.New(largeBodies()),
		named: map[callName]context.CancelFunc{}, under: map[*underway]bool{}, fewer: make(chan struct{}, 1),
		log: o.Logger, meters: newMeters(),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.auditor = newAuditor(home, s.log)
	var forget func()
	if s.metrics, forget, err = newHTTPMetrics(home.Metrics()); err != nil {
		return errors.Join(err, o.Network.Close(), o.Socket.Close(), l.Close(), home.Close())
	}
	defer forget()
	s.calls, s.stop = context.WithCancel(ctx)
	defer s.stop()
	var stopShorts context.CancelFunc
	s.shorts, stopShorts = context.WithCancel(context.WithoutCancel(ctx))
	defer stopShorts()
	var auditing sync.WaitGroup
	auditing.Go(func() { s.auditor.run(s.calls) }) // the home is closed after that
	srv := &http.Server{
		Handler:           s.front(s.routes()),
		ReadHeaderTimeout: headerWait,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		MaxHeaderBytes:    maxHeader,
		IdleTimeout:       wire.IdleWait,
		ConnState:         s.noteSilent,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if v := visitOf(c); v != nil {
				return context.WithValue(ctx, askerKey{}, &asker{network: true, remote: v.from})
			}
			who := askerOf(c)
			who.pid = processOf(c)
			return sandbox.WithProcess(context.WithValue(ctx, askerKey{}, who), who.pid)
		},
	}
	listeners := append(o.Network.accepting(2*callLimit()), l)
	if o.Socket != nil {
		listeners = append(listeners, limit(o.Socket.listener, callLimit(), o.Socket.who(o.Access)))
	}
	served := make(chan error, len(listeners)+1)
	for _, l := range listeners {
		go func() { served <- srv.Serve(l) }() // ends with the listener, awaited below
	}
	select {
	case <-s.calls.Done():
	case err = <-served:
		s.stop()
		served <- nil
	}
	replaced, e := s.end(socket)
	closeSocket := o.Socket.Close
	if replaced {
		closeSocket = o.Socket.leave
	}
	err = errors.Join(err, e, o.Network.Close(), closeSocket()) // who connects meets the next daemon, or nobody
	// The socket goes first, so that a client that comes now meets the next daemon: it starts one, or waits in the socket
	// until there is one.
	if replaced || o.Kept {
		_ = l.Close() // what Serve says of that is dropped below
	} else if e := os.Remove(filepath.Join(o.Dir, sandbox.SocketName)); e != nil && !errors.Is(e, os.ErrNotExist) {
		err = errors.Join(err, e)
	}
	s.finishShorts()
	stopShorts()
	drained := s.drain()
	auditing.Wait()
	s.closeErr = errors.Join(drained, home.Close())
	close(s.closed) // those who asked to stop get their answer now

	s.closeSilent()
	grace, cancel := context.WithTimeout(context.Background(), drainWait)
	defer cancel()
	if e := srv.Shutdown(grace); e != nil {
		err = errors.Join(err, srv.Close())
	}
	for range listeners {
		if e := <-served; e != nil && !errors.Is(e, http.ErrServerClosed) && !errors.Is(e, net.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	return errors.Join(err, s.closeErr)
}

// end refuses calls from now on, and tells whoever is to know how the server ends. It reports whether a program goes on as
// the daemon.
func (s *server) end(socket net.Listener) (replaced bool, err error) {
	s.mu.Lock()
	s.stopping = true
	program, successor := s.program, s.successor
	s.mu.Unlock()
	if successor > 0 {
		s.Leave(successor)
		return true, nil
	}
	if program != "" {
		u, ok := socket.(*net.UnixListener)
		if !ok {
			return false, fmt.Errorf("the socket is a %T", socket)
		}
		f, err := u.File()
		if err != nil {
			return false, err
		}
		s.Replace(program, f)
		return true, nil
	}
	if s.Stopping != nil {
		s.Stopping()
	}
	return false, nil
}

// drain waits for the calls that were cancelled.
func (s *server) drain() error {
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }() // ends with the last call; home.Close waits for those too
	select {
	case <-done:
		return nil
	case <-time.After(drainWait):
		return wire.Unavailable("calls did not end %s after they were cancelled", drainWait)
	}
}

// askerKey is the context key of the asker at a connection's other end.
type askerKey struct{}

// begin enters a call.
func (s *server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	s.running.Add(1)
	return true
}

// handle makes a call's handler of a function that takes the decoded request.
func handle[Req, Res any](s *server, fn func(ctx context.Context, r Req, out *stream) (Res, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		out, who := x.stream(), x.who
		result, err := func() (res Res, err error) {
			if !who.trusted && !who.bound() {
				return res, errStranger
			}
			if !s.begin() {
				return res, s.again(errStopping)
			}
			defer s.running.Done()
			defer out.endProgress()
			most, leaveBody, err := s.body(who, r)
			if err != nil {
				return res, err
			}
			defer leaveBody()
			if who.token != nil {
				r.Body = http.MaxBytesReader(w, r.Body, max(s.limits().Upload, most))
			}
			var req Req
			if err := readRequest(w, r, most, &req); err != nil {
				return res, err
			}
			if err := who.admit(r.URL.Path, &req); err != nil {
				return res, err
			}
			leave, err := s.enterLane(r.Context(), req, x)
			if err != nil {
				return res, err
			}
			defer leave()
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(s.until(req), cancel)()
			defer s.enter(who.call(r.Header.Get(wire.CallHeader)), cancel)()
			out.asIs = r.Header.Get("Accept") == wire.RawType
			return fn(caller.With(who.during(ctx), x.caller), req, out)
		}()
		if err != nil {
			if who.network && errors.Is(err, context.Canceled) && s.calls.Err() != nil {
				err = errStopping // it was not the client that cancelled
			}
			err = x.caller.Tell(x.route, err)
			if r.Context().Err() == nil && !out.delivered() {
				err = s.again(err)
			}
			out.fail(x, err)
			return
		}
		_ = out.write(wire.Frame{Result: result}) // the client is gone
	}
}

// readRequest reads what a client asks, which has so many bytes at most.
func readRequest(w http.ResponseWriter, r *http.Request, most int64, into any) error {
	if own, ok := into.(interface {
		read(http.ResponseWriter, *http.Request) error
	}); ok {
		return own.read(w, r)
	}
	arrived := hurry(w)
	if err := decode(r.Body, most, into); err != nil {
		return err
	}
	arrived()
	return nil
}

// decode reads a request strictly, and the body, of so many bytes at most, to its end: the server watches for a client
// that goes away only then.
func decode(body io.Reader, most int64, into any) error {
	d := json.NewDecoder(io.LimitReader(body, most))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%w: request: %w", sandbox.ErrInvalid, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: request: more than one document, or more than %d bytes", sandbox.ErrInvalid, most)
	}
	return nil
}
