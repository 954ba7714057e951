package workfiles

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/peer"
	"snapfs/sandbox/internal/workfiles/scoped"
)

// Name is the first argument, the program's name, by which a program knows that it is to call Main.
const Name = "snapfs-files"

// enabled says that this program calls Main when it is started under Name.
var enabled atomic.Bool

// Enable is called by a program that calls Main when it is started under Name.
func Enable() { enabled.Store(true) }

// Child is for the TestMain of packages that make calls: it is Main, and the end of the process, if that is a child,
// and Enable otherwise.
func Child() {
	if len(os.Args) == 0 || os.Args[0] != Name {
		Enable()
		return
	}
	if err := Main(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

const (
	// mostCalls is how many calls there are at a time, besides one of each workspace, each with a socket here and one in
	// the child, and mostOfOne how many of one workspace. A small limit of descriptors makes it less.
	mostCalls, mostOfOne = 1024, 256
	// mostWatching is how many of these are watches, each with an instance of inotify, of which the kernel allows a user
	// 128 if it is not told otherwise.
	mostWatching, mostWatchingOne = 96, 32
	// mostRepeats is how often a call is made whose child ends before it has begun.
	mostRepeats = 3
)

// Server is the parent's side. Safe for concurrent use.
type Server struct {
	log            *slog.Logger
	calls, watches *gates
	sweeping       sync.WaitGroup // what removes files that were left

	mu     lockorder.Mutex[lockorder.WorkFiles]
	child  *child // guarded by mu: nil if there is none
	closed bool   // guarded by mu
}

// NewServer makes a server, which starts no process before the first call.
func NewServer(log *slog.Logger) *Server {
	most := int64(mostCalls)
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err == nil {
		most = int64(min(mostCalls, max(r.Cur/16, 16)))
	}
	return &Server{log: log, calls: newGates(most, mostOfOne), watches: newGates(mostWatching, mostWatchingOne)}
}

// Call is one call.
type Call struct {
	Do      string // one of the names
	Mount   Mount
	User    *peer.User // whose rights to files count; nil: those of this process
	Request any
	// Plain gives no file that is written the bits setuid and setgid, nor leaves them to one that is replaced.
	Plain bool

	// Path is that of the file which a Put or Edit makes.
	Path string
	// Opened is called when the child has opened the root of the mount, which ends only after the call: its error, if the
	// workspace is not the one any more that is meant, ends the call.
	Opened func() error
	Body   io.Reader // of a Put
	Size   int64     // of Body; -1: not known

	Data  io.Writer               // of a Get
	Item  func(item []byte) error // of calls that give parts
	Ready func() error            // of a Watch
}

// Make makes a call, and reads its result. ErrUnavailable if the child ends meanwhile, or cannot be started. It returns
// when ctx ends, whatever the child does, but for Body, Data and Item, which it waits for.
func (s *Server) Make(ctx context.Context, c Call, into any) error {
	all := s.calls
	if c.Do == Watch {
		all = s.watches
	}
	g := all.join(c.Mount.Device)
	defer all.leave(c.Mount.Device)
	if err := g.enter(ctx); err != nil {
		return err
	}
	defer g.exit()
	t := task{Do: c.Do, Mount: c.Mount, User: c.User, Plain: c.Plain}
	if c.Do == Put || c.Do == Edit {
		t.Temp = scoped.TempPrefix + rand.Text()
	}
	err := s.repeat(ctx, t, c, into)
	if t.Temp != "" && errors.Is(err, errChildGone) {
		s.sweep(t, c.Path)
	}
	return err
}

// repeat makes a call, and again if the child ends before it has begun.
func (s *Server) repeat(ctx context.Context, t task, c Call, into any) (err error) {
	if t.Request, err = json.Marshal(c.Request); err != nil {
		return err
	}
	begun, opened := false, c.Opened
	c.Opened = func() error {
		begun = true
		return opened()
	}
	for range mostRepeats {
		err = s.make(ctx, t, c, into)
		if begun || !errors.Is(err, errChildGone) {
			return err
		}
	}
	return err
}

func (s *Server) make(ctx context.Context, t task, c Call, into any) error {
	ch, err := s.start()
	if err != nil {
		return err
	}
	x, err := ch.dial()
	if err != nil {
		return err
	}
	defer x.close()
	defer context.AfterFunc(ctx, x.close)()
	err = x.run(t, c, into)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, errChildGone) {
		ch.die() // it is about to end, if it has not
	}
	return err
}

// sweep removes what a child that has died may have left.
func (s *Server) sweep(t task, path string) {
	t.Do = sweep
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.sweeping.Go(func() { // Close ends it, and waits
		c := Call{Request: api.WorkFileRequest{Path: path}, Opened: func() error { return nil }}
		if err := s.repeat(context.Background(), t, c, &nothing{}); err != nil && !errors.Is(err, api.ErrNotFound) {
			s.log.Warn("a file that was not complete may be left", "name", t.Temp, "error", err)
		}
	})
}

// start gives the child, which it starts if there is none.
func (s *Server) start() (*child, error) {
	if !enabled.Load() {
		return nil, fmt.Errorf("%w: this program cannot use files in its own mounts (see sandbox.IsMounter)",
			api.ErrUnavailable)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, fmt.Errorf("%w: the home is being closed", api.ErrUnavailable)
	case s.child != nil && !s.child.dead():
		return s.child, nil
	}
	c, err := startChild(s.log)
	if err != nil {
		return nil, fmt.Errorf("%w: starting the process for files: %w", api.ErrUnavailable, err)
	}
	s.child = c
	return c, nil
}

// Process is the process that makes the calls; 0 if there is none.
func (s *Server) Process() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child == nil || s.child.dead() {
		return 0
	}
	return s.child.cmd.Process.Pid
}

// Close ends the child, and calls with it. If a system call of the child hangs, it ends after that.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	c := s.child
	s.mu.Unlock()
	if c != nil {
		c.end()
	}
	s.sweeping.Wait()
}
