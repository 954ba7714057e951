package transport

// dismiss sends a substitute into leisure. Under mu.
func (l *lane) dismiss(h *hand) {
	for i, d := range l.duty {
		if d == h {
			l.duty = append(l.duty[:i], l.duty[i+1:]...)
			break
		}
	}
	l.spare = append(l.spare, h)
	if h.away { // nobody looks at it from now on
		h.away = false
		l.restore()
	}
}

// look is the watchdog's. When it rests, so does the courtesy.
func (l *lane) look() (stuck, rest bool) {
	c := l.main.courtesy.Load()
	c.look()
	if stuck, rest = l.lookAtDuty(); rest {
		c.leave()
	}
	return stuck, rest
}

// lookAtDuty says with stuck that all threads on duty are handling the same requests as last time, and with rest that
// there is nothing left to watch.
func (l *lane) lookAtDuty() (stuck, rest bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.looks++; l.looks%ageLooks == 0 {
		l.clock++
		l.recall()
	}
	stuck = l.waiting == 0
	idle := l.waiting > 0
	for _, h := range l.duty {
		seq := h.seq.Load()
		if seq%2 == 0 || seq != h.seen {
			stuck = false
			h.same = 0
			if h.away {
				h.away = false
				l.restore()
			}
		} else if h.same++; h.same%awayLooks == 0 && !h.away && uninterruptible(h.tid) {
			h.away = true
			l.writeOff(h)
		}
		idle = idle && seq%2 == 0
		h.seen = seq
	}
	if idle && !l.active && len(l.dirty) == 0 {
		l.watched.Store(false)
		return false, true
	}
	l.active = false
	return stuck, false
}

// rescue calls a substitute, and makes sure that there are entries left for the mounts whose requests take so long.
func (l *lane) rescue() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting > 0 || len(l.duty) > maxBusy {
		return
	}
	for _, h := range l.duty {
		if h.e == nil {
			continue
		}
		h.e.q.grow()
		if h.e.kind != prompt && !h.e.stuck {
			h.e.stuck = true
			h.e.q.u.lines[h.e.kind].stuck()
		}
	}
	if n := len(l.spare); n > 0 {
		l.summon(n - 1)
		return
	}
	l.hire()
}

// summon ends the leisure of a substitute. Under mu.
func (l *lane) summon(i int) {
	h := l.spare[i]
	l.spare = append(l.spare[:i], l.spare[i+1:]...)
	l.duty = append(l.duty, h)
	h.call <- struct{}{}
}
