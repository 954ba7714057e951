package transport

// writeOffLooks is at how many looks of the watchdog, and so milliseconds, a thread must be found at the same request,
// where no signal reaches it, before its entries are written off.
const writeOffLooks = 4

// writeOff makes up for entries that are out of reach. The kernel copies a request into an entry in the thread that
// submitted it, when that leaves the kernel; one that hangs in a frozen host does not. What is sent to its entries has
// to wait for it, but as the kernel takes the entry first that was submitted last, new ones keep all further requests
// from them, and from others below them:
//
//	new ── new ── lost ── lost ── covered ── lost
//	 ▲ the next request
//
// Every queue of the lane that has lost entries gets new ones. With mu held.
func (l *lane) writeOff(h *thread) {
	last := make(map[*queue]uint64)
	for _, e := range l.entries {
		if e != nil && e.armed && e.owner == h {
			last[e.q] = max(last[e.q], e.order)
		}
	}
	for _, e := range l.entries {
		if e != nil && e.armed && !e.lost && e.order <= last[e.q] {
			e.lost = true
			e.q.lost++
		}
	}
	for q := range last {
		q.grow()
	}
	l.wakeUp()
}

// regainAll counts the entries as available that are within reach, as a thread has returned. With mu held.
func (l *lane) regainAll() {
	for _, e := range l.entries {
		if e != nil {
			l.regain(e)
		}
	}
	for _, h := range l.serving {
		if h.writtenOff {
			l.writeOff(h)
		}
	}
}

// regain counts one entry as available. With mu held.
func (l *lane) regain(e *entry) {
	if e.lost {
		e.lost = false
		e.q.lost--
	}
}
