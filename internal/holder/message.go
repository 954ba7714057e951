package holder

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Name is what a program is called that is started as a holder.
const Name = "snapfs-holder"

// SocketName is the name of the holder's socket in a home.
const SocketName = "holder.sock"

// Bounds of what is kept.
const (
	MaxName  = 200      // bytes
	MaxData  = 16 << 10 // bytes
	MaxFiles = 8        // of one name
)

// maxMessage bounds a message, in bytes.
const maxMessage = 128 << 10

// versions are those of the protocol that this package speaks.
var versions = span{1, 1}

type span struct{ from, to int }

// HomePrefix begins the names of what belongs to the home itself.
const HomePrefix = "home/"

var (
	// ErrNone says that the home has no holder.
	ErrNone = errors.New("the home has no holder")
	// ErrConflict says that another process has the role of the daemon.
	ErrConflict = errors.New("another daemon serves the home")
	// ErrFull says that the holder can take no more descriptors.
	ErrFull = errors.New("the holder has no room for more descriptors")
	// ErrRefused says that a request is wrong, or not allowed.
	ErrRefused = errors.New("refused by the holder")
	// ErrCopy says that the holder is of another home.
	ErrCopy = errors.New("the holder is of another home")
	// ErrGone says that the holder does not answer.
	ErrGone = errors.New("the holder does not answer")
	// ErrStopped says that it does not because it was stopped by a signal, or its control group is frozen.
	ErrStopped = fmt.Errorf("%w: it is stopped", ErrGone)
	// errEnded says that the holder has ended, just now.
	errEnded = fmt.Errorf("%w: it has ended", ErrGone)
)

// unlessEnded is an error of asking for what is kept: what a holder kept that has ended is gone with it.
func unlessEnded(err error) error {
	if errors.Is(err, errEnded) {
		return nil
	}
	return err
}

// Kept is what is kept by a name.
type Kept struct {
	Name  string
	Data  []byte
	Files []*os.File // the receiver's own
}

// Start is how a daemon is started again, by the program that it runs, in the directory /. Paths in it must be absolute.
type Start struct {
	Program string   `json:"program"` // path, only to tell
	Args    []string `json:"args"`    // with the program's name
	Env     []string `json:"env"`
	// Managed says that a service manager starts it. The holder does only if that has not happened after a while.
	Managed bool `json:"managed,omitempty"`
}

// Death is the end of a daemon that did not take leave. The PID is 0 if it is not known.
type Death struct {
	Time   time.Time `json:"time"`
	PID    int       `json:"pid"`
	Reason string    `json:"reason,omitempty"` // such as "killed by SIGKILL" or "exit status 2"; "" if it is not known
	Served bool      `json:"served"`           // else it ended while starting
	// Message is why it did not serve, or what it printed last outside of its log.
	Message string `json:"message,omitempty"`
}

func (d Death) String() string {
	if d.PID == 0 && d.Reason == "" { // there was none
		return d.Message
	}
	text := fmt.Sprintf("process %d", d.PID)
	if d.PID == 0 {
		text = "a daemon"
	}
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	if d.Message != "" {
		text += ": " + d.Message
	}
	return text
}

// Status is what a holder does.
type Status struct {
	PID int `json:"pid"` // of the holder
	// Managed says that a service manager runs the holder, and starts daemons.
	Managed bool `json:"managed,omitempty"`

	Daemon int  `json:"daemon,omitempty"` // who has the role, 0 for nobody
	Ready  bool `json:"ready,omitempty"`  // the daemon serves
	Kept   int  `json:"kept"`             // names that are not of the home itself
	// Since is when the last daemon ceased to serve; zero if one serves, or none has. Doing is what one that starts has told.
	Since time.Time `json:"since,omitzero"`
	Doing string    `json:"doing,omitempty"`
	Next  time.Time `json:"next,omitzero"` // when the daemon is started again; zero: now, or not unless asked for
	// Failures counts daemons in a row that did not come to serve. GivenUp says that no more are started until somebody asks.
	Failures int     `json:"failures,omitempty"`
	GivenUp  bool    `json:"given_up,omitempty"`
	Deaths   []Death `json:"deaths,omitempty"` // since a daemon served, oldest first
}

// identity tells a home from its copies.
type identity struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

func identityOf(fd int) (identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return identity{}, os.NewSyscallError("fstat", err)
	}
	return identity{uint64(st.Dev), st.Ino}, nil
}

// Operations.
const (
	opHello    = "hello"
	opServe    = "serve"
	opReady    = "ready"
	opStarting = "starting"
	opKeep     = "keep"
	opForget   = "forget"
	opGet      = "get"
	opNext     = "next"
	opLeave    = "leave"
	opYield    = "yield"
	opCommit   = "commit"
	opStatus   = "status"
	opStart    = "start"
	opDrop     = "drop"
	opEnded    = "ended"
)

type request struct {
	Seq uint64 `json:"seq"`
	Op  string `json:"op"`

	From int       `json:"from,omitempty"`
	To   int       `json:"to,omitempty"` // of leave: the process that is to have the role; 0 for any
	Home *identity `json:"home,omitempty"`

	Start *Start `json:"start,omitempty"`
	Wait  bool   `json:"wait,omitempty"`

	Name string `json:"name,omitempty"`
	Data []byte `json:"data,omitempty"`

	// End says that all that is kept is given up.
	End bool `json:"end,omitempty"`
	// Untold says, of ready, that the deaths are to be told to the next daemon, too.
	Untold bool `json:"untold,omitempty"`
}

type response struct {
	Seq   uint64 `json:"seq"`
	Error string `json:"error,omitempty"`
	Class string `json:"class,omitempty"`

	Version int `json:"version,omitempty"`

	Left   int64   `json:"left,omitempty"`   // when the daemon before left, in nanoseconds of the machine's clock since boot
	Deaths []Death `json:"deaths,omitempty"` // of serve
	Kept   int     `json:"kept,omitempty"`   // of serve: names that are not of the home itself

	Name string `json:"name,omitempty"` // of next; "" after the last
	Data []byte `json:"data,omitempty"`

	Status *Status `json:"status,omitempty"`
}

// classes name the errors that cross the socket.
var classes = map[string]error{"conflict": ErrConflict, "full": ErrFull, "refused": ErrRefused, "copy": ErrCopy}

// fail makes the response of an error.
func fail(err error) response {
	r := response{Error: err.Error(), Class: "refused"}
	for name, class := range classes {
		if errors.Is(err, class) {
			r.Class = name
		}
	}
	return r
}

// err is the error of a response.
func (r *response) err() error {
	if r.Error == "" {
		return nil
	}
	class := classes[r.Class]
	if class == nil {
		class = ErrRefused
	}
	return &remoteError{r.Error, class}
}

// remoteError is an error that a holder has told.
type remoteError struct {
	text  string
	class error
}

func (e *remoteError) Error() string { return e.text }

func (e *remoteError) Unwrap() error { return e.class }

// checkName refuses names that not every keeper can have.
func checkName(name string) error {
	ok := name != "" && len(name) <= MaxName
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_./", c) >= 0)
	}
	if !ok {
		return fmt.Errorf("%w: %.40q is no name of what is kept", ErrRefused, name)
	}
	return nil
}

// check refuses what cannot be kept.
func check(name string, data []byte, files int) error {
	if err := checkName(name); err != nil {
		return err
	}
	if len(data) > MaxData || files > MaxFiles {
		return fmt.Errorf("%w: %s: %d bytes and %d descriptors, at most %d and %d", ErrRefused, name, len(data), files,
			MaxData, MaxFiles)
	}
	return nil
}

// encode makes a message; it fails for one that is too long.
func encode(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err == nil && len(text) > maxMessage {
		err = fmt.Errorf("%w: a message of %d bytes", ErrRefused, len(text))
	}
	return text, err
}

// rights parses the descriptors of a control message. All that were received are in fds, also with an error.
func rights(oob []byte) (fds []int, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		if messages[i].Header.Level != unix.SOL_SOCKET || messages[i].Header.Type != unix.SCM_RIGHTS {
			continue
		}
		some, e := unix.ParseUnixRights(&messages[i])
		fds = append(fds, some...)
		err = errors.Join(err, e)
	}
	return fds, err
}

// oobSize is room for the descriptors of one message.
var oobSize = unix.CmsgSpace(4 * MaxFiles)

// uptime is the machine's clock since boot, in nanoseconds; all processes have the same.
func uptime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}
