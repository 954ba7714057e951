package sandbox

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestCourtesy has background work stand back for a call and a moment beyond it, and for endless calls only half of the time.
func TestCourtesy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCourtesy()
		stood := func() time.Duration {
			start := time.Now()
			c.giveWay(t.Context())
			return time.Since(start)
		}
		if got := stood(); got != 0 {
			t.Errorf("without a call: stood back for %v", got)
		}
		leave := c.enter()
		time.AfterFunc(20*time.Millisecond, leave)
		if got := stood(); got != 20*time.Millisecond+standAfter {
			t.Errorf("for a call of 20 ms: stood back for %v", got)
		}

		time.Sleep(standMost) // at work
		leave = c.enter()
		if got := stood(); got != standMost {
			t.Errorf("for a call without end: stood back for %v", got)
		}
		for range 5 {
			time.Sleep(50 * time.Millisecond) // at work
			if got := stood(); got != 50*time.Millisecond {
				t.Errorf("after 50 ms of work: stood back for %v", got)
			}
		}
		leave()

		time.Sleep(standMost)
		leave = c.enter()
		defer leave()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		if c.giveWay(ctx); time.Since(start) != 0 {
			t.Error("stood back after the end of the work")
		}
	})
}
