package transport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"snapfs/fs/internal/proto"
)

// Handler answers one request: in holds the request, out has room for the largest answer; the result is the length
// of the answer, 0 for none. in is one buffer, or three for header, fixed part and payload; out is one, or two for the
// header and the rest. go-fuse's ProtocolServer is one. It is called concurrently.
type Handler interface {
	HandleRequest(in, out [][]byte) (int, fuse.Status)
}

// Ender is a handler that wants to know when it is over with a request: its answer was written, or there is none. A
// process that is killed before that is asked again, see proto.Resent.
type Ender interface {
	Handler
	// End is called once for each call of HandleRequest, in the same goroutine, with the header, in which HandleRequest
	// may have changed the padding. It must not block.
	End(h *fuse.InHeader)
}

// ErrUnavailable says that the transport asked for is unknown, or not offered by the kernel.
var ErrUnavailable = errors.New("transport is not available")

// transport carries requests of one connection to a handler.
type transport interface {
	// name is dev or uring.
	name() string
	// start begins to serve and returns at once. done is called when the connection has ended and no request runs.
	start(h Handler, done func())
	// notify sends a message that answers no request. It may wait for the kernel, which may wait for answers.
	notify(b []byte) error
	// disconnect drops the device, which ends the connection.
	disconnect()
	// ended reports whether the connection has ended.
	ended() bool
	// giveUp leaves the connection to another process; done is called when nothing of it is left in this one.
	giveUp() error
}

// answer has a request answered; a panic is that request's error.
func answer(h Handler, log *slog.Logger, in, out [][]byte) (n int, st fuse.Status) {
	if op := proto.Header(in[0]).Opcode; op == proto.OpFsync || op == proto.OpFsyncdir {
		defer syncs.since(time.Now())
	}
	defer func() {
		if v := recover(); v != nil {
			log.Error("panic in a request", slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
			n, st = 0, fuse.EIO
		}
	}()
	return h.HandleRequest(in, out)
}

// RingParameter is the kernel's switch for FUSE over io_uring: Y or N. The kernel reads it when a connection begins.
const RingParameter = "/sys/module/fuse/parameters/enable_uring"

// noRing says that the log has the reason why there is no io_uring.
var noRing atomic.Bool

// offerTransport gives the lanes that a mount may use, nil for the device alone.
func offerTransport(want string, log *slog.Logger) (*laneSet, error) {
	switch want {
	case "", "auto", "uring":
	case "dev":
		return nil, nil
	default:
		return nil, fmt.Errorf("transport %q: %w", want, ErrUnavailable)
	}
	lanes, err := ringOffered()
	if err == nil {
		return lanes, nil
	}
	if want == "uring" {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	level := slog.LevelInfo
	if !noRing.CompareAndSwap(false, true) { // once is enough
		level = slog.LevelDebug
	}
	log.Log(context.Background(), level, "requests come over /dev/fuse, not io_uring",
		slog.String("reason", err.Error()))
	return nil, nil
}

// ringOffered gives the lanes if this kernel has FUSE over io_uring and allows it.
func ringOffered() (*laneSet, error) {
	on, err := os.ReadFile(RingParameter)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("the kernel has no FUSE over io_uring")
	case err != nil:
		return nil, err
	case strings.TrimSpace(string(on)) != "Y":
		return nil, errors.New("FUSE over io_uring is switched off: " + RingParameter)
	}
	s, err := theLanes()
	if err == nil {
		err = s.usable()
	}
	return s, err
}

// EnableRing switches FUSE over io_uring on, for the whole system, until the next boot, and reports whether that
// changed anything. It needs root.
func EnableRing() (changed bool, err error) {
	on, err := os.ReadFile(RingParameter)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if strings.TrimSpace(string(on)) == "Y" {
		return false, nil
	}
	if err := os.WriteFile(RingParameter, []byte("Y"), 0); err != nil {
		return false, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return true, nil
}
