package httpapi

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"snapfs/sandbox/api"
)

// links is a service with a directory of long links.
type links struct {
	Service
	count int
	told  func(n int)
}

func (l links) ListDir(_ context.Context, _ api.WorkFileRequest, fn func(api.File) error) error {
	target := strings.Repeat("x", maxPath)
	for n := range l.count {
		if err := fn(api.File{Path: "name", Target: target}); err != nil {
			return err
		}
		l.told(n)
	}
	return nil
}

// TestLongLinksAreNotHeld: a directory of links that lead far is not in memory as a whole.
func TestLongLinksAreNotHeld(t *testing.T) {
	w, sent := httptest.NewRecorder(), 0
	s := &Server{service: links{count: 5000, told: func(n int) {
		if sent == 0 && w.Body.Len() > 0 {
			sent = n
		}
	}}}
	if err := s.listDir(t.Context(), api.WorkFileRequest{Path: "/"}, w); err != nil {
		t.Fatal(err)
	}
	if sent == 0 || sent > 2*sortedBytes/maxPath {
		t.Errorf("the first is sent after %d of 5000", sent)
	}
}
