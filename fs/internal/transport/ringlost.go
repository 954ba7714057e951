package transport

// awayLooks is at how many looks of the watchdog, and so milliseconds, a thread must be found at the same request, where no signal reaches
// it, before its entries are written off.
const awayLooks = 4

// writeOff makes up for entries that are out of reach. The kernel copies a request into an entry in the thread that submitted it, when
// that leaves the kernel; one that hangs in a host which is frozen does not. What is sent to its entries has to wait for it, but as
// the kernel takes the entry first that was handed in last, new ones keep all further requests from them, and from others that lie below:
//
//	new ── new ── lost ── lost ── buried ── lost
//	 ▲ the next request
//
// Every queue of the lane that has some gets new ones. Under mu; who calls has a thread look at the backlog.
func (l *lane) writeOff(h *hand) {
	last := make(map[*queue]uint64)
	for _, e := range l.entries {
		if e != nil && e.armed && e.owner == h {
			last[e.q] = max(last[e.q], e.turn)
		}
	}
	for _, e := range l.entries {
		if e != nil && e.armed && !e.lost && e.turn <= last[e.q] {
			e.lost = true
			e.q.lost++
		}
	}
	for q := range last {
		q.grow()
	}
	l.rouse()
}

// restore counts all entries again that are within reach, as a thread has come back. Under mu.
func (l *lane) restore() {
	for _, e := range l.entries {
		if e != nil {
			l.regain(e)
		}
	}
	for _, h := range l.duty {
		if h.away {
			l.writeOff(h)
		}
	}
}

// regain counts one entry again. Under mu.
func (l *lane) regain(e *entry) {
	if e.lost {
		e.lost = false
		e.q.lost--
	}
}
