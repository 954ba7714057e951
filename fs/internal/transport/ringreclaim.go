package transport

import "snapfs/internal/iouring"

const (
	// ageLooks is how many looks of the watchdog, and so milliseconds of a busy lane, its clock counts as one.
	ageLooks = 1000
	// reclaimAge is by how much an entry's clock must be behind for it to be idle.
	reclaimAge = 2
	// reclaimBatch is how many payloads a thread reclaims between two requests.
	reclaimBatch = 8
)

// requestReclaim has threads reclaim the memory of the idle entries that they submitted. With mu held.
func (l *lane) requestReclaim() {
	for _, e := range l.dirty {
		if e.owner != nil && l.clock-e.clock >= reclaimAge {
			e.owner.reclaim = true
		}
	}
	if l.main.reclaim {
		l.wakeUp()
	}
	if l.ring.Queued() > 0 {
		return // main is about to submit; a thread that did so in its place would be taken for the owner of the entries
	}
	for i := len(l.parked) - 1; i >= 0; i-- {
		if l.parked[i].reclaim {
			l.unpark(i)
		}
	}
}

// reclaim frees the memory of payloads that were not used for a while, and reports whether there are more. A thread
// does it for the entries that it submitted itself, because the kernel fills these only when that thread leaves the
// kernel. With mu held.
func (l *lane) reclaim(h *thread) (more bool) {
	l.drain(h)
	l.submit(h)
	if l.ring.Queued() > 0 {
		return true // an answer that was not submitted must not be lost
	}
	done := 0
	kept := l.dirty[:0]
	for _, e := range l.dirty {
		idle := e.armed && e.owner == h && l.clock-e.clock >= reclaimAge
		if idle && done < reclaimBatch {
			done++
			e.dirty = false
			l.reclaimPayload(e)
			continue
		}
		more = more || idle
		kept = append(kept, e)
	}
	clear(l.dirty[len(kept):])
	l.dirty = kept
	return more
}

// reclaimPayload frees the memory of one payload. A request that came just before, and is not taken yet, is kept.
func (l *lane) reclaimPayload(e *entry) {
	n := pages(e.used)
	if l.scratch.moveOut(e.slot.payload, n) != 0 {
		return // no memory for the page tables: the payload stays
	}
	e.used = 0
	l.ring.Waiting(func(c iouring.CQE) bool {
		if c.UserData == uint64(e.id) && c.Res == 0 {
			if _, size := e.sizes(); size > 0 && size <= len(e.slot.payload) {
				l.scratch.moveBack(e.slot.payload, size)
			}
			return false
		}
		return true
	})
	l.scratch.discard(n)
}
