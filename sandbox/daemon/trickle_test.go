package daemon

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"snapfs/sandbox"
)

// drip gives a body, a piece each second.
type drip struct{ left, piece int }

func (d *drip) Read(p []byte) (int, error) {
	if d.left == 0 {
		return 0, io.EOF
	}
	n := min(d.left, d.piece, len(p))
	time.Sleep(time.Duration(n) * time.Second / time.Duration(d.piece))
	d.left -= n
	return n, nil
}

// TestPaceOfBodies: whatever a body is for, one that comes too slowly is given up, and one that goes on may take long.
func TestPaceOfBodies(t *testing.T) {
	bodies := map[string]func(from io.Reader, ctl *http.ResponseController) io.Reader{
		"service": func(from io.Reader, ctl *http.ResponseController) io.Reader {
			return &uploaded{ReadCloser: io.NopCloser(from), ctl: ctl, pace: newBodyPace()}
		},
		"file": func(from io.Reader, ctl *http.ResponseController) io.Reader {
			return &contents{from, ctl, newBodyPace()}
		},
	}
	const size = 10 << 20
	for what, body := range bodies {
		for _, tc := range []struct {
			piece int
			ok    bool
		}{{100, false}, {20 << 10, true}} {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				n, err := io.Copy(io.Discard, body(&drip{size, tc.piece}, http.NewResponseController(httptest.NewRecorder())))
				took := time.Since(begun)
				if tc.ok && (err != nil || n != size) || !tc.ok && (!errors.Is(err, sandbox.ErrInvalid) || took > 2*bodyWait) {
					t.Errorf("%s, %d bytes a second: %d bytes in %v, %v", what, tc.piece, n, took, err)
				}
			})
		}
	}
}
