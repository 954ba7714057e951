package statehttp

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/places"
)

// drip gives a piece of a body each second.
type drip struct {
	left, piece int
}

func (d *drip) Read(p []byte) (int, error) {
	if d.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(time.Second)
	n := min(d.left, d.piece, len(p))
	d.left -= n
	return copy(p, bytes.Repeat([]byte{'x'}, n)), nil
}

// TestSlowBody: a large body that comes too slowly gives its place up, and one that goes on is read to its end.
func TestSlowBody(t *testing.T) {
	for _, tc := range []struct {
		what  string
		piece int
		ok    bool
	}{{"slowly", 100, false}, {"steadily", 400 << 10, true}} {
		synctest.Test(t, func(t *testing.T) {
			const size = 40 << 20
			s := &server{large: places.New(largeAtOnce)}
			r := httptest.NewRequest(http.MethodPut, "/", &drip{size, tc.piece})
			r.ContentLength = size
			begun := time.Now()
			body, leave, err := s.body(&exchange{w: httptest.NewRecorder(), r: r})
			if tc.ok && (err != nil || len(body) != size) || !tc.ok && !errors.Is(err, api.ErrInvalid) {
				t.Errorf("%s: %d bytes, %v", tc.what, len(body), err)
			}
			if err == nil {
				leave()
			}
			if took := time.Since(begun); !tc.ok && took > 2*steadyWait {
				t.Errorf("%s: given up after %v", tc.what, took)
			}
		})
	}
}
