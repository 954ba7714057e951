package wire

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"snapfs/sandbox/api"
)

// Frame is one line of a response; exactly one field is set.
type Frame struct {
	Progress *api.Progress  `json:"progress,omitempty"`
	Change   *api.Change    `json:"change,omitempty"`
	Event    *api.Event     `json:"event,omitempty"`
	File     *api.File      `json:"file,omitempty"`
	Read     *api.Read      `json:"read,omitempty"`
	Document *api.Document  `json:"document,omitempty"`
	Match    *api.GrepMatch `json:"match,omitempty"`
	Watched  *api.FileEvent `json:"watched,omitempty"`
	Ready    bool           `json:"ready,omitempty"` // of CallWatchFiles: nothing is missed from now on
	Data     []byte         `json:"data,omitempty"`
	Result   any            `json:"result,omitempty"`
	Error    *Error         `json:"error,omitempty"`
}

// Error carries an error over the socket: errors.Is finds its class and its errno on the other side.
type Error struct {
	Class   string `json:"class"`
	Message string `json:"message"`
	Errno   int    `json:"errno,omitempty"`
	Busy    bool   `json:"busy,omitempty"` // as BusyError
	// Request is the id of the request, where the daemon tells it.
	Request string `json:"request_id,omitempty"`
}

// BusyError is for a call that the daemon has no room for, and that has not begun: the client asks again.
type BusyError struct{ error }

// Busy makes a BusyError of the error that a client gets which does not ask again.
func Busy(err error) error { return BusyError{err} }

// Unwrap gives that error.
func (b BusyError) Unwrap() error { return b.error }

// NewError gives the form of an error in which it travels.
func NewError(err error) *Error {
	var busy BusyError
	w := &Error{Class: api.ClassOf(err).Word, Message: err.Error(), Busy: errors.As(err, &busy)}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		w.Errno = int(errno)
	}
	return w
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Unwrap gives the class and the errno that the error had in the daemon.
func (e *Error) Unwrap() []error {
	var errs []error
	for _, c := range api.Classes() {
		if c.Word == e.Class {
			errs = append(errs, c.Err)
		}
	}
	if e.Errno != 0 {
		errs = append(errs, syscall.Errno(e.Errno))
	}
	return errs
}

// Names of the calls.
const (
	CallCreate     = "create"
	CallUp         = "up"
	CallMount      = "mount"
	CallUnmount    = "unmount"
	CallSnapshot   = "snapshot"
	CallRestore    = "restore"
	CallBranch     = "branch"
	CallFork       = "fork"
	CallRollback   = "rollback"
	CallTurn       = "turn"
	CallTurns      = "turns"
	CallUndo       = "undo"
	CallRedo       = "redo"
	CallApply      = "apply"
	CallBase       = "base"
	CallConflicts  = "conflicts"
	CallReads      = "reads"
	CallQuota      = "quota"
	CallPause      = "pause"
	CallResume     = "resume"
	CallWorkspaces = "workspaces"
	CallSnapshots  = "snapshots"
	CallShow       = "show"
	CallLocate     = "locate"
	CallRename     = "rename"
	CallLabel      = "label"
	CallDiff       = "diff"
	CallFiles      = "files"
	CallRead       = "read"
	CallDelete     = "delete"
	CallDestroy    = "destroy"
	CallStatFile   = "stat-file"
	CallListDir    = "list-dir"
	CallGetFile    = "get-file"
	CallPutFile    = "put-file"
	CallEditFile   = "edit-file"
	CallMakeDir    = "make-dir"
	CallMoveFile   = "move-file"
	CallRemoveFile = "remove-file"
	CallGlob       = "glob"
	CallGrep       = "grep"
	CallWatchFiles = "watch-files"
	CallExport     = "export"
	CallExtract    = "extract"
	CallStats      = "stats"
	CallPrune      = "prune"
	CallEvents     = "events"
	CallGC         = "gc"
	CallCheck      = "check"
	CallInfo       = "info"
	CallReload     = "reload"
	CallInUse      = "in-use"
	CallStop       = "stop"
	CallTokenNew   = "token-create"
	CallTokens     = "tokens"
	CallTokenEnd   = "token-revoke"
	CallCancel     = "cancel"

	CallPosition           = "position"
	CallSetPosition        = "set-position"
	CallSaveDocument       = "save-document"
	CallLoadDocument       = "load-document"
	CallListDocuments      = "list-documents"
	CallDeleteDocument     = "delete-document"
	CallDeleteAgentSession = "delete-agent-session"
)

// Route is the path of a call.
func Route(call string) string { return "/v1/" + call }

// CallHeader carries the name that a client gives to a call, by which CallCancel ends it.
const CallHeader = "Snapfs-Call"

// CancelRequest names the call to end.
type CancelRequest struct {
	Call string `json:"call"`
}

// CancelResult reports whether the call was running.
type CancelResult struct {
	Found bool `json:"found"`
}

// StopRequest says how the daemon is to end.
type StopRequest struct {
	// UnlessBusy refuses, with ErrConflict, while programs use mounts that end, and calls under way that do not end.
	UnlessBusy bool `json:"unless_busy,omitempty"`
	// Replace is the program that goes on as the daemon, in the same process with the same arguments, and mounts again
	// what was mounted; "" for none.
	Replace string `json:"replace,omitempty"`
	// Successor says that another process, which waits for it, goes on as the daemon. The answer comes when the daemon is
	// sure to leave.
	Successor bool `json:"successor,omitempty"`
}

// IdleWait is how long the daemon keeps a connection without a request; clients give theirs up before.
const IdleWait = 3 * time.Minute

// None is a request or result without contents.
type None struct{}

// Info describes a running daemon.
type Info struct {
	PID     int    `json:"pid"`
	Home    string `json:"home"`
	Version string `json:"version"`
	// Protocol are the versions of the protocol that it speaks, "" of a daemon that does not tell.
	Protocol string `json:"protocol,omitempty"`
	Mounts   int    `json:"mounts"`
	// Log is where its log goes: the path of a file, LogJournal or LogStderr; "" of a daemon that does not tell.
	Log string `json:"log,omitempty"`
	// Listen are the addresses at which it serves other than its socket, as URLs.
	Listen []string `json:"listen,omitempty"`
	// Background is what is being done because nobody asks anything, as sandbox.Home.Background.
	Background string `json:"background,omitempty"`
	// Holder is the process that keeps the mounts should the daemon die; 0 if there is none, or it is the service manager.
	Holder int `json:"holder,omitempty"`
}

// What Info.Log says of a log that is in no file that the daemon knows.
const (
	LogJournal = "journal" // of systemd
	LogStderr  = "stderr"  // wherever the standard error of the process goes
)

// Unavailable makes an error of the class ErrUnavailable.
func Unavailable(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{api.ErrUnavailable}, args...)...)
}

// InUse lists the mounts that programs use.
type InUse struct {
	Mounts []UsedMount `json:"mounts"`
}

// UsedMount is a mount that programs use.
type UsedMount struct {
	Workspace  string `json:"workspace"`
	Mountpoint string `json:"mountpoint"`
	By         string `json:"by"`             // some of them, as "process 12 (sh)"
	Kept       bool   `json:"kept,omitempty"` // it goes on with a daemon that follows
}
