package transport

import "snapfs/internal/iouring"

const (
	// ageLooks is how many looks of the watchdog, and so milliseconds of a busy lane, its clock counts as one.
	ageLooks = 1000
	// reclaimAge is by how much an entry's clock must be behind for it to be idle.
	reclaimAge = 2
	// reclaimBatch is how many payloads a hand gives back between two requests.
	reclaimBatch = 8
)

// recall has the hands give memory back whose entries have some. Under mu.
func (l *lane) recall() {
	for _, e := range l.dirty {
		if e.owner != nil && l.clock-e.clock >= reclaimAge {
			e.owner.reclaim = true
		}
	}
	if l.main.reclaim {
		l.rouse()
	}
	if l.ring.Queued() > 0 {
		return // main is about to submit; whoever comes now would do it for it, and nobody knew whose entries they are
	}
	for i := len(l.spare) - 1; i >= 0; i-- {
		if l.spare[i].reclaim {
			l.summon(i)
		}
	}
}

// giveBack frees the memory of payloads that were not used for a while, and says whether there are more. A hand does it
// for the entries that it submitted itself, because the kernel fills these at no other time than when that thread
// leaves the kernel. Under mu.
func (l *lane) giveBack(h *hand) (more bool) {
	l.drain(h)
	l.submit(h)
	if l.ring.Queued() > 0 {
		return true // an answer that was not handed in must not be lost
	}
	done := 0
	kept := l.dirty[:0]
	for _, e := range l.dirty {
		idle := e.armed && e.owner == h && l.clock-e.clock >= reclaimAge
		if idle && done < reclaimBatch {
			done++
			e.dirty = false
			l.empty(e)
			continue
		}
		more = more || idle
		kept = append(kept, e)
	}
	clear(l.dirty[len(kept):])
	l.dirty = kept
	return more
}

// empty gives the memory of one payload back. A request that came just before, and is not taken yet, is kept.
func (l *lane) empty(e *entry) {
	n := pages(e.used)
	if l.attic.take(e.slot.payload, n) != 0 {
		return // out of memory, of all things: it stays
	}
	e.used = 0
	l.ring.Waiting(func(c iouring.CQE) bool {
		if c.UserData == uint64(e.id) && c.Res == 0 {
			if _, size := e.sizes(); size > 0 && size <= len(e.slot.payload) {
				l.attic.giveBack(e.slot.payload, size)
			}
			return false
		}
		return true
	})
	l.attic.drop(n)
}
