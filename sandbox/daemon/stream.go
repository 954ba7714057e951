package daemon

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"

	"snapfs/internal/lockorder"
	"snapfs/sandbox"
	"snapfs/sandbox/api/wire"
)

// stream writes the lines of one response.
type stream struct {
	mu  lockorder.Mutex[lockorder.DaemonStream]
	out *json.Encoder // guarded by mu
	w   http.ResponseWriter
	ctl *http.ResponseController

	asIs bool // the client takes contents of files as they are
	raw  bool // guarded by mu: such were sent

	begin func(error) // sets the status of an answer that an error begins; nil: it is 200
	sent  bool        // guarded by mu: a line was sent
	lines bool        // guarded by mu: a part of the result was sent

	news   chan sandbox.Progress // of capacity 1: progress that is not written yet
	ended  chan struct{}         // closed when the call has ended
	writer sync.WaitGroup        // of news
}

func newStream(w http.ResponseWriter) *stream {
	w.Header().Set("Content-Type", "application/x-ndjson")
	return &stream{
		out: json.NewEncoder(w), w: w, ctl: http.NewResponseController(w),
		news: make(chan sandbox.Progress, 1), ended: make(chan struct{}),
	}
}

// endProgress is called once when the call has ended, before its result is sent.
func (s *stream) endProgress() {
	close(s.ended)
	s.writer.Wait()
}

// writeProgress writes news until the call has ended.
func (s *stream) writeProgress() {
	for ended := false; !ended; {
		select {
		case p := <-s.news:
			_ = s.send(wire.Frame{Progress: &p}) // a client that is gone cancels the call
		case <-s.ended:
			ended = true
		}
	}
	select {
	case p := <-s.news:
		_ = s.send(wire.Frame{Progress: &p}) // as above
	default:
	}
}

// send writes a line at once.
func (s *stream) send(f wire.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.writeLocked(f); err != nil {
		return err
	}
	return s.ctl.Flush()
}

// write writes a line, which goes with what follows: the end of a short answer in one piece.
func (s *stream) write(f wire.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeLocked(f)
}

// writeLocked writes a line. The caller holds mu.
func (s *stream) writeLocked(f wire.Frame) error {
	s.lines = s.lines || f.Progress == nil && f.Result == nil && f.Error == nil
	if !s.sent && f.Error != nil && s.begin != nil {
		s.begin(f.Error)
	}
	s.sent = true
	if s.raw {
		return s.endRawLocked(f)
	}
	return s.out.Encode(f)
}

// delivered reports whether the client has a part of the result.
func (s *stream) delivered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines
}

// progress passes a call's progress on, at most ten times a second and whenever the stage changes. Whatever works does
// not wait for the client: if that is slow, it gets the newest only.
func (s *stream) progress() func(sandbox.Progress) {
	s.writer.Go(s.writeProgress)
	var (
		mu   lockorder.Mutex[lockorder.DaemonProgress]
		last sandbox.Progress
		when time.Time
	)
	return func(p sandbox.Progress) {
		mu.Lock()
		defer mu.Unlock()
		if p.Stage == last.Stage && time.Since(when) < 100*time.Millisecond {
			return
		}
		last, when = p, time.Now()
		select {
		case <-s.news: // older
		default:
		}
		s.news <- p
	}
}

// dataWriter sends what is written to it in lines.
type dataWriter struct{ out *stream }

// Write implements io.Writer.
func (w dataWriter) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	return len(p), w.out.send(wire.Frame{Data: p})
}

// data takes the contents of a file, which is all that comes before the result.
func (s *stream) data() io.Writer {
	if s.asIs {
		return rawWriter{s}
	}
	return dataWriter{s}
}

// rawWriter sends what is written to it as it is, see wire.RawType.
type rawWriter struct{ out *stream }

// Write implements io.Writer.
func (w rawWriter) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s := w.out
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.raw {
		h := s.w.Header()
		h.Set("Content-Type", wire.RawType)
		h.Set("Trailer", wire.ResultHeader)
		s.raw, s.sent, s.lines = true, true, true
	}
	return s.w.Write(p)
}

// endRawLocked sends the last line of an answer in its trailer; others have no place. The caller holds mu.
func (s *stream) endRawLocked(f wire.Frame) error {
	if f.Result == nil && f.Error == nil {
		return nil
	}
	text, err := wire.Trailer(f)
	if err != nil {
		return err
	}
	s.w.Header().Set(wire.ResultHeader, text)
	return nil
}
