package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"snapfs/internal/lockorder"
	"snapfs/sandbox/api"
)

// maxBehind is how many events a follower may be behind before it is given up.
const maxBehind = 1 << 16

// Events calls fn for the events that the asker may see, oldest first: of one workspace, which may be gone, or of all.
// With Follow it goes on with what happens from then on, until ctx ends, whose error it gives. An event of a kind that
// this version does not know is ErrCorrupt. An error of fn ends it. Safe for concurrent use.
func (h *Home) Events(ctx context.Context, r EventsRequest, fn func(Event) error) error {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	who, err := newAsker(ctx, r.Access)
	if err != nil {
		return err
	}
	session := who.session
	if r.Workspace, err = h.workspaceName(who, r.Workspace); err != nil {
		return err
	}
	if r.After != "" && !api.IsID(r.After) {
		return fmt.Errorf("%w: cursor %s is not the id of an event", ErrInvalid, api.Quoted(r.After))
	}
	var follow *follower
	if r.Follow {
		follow = h.followers.add()
		defer h.followers.remove(follow)
	}
	v := viewer{access: r.Access, session: session, after: r.After, since: r.Since, owners: map[string]string{}, crossed: crossing{}}
	newest := "" // ids grow in the order of commits: a follower may meet those up to here again
	sent := 0
	if err := h.catalog.Events(ctx, r.Workspace, func(e Event) error {
		newest = e.ID
		if !v.sees(e) {
			return nil
		}
		sent++
		return fn(e)
	}); err != nil {
		return err
	}
	if err := v.crossed.audit(ctx, h, session, "events"); err != nil {
		return err
	}
	if r.Workspace != "" && len(v.owners) == 0 {
		return fmt.Errorf("%w: workspace %s", ErrNotFound, api.Quoted(r.Workspace))
	}
	if owner, ok := v.owners[r.Workspace]; ok && sent == 0 && !r.Allows(owner, session) {
		return refused("workspace", r.Workspace)
	}
	if r.Follow { // a call that only listens leaves the home idle
		h.idler.leave()
		defer h.idler.enter()
	}
	for r.Follow {
		next, err := follow.wait(ctx)
		if err != nil {
			return err
		}
		for _, e := range next {
			if r.Workspace != "" && e.Workspace != r.Workspace || e.ID <= newest || !v.sees(e) {
				continue
			}
			if err := fn(e); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// event makes an entry of a workspace's log. It gets its id when it is written.
func (h *Home) event(kind EventKind, workspace, session, snapshot, detail string) Event {
	return Event{
		Workspace: workspace, Kind: kind, At: h.now(), Session: session, Snapshot: snapshot,
		Level: "info", Detail: detail,
	}
}

// viewer decides which events a call sees.
type viewer struct {
	access  Access
	session string
	after   string
	since   *time.Time
	owners  map[string]string // of workspaces, as of the newest event seen
	crossed crossing
}

// sees takes an event into account, in order of time, and reports whether the call gives it. A name may belong to
// one session after another: the log of each life is its owner's.
func (v *viewer) sees(e Event) bool {
	owner, met := v.owners[e.Workspace]
	if e.Workspace == "" {
		owner = cmp.Or(e.Owner, e.Session) // each is of the session that it is about
	} else if e.Begins() || !met {
		owner = e.Session
		v.owners[e.Workspace] = owner
	}
	if e.ID <= v.after || v.since != nil && e.At.Before(*v.since) || !v.access.Allows(owner, v.session) {
		return false
	}
	if e.Workspace != "" {
		v.crossed.note(owner, v.session, e.Workspace)
	}
	return true
}

// followers pass events on as they become durable. The zero value is ready.
type followers struct {
	mu  lockorder.Mutex[lockorder.Followers]
	all map[*follower]bool // guarded by mu
}

// follower is one call that follows the log.
type follower struct {
	wake chan struct{} // of capacity 1

	mu     lockorder.Mutex[lockorder.Follower]
	queue  []Event // guarded by mu
	behind bool    // guarded by mu: the queue was full once
}

func (f *followers) add() *follower {
	w := &follower{wake: make(chan struct{}, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[*follower]bool{}
	}
	f.all[w] = true
	return w
}

func (f *followers) remove(w *follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, w)
}

// tell gives all followers events that have just become durable; it never waits.
func (f *followers) tell(events []Event) {
	if len(events) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.all {
		w.put(events)
	}
}

func (w *follower) put(events []Event) {
	w.mu.Lock()
	if len(w.queue)+len(events) > maxBehind {
		w.behind = true
	} else {
		w.queue = append(w.queue, events...)
	}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// wait waits for events or for ctx.
func (w *follower) wait(ctx context.Context) ([]Event, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-w.wake:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.behind {
		return nil, fmt.Errorf("%w: more than %d events behind: ask again with the last one as cursor",
			ErrUnavailable, maxBehind)
	}
	next := w.queue
	w.queue = nil
	return next, nil
}
