package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/errclass"
)

// EventRules say which events are kept.
type EventRules struct {
	Most int           // so many of a home; 0 = any number
	Age  time.Duration // at info level; 0 = for ever
	// WarnAge is the same for warnings, which are the audit trail.
	WarnAge time.Duration
}

// Events at warn level have up to this share, one of so many parts, of EventRules.Most for themselves.
const warnShare = 2

// eventsAtOnce is how many events one transaction removes.
const eventsAtOnce = 256

// EventCount is what ExpireEvents left.
type EventCount struct {
	Removed int
	Left    int       // that count for EventRules.Most
	Due     time.Time // when the next one is too old; zero = never
}

// levels are counts by level of events.
type levels struct{ info, warn int }

func (l *levels) of(warn bool) *int {
	if warn {
		return &l.warn
	}
	return &l.info
}

// logCount counts the log of a workspace.
type logCount struct {
	owner  string // of the workspace, as of its newest life
	newest string // id
	young  levels // events that are not too old
}

// ExpireEvents removes events that are too old, and the oldest ones beyond the most that a home keeps. What is kept is
// shared evenly: first among the sessions that own workspaces, then among the workspaces of each. A share that is not
// needed goes to the others. So a workspace with many events loses its own, and none of another. Warnings and other
// events have shares of their own.
//
// The event that says who made a workspace stays as long as any event of the same life of that name, and as long as the
// workspace: it says to whom they belong.
//
// Removals are small transactions; memory grows with the number of workspaces in the log.
func (c *Catalog) ExpireEvents(ctx context.Context, r EventRules) (EventCount, error) {
	now := c.Now()
	counts := map[string]*logCount{}
	if err := c.scanEvents(ctx, func(e api.Event) error {
		n := counts[e.Workspace]
		if n == nil {
			n = &logCount{owner: e.Session}
			if e.Workspace == "" {
				n.owner = ""
			}
			counts[e.Workspace] = n
		}
		if n.newest = e.ID; e.Begins() {
			n.owner = e.Session
		}
		if _, old := r.due(e, now); !old {
			*n.young.of(isWarning(e))++
		}
		return nil
	}); err != nil {
		return EventCount{}, err
	}
	x := &expirer{catalog: c, rules: r, now: now, over: r.surplus(counts)}
	err := c.scanEvents(ctx, func(e api.Event) error { return x.event(ctx, e) })
	if err == nil {
		err = x.end(ctx)
	}
	return x.count, err
}

func isWarning(e api.Event) bool { return e.Level == "warn" }

// due is when an event is too old, zero for never, and whether it is.
func (r EventRules) due(e api.Event, now time.Time) (time.Time, bool) {
	age := r.Age
	if isWarning(e) {
		age = r.WarnAge
	}
	if age == 0 {
		return time.Time{}, false
	}
	at := e.At.Add(age)
	return at, !at.After(now)
}

// surplus says how many of the oldest events of each workspace go although they are not too old.
func (r EventRules) surplus(counts map[string]*logCount) map[string]*levels {
	if r.Most == 0 {
		return nil
	}
	total := levels{}
	over := map[string]*levels{}
	for name, n := range counts {
		total.info += n.young.info
		total.warn += n.young.warn
		over[name] = &levels{}
	}
	if total.info+total.warn <= r.Most {
		return nil
	}
	most := levels{warn: min(total.warn, max(r.Most/warnShare, r.Most-total.info))}
	most.info = r.Most - most.warn
	for _, warn := range []bool{false, true} {
		logs := map[string][]want{} // by session
		for name, n := range counts {
			logs[n.owner] = append(logs[n.owner], want{name, n.newest, *n.young.of(warn)})
		}
		var sessions []want
		for session, of := range logs {
			all := want{name: session}
			for _, w := range of {
				all.count += w.count
				all.newest = max(all.newest, w.newest)
			}
			sessions = append(sessions, all)
		}
		for session, has := range shares(sessions, *most.of(warn)) {
			for name, n := range shares(logs[session], has) {
				*over[name].of(warn) = *counts[name].young.of(warn) - n
			}
		}
	}
	return over
}

// want is how many events a workspace or a session has.
type want struct {
	name, newest string
	count        int
}

// shares says who keeps how many of most events: as many as they have of those who have few, and equal shares for the
// others. What cannot be divided goes to those with the newest events.
func shares(wants []want, most int) map[string]int {
	slices.SortFunc(wants, func(a, b want) int { return cmp.Compare(a.count, b.count) })
	keep := map[string]int{}
	for i, w := range wants {
		rest := wants[i:]
		if w.count <= most/len(rest) {
			keep[w.name] = w.count
			most -= w.count
			continue
		}
		slices.SortFunc(rest, func(a, b want) int { return cmp.Compare(b.newest, a.newest) })
		for k, w := range rest {
			if keep[w.name] = most / len(rest); k < most%len(rest) {
				keep[w.name]++
			}
		}
		break
	}
	return keep
}

// expirer removes events. It is given all of them in the order of their keys: workspace by workspace, each in order of
// time.
type expirer struct {
	catalog *Catalog
	rules   EventRules
	now     time.Time
	over    map[string]*levels // to be removed yet although they are not too old
	count   EventCount

	workspace string
	made      *api.Event // what made the workspace, if it is to be removed unless something that came after it is kept
	gone      []api.Event
}

func (x *expirer) event(ctx context.Context, e api.Event) error {
	if e.Workspace != x.workspace {
		x.endLog()
		x.workspace = e.Workspace
	}
	due, old := x.rules.due(e, x.now)
	over := x.over[e.Workspace]
	tooMany := !old && over != nil && *over.of(isWarning(e)) > 0
	if tooMany {
		*over.of(isWarning(e))--
	}
	if e.Begins() && x.made != nil { // nothing is left of the life before
		x.gone = append(x.gone, *x.made)
		x.made = nil
	}
	switch {
	case e.Begins() && (old || tooMany):
		x.made = &e // it stays if something that came after it does
	case old || tooMany:
		x.gone = append(x.gone, e)
	default:
		x.made = nil
		x.count.Left++
		if !due.IsZero() && (x.count.Due.IsZero() || due.Before(x.count.Due)) {
			x.count.Due = due
		}
	}
	if len(x.gone) >= eventsAtOnce {
		return x.remove(ctx)
	}
	return nil
}

// endLog decides what becomes of the event that made the last workspace.
func (x *expirer) endLog() {
	if x.made != nil && x.catalog.Workspace(x.workspace) == nil {
		x.gone = append(x.gone, *x.made)
	}
	x.made = nil
}

func (x *expirer) end(ctx context.Context) error {
	x.endLog()
	return x.remove(ctx)
}

func (x *expirer) remove(ctx context.Context) error {
	for some := range slices.Chunk(x.gone, eventsAtOnce) {
		if _, err := x.catalog.Update(ctx, true, func(ch *Change) error {
			ch.delEvents = some
			return nil
		}); err != nil {
			return err
		}
		x.count.Removed += len(some)
	}
	x.gone = x.gone[:0]
	return nil
}

// scanEvents calls fn for all events in the order of their keys, of any kind. No transaction is open meanwhile.
func (c *Catalog) scanEvents(ctx context.Context, fn func(api.Event) error) error {
	for _, bucket := range eventBuckets {
		if err := c.scanBucket(ctx, bucket, fn); err != nil {
			return err
		}
	}
	return nil
}

// scanBucket is scanEvents of one bucket.
func (c *Catalog) scanBucket(ctx context.Context, bucket string, fn func(api.Event) error) error {
	for from := ""; ; {
		var page []api.Event
		if err := c.store.View(ctx, func(tx *chunkstore.Tx) error {
			return tx.Scan(bucket, from, func(key string, value []byte) (bool, error) {
				from = key + "\x00"
				var e api.Event
				if err := json.Unmarshal(value, &e); err != nil || eventKey(e) != key {
					return true, nil // damaged: who reads it is told, and nothing is known of it
				}
				page = append(page, e)
				return len(page) < eventPage, nil
			})
		}); err != nil {
			return errclass.Mark(err)
		}
		for _, e := range page {
			if err := fn(e); err != nil {
				return err
			}
		}
		if len(page) < eventPage {
			return nil
		}
	}
}
