package daemon

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"snapfs/sandbox"
)

// frame is one line of a response; exactly one field is set.
type frame struct {
	Progress *sandbox.Progress `json:"progress,omitempty"`
	Change   *sandbox.Change   `json:"change,omitempty"`
	Event    *sandbox.Event    `json:"event,omitempty"`
	Result   any               `json:"result,omitempty"`
	Error    *wireError        `json:"error,omitempty"`
}

// wireError carries an error over the socket: errors.Is finds its class and its errno on the other side.
type wireError struct {
	Class   string `json:"class"`
	Message string `json:"message"`
	Errno   int    `json:"errno,omitempty"`
}

// classes names what errors.Is must still find on the other side.
var classes = []struct {
	name string
	err  error
}{
	{"invalid", sandbox.ErrInvalid},
	{"not_found", sandbox.ErrNotFound},
	{"conflict", sandbox.ErrConflict},
	{"refused", sandbox.ErrRefused},
	{"corrupt", sandbox.ErrCorrupt},
	{"unavailable", sandbox.ErrUnavailable},
	{"canceled", context.Canceled},
	{"deadline", context.DeadlineExceeded},
}

func toWire(err error) *wireError {
	w := &wireError{Class: "failed", Message: err.Error()}
	for _, c := range classes {
		if errors.Is(err, c.err) {
			w.Class = c.name
			break
		}
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		w.Errno = int(errno)
	}
	return w
}

// Error implements error.
func (e *wireError) Error() string { return e.Message }

// Unwrap gives the class and the errno that the error had in the daemon.
func (e *wireError) Unwrap() []error {
	var errs []error
	for _, c := range classes {
		if c.name == e.Class {
			errs = append(errs, c.err)
		}
	}
	if e.Errno != 0 {
		errs = append(errs, syscall.Errno(e.Errno))
	}
	return errs
}

// Names of the calls.
const (
	callCreate     = "create"
	callUp         = "up"
	callMount      = "mount"
	callUnmount    = "unmount"
	callSnapshot   = "snapshot"
	callRestore    = "restore"
	callBranch     = "branch"
	callFork       = "fork"
	callRollback   = "rollback"
	callPause      = "pause"
	callResume     = "resume"
	callWorkspaces = "workspaces"
	callSnapshots  = "snapshots"
	callShow       = "show"
	callDiff       = "diff"
	callDelete     = "delete"
	callDestroy    = "destroy"
	callExport     = "export"
	callStats      = "stats"
	callPrune      = "prune"
	callEvents     = "events"
	callGC         = "gc"
	callCheck      = "check"
	callInfo       = "info"
	callStop       = "stop"
	callCancel     = "cancel"
)

func route(call string) string { return "/v1/" + call }

// none is a request or result without contents.
type none struct{}

// Info describes a running daemon.
type Info struct {
	PID     int    `json:"pid"`
	Home    string `json:"home"`
	Version string `json:"version"`
	Mounts  int    `json:"mounts"`
	// Background is what is being done because nobody asks anything, as Home.Background.
	Background string `json:"background,omitempty"`
}

func unavailable(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{sandbox.ErrUnavailable}, args...)...)
}
