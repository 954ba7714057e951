package transport

// park takes a substitute out of service. With mu held.
func (l *lane) park(h *thread) {
	for i, d := range l.serving {
		if d == h {
			l.serving = append(l.serving[:i], l.serving[i+1:]...)
			break
		}
	}
	l.parked = append(l.parked, h)
	if h.writtenOff { // the watchdog does not look at it from now on
		h.writtenOff = false
		l.regainAll()
	}
}

// check is called by the watchdog. When the lane is not watched, its thread has no idle priority.
func (l *lane) check() (stuck, rest bool) {
	c := l.main.sched.Load()
	c.check()
	if stuck, rest = l.checkServing(); rest {
		c.unwatch()
	}
	return stuck, rest
}

// checkServing reports with stuck that all serving threads are at the same requests as at the last look, and with rest
// that there is nothing left to watch.
func (l *lane) checkServing() (stuck, rest bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.looks++; l.looks%ageLooks == 0 {
		l.clock++
		l.requestReclaim()
	}
	stuck = l.waiting == 0
	idle := l.waiting > 0
	for _, h := range l.serving {
		seq := h.seq.Load()
		if seq%2 == 0 || seq != h.seen {
			stuck = false
			h.same = 0
			if h.writtenOff {
				h.writtenOff = false
				l.regainAll()
			}
		} else if h.same++; h.same%writeOffLooks == 0 && !h.writtenOff && uninterruptible(h.tid) {
			h.writtenOff = true
			l.writeOff(h)
		}
		idle = idle && seq%2 == 0
		h.seen = seq
	}
	if idle && !l.sawRequests && len(l.dirty) == 0 {
		l.watched.Store(false)
		return false, true
	}
	l.sawRequests = false
	return stuck, false
}

// rescue unparks or starts a substitute, and makes sure that there are entries left for the mounts whose requests take
// so long.
func (l *lane) rescue() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting > 0 || len(l.serving) > maxBusy {
		return
	}
	for _, h := range l.serving {
		if h.e == nil {
			continue
		}
		h.e.q.grow()
		if h.e.kind != prompt && !h.e.stuck {
			h.e.stuck = true
			h.e.q.u.work[h.e.kind].addStuck()
		}
	}
	if n := len(l.parked); n > 0 {
		l.unpark(n - 1)
		return
	}
	l.startThread()
}

// unpark puts a substitute into service. With mu held.
func (l *lane) unpark(i int) {
	h := l.parked[i]
	l.parked = append(l.parked[:i], l.parked[i+1:]...)
	l.serving = append(l.serving, h)
	h.resume <- struct{}{}
}
