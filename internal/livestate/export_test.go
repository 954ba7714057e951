package livestate

import (
	"time"

	"snapfs/internal/processes"
)

// Began gives when a process began, as claims have it.
func Began(pid int) uint32 {
	began, _ := processes.Life(pid)
	return began
}

// Age has requests look as if they had been opened earlier.
func (r *Requests) Age(by time.Duration) { r.opened = r.opened.Add(-by) }
