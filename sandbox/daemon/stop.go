package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
)

// handleStop ends the server and answers when the home is closed, or, if another process takes the daemon's place, before
// that. It is no call that the end waits for.
func (s *server) handleStop(_ http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	out := x.stream()
	var req wire.StopRequest
	err := asks(r).admit(r.URL.Path, nil)
	if err == nil {
		err = decode(r.Body, maxRequest, &req)
	}
	if err == nil {
		err = s.askStop(r.Context(), req, asks(r).pid, func(p sandbox.Progress) { _ = out.send(wire.Frame{Progress: &p}) }) // as below
	}
	if err != nil {
		err = s.again(err)
		if errors.Is(err, sandbox.ErrRefused) {
			s.audit(x, x.route, http.StatusForbidden, err)
		}
		out.fail(x, err)
		return
	}
	if req.Successor {
		_ = out.send(wire.Frame{Result: wire.None{}}) // if it is gone, the holder starts a daemon
		s.stop()
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
	next := s.Kept || s.program != "" || s.successor > 0
	s.mu.Unlock()
	undone := errors.Is(err, context.Canceled) || errors.Is(err, sandbox.ErrUnavailable)
	if next && undone && s.calls.Err() != nil {
		return wire.Busy(err)
	}
	return err
}

// askStop decides whether a client, the process from, may have the server end as it asks. If another program is to take the daemon's place,
// it first waits for the calls under way.
func (s *server) askStop(ctx context.Context, req wire.StopRequest, from int, progress func(sandbox.Progress)) error {
	replaced := req.Replace != "" || req.Successor
	if err := s.replaceable(req, from); err != nil {
		return err
	}
	if req.UnlessBusy {
		busy, err := s.home.Busy(ctx)
		if replaced {
			busy = slices.DeleteFunc(busy, func(b sandbox.BusyMount) bool { return b.Kept })
		}
		if err != nil {
			return err
		}
		if len(busy) > 0 {
			return busyError(busy, replaced)
		}
	}
	if replaced {
		if err := s.settle(ctx, !req.UnlessBusy, progress); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return errStopping
	}
	if replaced { // a stop that comes together with an upgrade does not undo that
		s.program = req.Replace
		if req.Successor {
			s.successor = from
		}
	}
	return nil
}

// replaceable refuses to have another program take the daemon's place where that cannot be.
func (s *server) replaceable(req wire.StopRequest, from int) error {
	switch {
	case req.Replace != "" && req.Successor:
		return fmt.Errorf("%w: a program is to take the daemon's place in its process, and another process is", sandbox.ErrInvalid)
	case req.Successor && from <= 0:
		return wire.Unavailable("the process that is to take the place of the daemon is in another pid namespace")
	case req.Replace != "" && s.Replace == nil, req.Successor && s.Leave == nil:
		return wire.Unavailable("the program that serves %s cannot be replaced: end it and start the new one", s.Dir)
	case req.Successor:
		return s.MayLeave()
	case req.Replace != "":
		return executable(req.Replace)
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

// busyError says which mounts are in use, and by whom.
func busyError(busy []sandbox.BusyMount, replaced bool) error {
	var list []string
	for _, b := range busy[:min(len(busy), mostNamed)] {
		list = append(list, b.String())
	}
	why := "mounts are in use"
	if replaced {
		why = "mounts are in use that the next daemon cannot go on with"
	}
	return fmt.Errorf("%w: %s: %s%s: end these programs, or use --force",
		sandbox.ErrConflict, why, strings.Join(list, "; "), andMore(len(busy)-len(list)))
}
