package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// sip takes what is written to it slowly.
type sip struct {
	each time.Duration
	took int64
}

func (s *sip) Write(p []byte) (int, error) {
	time.Sleep(s.each)
	s.took += int64(len(p))
	return len(p), nil
}

// TestSlowExport: an export that is taken too slowly is given up, and leaves no file; one that goes on is taken whole.
func TestSlowExport(t *testing.T) {
	const size = 16 << 20
	for _, tc := range []struct {
		what string
		each time.Duration // for 256 KiB
		ok   bool
	}{{"steadily", 3 * time.Second, true}, {"slowly", 30 * time.Second, false}} {
		synctest.Test(t, func(t *testing.T) {
			h := &Home{dir: t.TempDir()}
			w := &sip{each: tc.each}
			begun := time.Now()
			_, err := h.streamImage(t.Context(), w, func(f *os.File) error { return f.Truncate(size) })
			if tc.ok && (err != nil || w.took != size) || !tc.ok && !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %d bytes, %v", tc.what, w.took, err)
			}
			if took := time.Since(begun); !tc.ok && took > 2*streamWait {
				t.Errorf("%s: given up after %v", tc.what, took)
			}
			open, err := filepath.Glob("/proc/self/fd/*")
			if err != nil {
				t.Fatal(err)
			}
			for _, fd := range open {
				if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, h.dir) {
					t.Errorf("%s: %s is open", tc.what, to)
				}
			}
			if left, err := os.ReadDir(h.dir); err != nil || len(left) > 0 {
				t.Errorf("%s: %v is left, %v", tc.what, left, err)
			}
		})
	}
}
