package daemon

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/internal/pace"
)

// answer is the answer to a request: it knows its status, and gives a client answerWait to take onePiece. One goroutine at
// a time uses it.
type answer struct {
	http.ResponseWriter
	ctl    *http.ResponseController
	pace   pace.Pace
	status int  // 0: nothing was sent
	taken  bool // the handler has the connection
	taker  func(net.Conn)
}

func newAnswer(w http.ResponseWriter) *answer {
	return &answer{ResponseWriter: w, ctl: http.NewResponseController(w), pace: pace.New(onePiece, answerWait)}
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= 200 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (a *answer) Write(p []byte) (int, error) {
	return a.pace.Wait(func() (int, error) {
		a.begin(a.pace.Deadline())
		return a.ResponseWriter.Write(p)
	})
}

// begin is called before a piece is sent, which the client must have taken in time.
func (a *answer) begin(deadline time.Time) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	_ = a.ctl.SetWriteDeadline(deadline) // only a writer that is not the server's has none
}

// onePiece is what a client takes within answerWait at least. Of a file that the kernel sends, each has a deadline.
const onePiece = 1 << 20

// ReadFrom implements io.ReaderFrom, so that the kernel can send files by itself.
func (a *answer) ReadFrom(from io.Reader) (n int64, err error) {
	to, ok := a.ResponseWriter.(io.ReaderFrom)
	if !ok {
		return io.Copy(struct{ io.Writer }{a}, from)
	}
	rest, limited := from.(*io.LimitedReader)
	for {
		a.begin(time.Now().Add(answerWait))
		piece := io.LimitedReader{R: from, N: onePiece}
		if limited { // sendfile sees through one only
			piece = io.LimitedReader{R: rest.R, N: min(onePiece, rest.N)}
		}
		k, err := to.ReadFrom(&piece)
		n += k
		if limited {
			rest.N -= k
		}
		if err != nil || piece.N > 0 || limited && rest.N == 0 {
			return n, err
		}
	}
}

// Flush implements http.Flusher.
func (a *answer) Flush() {
	_, _ = a.pace.Wait(func() (int, error) { // the next write tells
		a.begin(a.pace.Deadline())
		return 0, a.ctl.Flush()
	})
}

// Hijack implements http.Hijacker. The connection is closed some time after the daemon has begun to end.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := a.ctl.Hijack()
	if err != nil {
		return nil, nil, err
	}
	a.status, a.taken = http.StatusSwitchingProtocols, true
	if err := c.SetDeadline(time.Time{}); err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	if a.taker != nil {
		a.taker(c)
	}
	return c, rw, nil
}

// refuse answers a request with an error, if nothing was sent yet.
func (a *answer) refuse(status int, e *wire.Error) {
	if a.status != 0 || a.taken {
		return
	}
	a.Header().Set("Content-Type", "application/json")
	a.Header().Del("Content-Length")
	body, err := json.Marshal(wire.Frame{Error: e})
	if err != nil {
		body = []byte(`{"error":{"class":"failed"}}`) // texts and numbers can be marshalled
	}
	a.WriteHeader(status)
	_, _ = a.Write(append(body, '\n')) // the client is gone
}

// statusOf is the status of an error, whose headers it sets.
func statusOf(h http.Header, err error) int {
	var many tooManyError
	var busy *wire.Error
	switch {
	case errors.As(err, &many):
		h.Set("Retry-After", strconv.Itoa(many.seconds()))
		return http.StatusTooManyRequests
	case errors.As(err, new(wire.BusyError)), errors.As(err, &busy) && busy.Busy:
		h.Set("Retry-After", "1")
	}
	return api.ClassOf(err).Status
}
