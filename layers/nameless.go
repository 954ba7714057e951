package layers

// Counts reports whether what the overlay takes is counted, so that a limit may refuse changes.
func (o *Overlay) Counts() bool { return o.counts() }

// Freed counts the changes that have given room back.
func (o *Overlay) Freed() uint64 {
	if o.opts.Account == nil {
		return 0
	}
	return o.opts.Account.freed.Load()
}

// Nameless gives nodes without a name, of each kind most at most: what they take comes back when the kernel forgets
// them. left are those that the process before has left, which may have been forgotten already, see Reconcile.
func (o *Overlay) Nameless(most int) (own, left []NodeID) {
	if !o.counts() {
		return nil, nil
	}
	l := o.lockLedger()
	for n := range l.nameless {
		if n.inherited && len(left) < most {
			left = append(left, n.id)
		} else if !n.inherited && len(own) < most {
			own = append(own, n.id)
		}
	}
	l.mu.Unlock()
	t := &o.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live == nil || t.live.past == nil {
		return own, left
	}
	for id := range t.live.past.orphans {
		if len(left) >= most {
			break
		}
		left = append(left, id)
	}
	return own, left
}
