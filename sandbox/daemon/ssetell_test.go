package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/api/caller"
)

// hiddenError is one of what belongs to others.
type hiddenError struct{ error }

func (e hiddenError) Unwrap() error { return e.error }
func (e hiddenError) Hidden() error { return fmt.Errorf("%w: workspace w", sandbox.ErrNotFound) }

// TestEventStreamHides: an error that ends a stream that has begun tells no more than one that is the answer.
func TestEventStreamHides(t *testing.T) {
	by := &caller.Caller{Session: "b", Sessions: []string{"b"}, Token: "t"}
	for _, begun := range []bool{false, true} {
		w := httptest.NewRecorder()
		tell := func(err error) error { return by.Tell("events", err) }
		s := &eventStream{tell: tell, w: w, ctl: http.NewResponseController(w), begun: begun}
		ended := make(chan error, 1)
		ended <- hiddenError{errors.New("it belongs to session a")}
		s.send(nil, ended)
		told := w.Body.String()
		if s.failed != nil {
			told = s.failed.Error()
		}
		if strings.Contains(told, "session a") || !strings.Contains(told, "workspace w") {
			t.Errorf("begun %v: %s", begun, told)
		}
	}
}
