package daemon

import (
	"net/http"

	"snapfs/internal/limits"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
)

const (
	// maxRequest bounds the JSON of a request, in bytes; maxLarge that of one with a document.
	maxRequest = 1 << 20
	maxLarge   = api.MaxDocument + maxRequest
	// largeCopies is how many times the memory of a document a call that saves it has at most.
	largeCopies = 4
	// largeShare is the share of memory, one of so many parts, that large requests have together.
	largeShare = 16
	// mostLarge are how many there are at most.
	mostLarge = 16
)

// largeBodies is how many large requests are under way at most.
func largeBodies() int {
	return int(min(max(limits.Memory()/largeShare/(largeCopies*maxLarge), 2), mostLarge))
}

// body says how long the body of a request may be. One that is large waits for a place, which it has until leave is called.
func (s *server) body(who *asker, r *http.Request) (most int64, leave func(), err error) {
	small := r.ContentLength >= 0 && r.ContentLength <= maxRequest
	if r.URL.Path != wire.Route(wire.CallSaveDocument) || small {
		return maxRequest, func() {}, nil
	}
	leave, err = s.large.Enter(r.Context(), who.payer(), nil)
	return maxLarge, leave, err
}
