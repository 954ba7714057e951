package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
)

// handleStop ends the server and answers when the home is closed. It is no call that the end waits for.
func (s *server) handleStop(w http.ResponseWriter, r *http.Request) {
	out := newStream(w)
	err := asks(r).admit(r.URL.Path, nil)
	if err == nil {
		err = s.askStop(r)
	}
	if err != nil {
		_ = out.send(wire.Frame{Error: wire.NewError(err)}) // whether it reads the answer is its business
		return
	}
	s.stop()
	<-s.closed
	if s.closeErr != nil {
		// The client may be gone; Serve returns the error, too.
		_ = out.send(wire.Frame{Error: wire.NewError(s.closeErr)})
		return
	}
	_ = out.send(wire.Frame{Result: wire.None{}}) // the client may be gone
}

// errStopping is for calls that come too late.
var errStopping = wire.Unavailable("the daemon is stopping")

// again makes an error of a call that the end of the server has refused or undone one that has the client ask again, if
// another daemon takes the place of this one: it waits in the socket for that.
func (s *server) again(err error) error {
	s.mu.Lock()
	next := s.Kept || s.program != ""
	s.mu.Unlock()
	undone := errors.Is(err, context.Canceled) || errors.Is(err, sandbox.ErrUnavailable)
	if next && undone && s.calls.Err() != nil {
		return wire.Busy(err)
	}
	return err
}

// askStop decides whether a client may have the server end as it asks.
func (s *server) askStop(r *http.Request) error {
	var req wire.StopRequest
	if err := decode(r.Body, &req); err != nil {
		return err
	}
	if req.Replace != "" {
		if s.Replace == nil {
			return wire.Unavailable("the program that serves %s cannot be replaced: end it and start the new one", s.Dir)
		}
		if err := executable(req.Replace); err != nil {
			return err
		}
	}
	if req.UnlessBusy {
		busy, err := s.home.Busy(r.Context())
		if err != nil {
			return err
		}
		if len(busy) > 0 {
			return busyError(busy)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return errStopping
	}
	if req.Replace != "" { // a stop that comes together with an upgrade does not undo that
		s.program = req.Replace
	}
	return nil
}

// executable checks the path of a program.
func executable(path string) error {
	fi, err := os.Stat(path)
	if err != nil || !filepath.IsAbs(path) || !fi.Mode().IsRegular() || fi.Mode()&0o111 == 0 {
		return fmt.Errorf("%w: %s is no program", sandbox.ErrInvalid, api.Quoted(path))
	}
	return nil
}

// namedMounts is how many mounts a message names.
const namedMounts = 5

// busyError says which mounts are in use, and by whom.
func busyError(busy []sandbox.BusyMount) error {
	var list []string
	for _, b := range busy[:min(len(busy), namedMounts)] {
		list = append(list, b.String())
	}
	more := ""
	if n := len(busy) - len(list); n > 0 {
		more = fmt.Sprintf(", and %d more", n)
	}
	return fmt.Errorf("%w: mounts are in use: %s%s: end these programs, or use --force",
		sandbox.ErrConflict, strings.Join(list, "; "), more)
}
