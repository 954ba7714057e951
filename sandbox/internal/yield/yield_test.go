package yield

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestYield has background work stand back for a call and a moment beyond it, and for endless calls only half of the
// time.
func TestYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := New()
		stood := func() time.Duration {
			start := time.Now()
			y.Yield(t.Context())
			return time.Since(start)
		}
		if got := stood(); got != 0 {
			t.Errorf("without a call: stood back for %v", got)
		}
		end := y.Begin()
		time.AfterFunc(20*time.Millisecond, end)
		if got := stood(); got != 20*time.Millisecond+standAfter {
			t.Errorf("for a call of 20 ms: stood back for %v", got)
		}

		time.Sleep(standMost) // at work
		end = y.Begin()
		if got := stood(); got != standMost {
			t.Errorf("for a call without end: stood back for %v", got)
		}
		for range 5 {
			time.Sleep(50 * time.Millisecond) // at work
			if got := stood(); got != 50*time.Millisecond {
				t.Errorf("after 50 ms of work: stood back for %v", got)
			}
		}
		end()

		time.Sleep(standMost)
		end = y.Begin()
		defer end()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		if y.Yield(ctx); time.Since(start) != 0 {
			t.Error("stood back after the end of the work")
		}
	})
}
