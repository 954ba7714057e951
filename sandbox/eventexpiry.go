package sandbox

import (
	"context"
	"sync/atomic"
	"time"

	"snapfs/sandbox/internal/catalog"
)

// What a home keeps of its event log where EventLimits do not say.
const (
	DefaultEvents    = 100_000
	DefaultEventsAge = 90 * 24 * time.Hour
)

// EventLimits bound the event log of a home. Events that are too old expire, and the oldest ones beyond the number.
// What is kept is shared evenly among the sessions that own workspaces, and among the workspaces of each; a share that
// is not needed goes to the others. So a workspace with many events loses its own. Events at warn level, which are the
// audit trail, are kept four times as long, and up to half of the number are theirs. The event that says who made a
// workspace stays with it.
type EventLimits struct {
	Keep int           // of the home; 0 = DefaultEvents, below 0 = any number
	Age  time.Duration // 0 = DefaultEventsAge, below 0 = for ever
}

const (
	warnAges = 4 // how many times as long events at warn level are kept
	// Events are looked for when there are so many more than are to be kept, one of so many parts, or when the oldest is
	// older by one of so many parts: each time all are read.
	eventsSlack = 10
)

func (l EventLimits) rules() catalog.EventRules {
	if l.Keep == 0 {
		l.Keep = DefaultEvents
	}
	if l.Age == 0 {
		l.Age = DefaultEventsAge
	}
	r := catalog.EventRules{Most: max(l.Keep, 0), Age: max(l.Age, 0)}
	if r.Age > 0 {
		r.WarnAge = warnAges * min(r.Age, 1<<62/warnAges)
	}
	return r
}

// eventExpiry removes events that are not to be kept. One goroutine uses it, except rules and count.
type eventExpiry struct {
	rules atomic.Pointer[catalog.EventRules]
	count atomic.Int64 // events, if counted; and those that were added since

	used  *catalog.EventRules // for which known and due are right
	known bool                // they were counted
	due   time.Time           // when the next one is too old; zero = never
}

// expireEvents removes the events that are too old or too many, if there may be any.
func (h *Home) expireEvents(ctx context.Context) error {
	x := &h.events
	rules := x.rules.Load()
	if rules != x.used {
		x.used, x.known = rules, false
	}
	most := int64(rules.Most)
	many := most > 0 && x.count.Load() > most+most/eventsSlack
	old := !x.due.IsZero() && h.now().After(x.due.Add(rules.Age/eventsSlack))
	if x.known && !many && !old {
		return nil
	}
	added := x.count.Load()
	n, err := h.catalog.ExpireEvents(ctx, *rules)
	if n.Removed > 0 {
		h.log.Info("events expired", "removed", n.Removed, "kept", n.Left)
	}
	if err != nil {
		return err
	}
	x.count.Add(int64(n.Left) - added)
	x.known, x.due = true, n.Due
	return nil
}
