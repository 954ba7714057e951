package daemon

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"snapfs/sandbox"
)

// stuckWriter is a client that reads nothing until it is told to.
type stuckWriter struct {
	head  http.Header
	reads chan struct{} // closed
	got   bytes.Buffer
}

func (w *stuckWriter) Header() http.Header { return w.head }
func (w *stuckWriter) WriteHeader(int)     {}

func (w *stuckWriter) Write(p []byte) (int, error) {
	<-w.reads
	return w.got.Write(p)
}

// TestProgressDoesNotWait: whatever works goes on while a client reads nothing, and the client gets the newest progress.
func TestProgressDoesNotWait(t *testing.T) {
	w := &stuckWriter{head: http.Header{}, reads: make(chan struct{})}
	s := newStream(w)
	report := s.progress()
	for i := range 1000 {
		report(sandbox.Progress{Stage: "stage " + strconv.Itoa(i)})
	}
	close(w.reads)
	s.endProgress()
	report(sandbox.Progress{Stage: "late"})
	lines := strings.Split(strings.TrimSpace(w.got.String()), "\n")
	if len(lines) > 3 || !strings.Contains(lines[len(lines)-1], "stage 999") {
		t.Errorf("%d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
}
