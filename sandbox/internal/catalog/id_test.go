package catalog

import (
	"regexp"
	"testing"

	"snapfs/sandbox/api"
)

func TestIDsGrow(t *testing.T) {
	var s idSource
	// From a clock that was far ahead, with its counter about to overflow.
	s.seen("fffffff0-0000-7fff-8000-000000000000")
	last := "fffffff0-0000-7fff-8000-000000000000"
	for range 10000 {
		id := s.next()
		if id <= last || !api.IsID(id) {
			t.Fatalf("%s after %s", id, last)
		}
		last = id
	}
	var now idSource
	if a, b := now.next(), now.next(); a >= b || !regexp.MustCompile(`^[0-9a-f-]{14}7[0-9a-f]{3}-[89ab]`).MatchString(a) {
		t.Errorf("got %s, %s", a, b)
	}
}
