package catalog

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"snapfs/chunkstore"
	"snapfs/internal/testseed"
	"snapfs/sandbox/api"
)

// eventHome is a catalog with a clock, whose log tests write.
type eventHome struct {
	*Catalog
	t   *testing.T
	now time.Time
}

func newEventHome(t *testing.T) *eventHome {
	t.Helper()
	s, err := chunkstore.Open(t.TempDir(), chunkstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	h := &eventHome{t: t, now: time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)}
	if h.Catalog, err = Open(t.Context(), s, Options{Clock: func() time.Time { return h.now }}); err != nil {
		t.Fatal(err)
	}
	return h
}

// add writes n events of a kind, a second apart.
func (h *eventHome) add(n int, workspace, session string, kind api.EventKind) {
	h.t.Helper()
	for range n {
		h.now = h.now.Add(time.Second)
		e := api.Event{Workspace: workspace, Session: session, Kind: kind, At: h.now, Level: "info"}
		if kind == api.EventCrossSession {
			e.Level = "warn"
		}
		if _, err := h.Update(h.t.Context(), false, func(ch *Change) error {
			if ch.Events = []api.Event{e}; kind == api.EventCreated {
				ch.PutWorkspaces = []*Workspace{{ID: workspace, Session: session}}
			}
			if kind == api.EventDestroyed {
				ch.DelWorkspaces = []*Workspace{h.Workspace(workspace)}
			}
			return nil
		}); err != nil {
			h.t.Fatal(err)
		}
	}
}

// log lists the events of a workspace, or of all, which must be in order.
func (h *eventHome) log(workspace string) []api.Event {
	h.t.Helper()
	var all []api.Event
	if err := h.Events(h.t.Context(), workspace, func(e api.Event) error {
		if len(all) > 0 && e.ID <= all[len(all)-1].ID {
			h.t.Errorf("event %s is not in order", e.ID)
		}
		all = append(all, e)
		return nil
	}); err != nil {
		h.t.Fatal(err)
	}
	return all
}

// count counts the events of a workspace, at info and at warn level.
func (h *eventHome) count(workspace string) (n levels) {
	h.t.Helper()
	for _, e := range h.log(workspace) {
		*n.of(isWarning(e))++
	}
	return n
}

func (h *eventHome) expire(r EventRules) EventCount {
	h.t.Helper()
	n, err := h.ExpireEvents(h.t.Context(), r)
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

// TestEventsShared fills the log from one workspace: it loses its own events, and neither those of others nor the one
// that says whose it is.
func TestEventsShared(t *testing.T) {
	h := newEventHome(t)
	h.add(1, "quiet", "mine", api.EventCreated)
	h.add(9, "quiet", "mine", api.EventSnapshotted)
	h.add(3, "quiet", "theirs", api.EventCrossSession)
	h.add(1, "noisy", "theirs", api.EventCreated)
	h.add(700, "noisy", "theirs", api.EventSnapshotted)
	h.add(20, "noisy", "mine", api.EventCrossSession)
	n := h.expire(EventRules{Most: 100})
	if got := h.count("quiet"); got != (levels{10, 3}) {
		t.Errorf("of the quiet workspace %+v are left", got)
	}
	if got := h.count("noisy"); got != (levels{100 - 23 - 10 + 1, 20}) { // and the one that made it
		t.Errorf("of the noisy workspace %+v are left", got)
	}
	noisy := h.log("noisy")
	if noisy[0].Kind != api.EventCreated || noisy[0].Session != "theirs" {
		t.Errorf("the log begins with %+v", noisy[0])
	}
	if n.Removed != 701-68 || n.Left != 100 {
		t.Errorf("%+v", n)
	}
	if again := h.expire(EventRules{Most: 100}); again.Removed != 0 {
		t.Errorf("again: %+v", again)
	}
	// Warnings have half of the log at most, if others need the rest.
	h.add(200, "noisy", "mine", api.EventCrossSession)
	h.expire(EventRules{Most: 100})
	if q, n := h.count("quiet"), h.count("noisy"); q != (levels{10, 3}) || n.warn != 47 || q.info+n.info != 51 {
		t.Errorf("quiet %+v, noisy %+v", q, n)
	}
	// One session with many workspaces does not push out another.
	for i := range 60 {
		h.add(1, fmt.Sprint("w", i), "theirs", api.EventCreated)
		h.add(4, fmt.Sprint("w", i), "theirs", api.EventSnapshotted)
	}
	h.expire(EventRules{Most: 100})
	if got := h.count("quiet"); got != (levels{10, 3}) {
		t.Errorf("of the quiet workspace %+v are left", got)
	}
}

// TestEventsAge lets events become old: warnings are kept for longer, and what says whose a workspace is as long as
// that exists.
func TestEventsAge(t *testing.T) {
	h := newEventHome(t)
	rules := EventRules{Age: time.Hour, WarnAge: 4 * time.Hour}
	for _, name := range []string{"stays", "goes", "comes back"} {
		h.add(1, name, "mine", api.EventCreated)
		h.add(5, name, "mine", api.EventSnapshotted)
		h.add(1, name, "other", api.EventCrossSession)
	}
	h.add(1, "goes", "mine", api.EventDestroyed)
	h.add(1, "comes back", "mine", api.EventDestroyed)
	n := h.expire(rules)
	if n.Removed != 0 || !n.Due.After(h.now) {
		t.Fatalf("nothing is old: %+v", n)
	}
	h.now = h.now.Add(2 * time.Hour)
	h.add(1, "comes back", "yours", api.EventCreated)
	h.expire(rules)
	for _, name := range []string{"stays", "goes"} {
		if log := h.log(name); len(log) != 2 || log[0].Session != "mine" || log[1].Session != "other" {
			t.Errorf("%s: %v", name, log)
		}
	}
	if log := h.log("comes back"); len(log) != 3 || log[0].Session != "mine" || log[2].Session != "yours" {
		t.Errorf("comes back: %v", log)
	}
	h.now = h.now.Add(3 * time.Hour)
	h.expire(rules)
	if log := h.log("goes"); len(log) != 0 {
		t.Errorf("goes: %v", log)
	}
	for name, owner := range map[string]string{"stays": "mine", "comes back": "yours"} {
		if log := h.log(name); len(log) != 1 || log[0].Session != owner {
			t.Errorf("%s: %v", name, log)
		}
	}
}

// TestEventsInOrder reads the logs of many workspaces with room for a few keys.
func TestEventsInOrder(t *testing.T) {
	h := newEventHome(t)
	for i := range 300 {
		h.add(1, fmt.Sprint("w", i*7%13), "s", api.EventSnapshotted)
	}
	var want, got []string
	for _, e := range h.log("") {
		want = append(want, eventKey(e))
	}
	for next := h.keysInOrder(7); ; {
		keys, err := next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 0 {
			break
		}
		if len(keys) > 7 {
			t.Fatalf("%d keys", len(keys))
		}
		got = append(got, keys...)
	}
	if len(got) != 300 || !slices.Equal(got, want) {
		t.Errorf("%d events, want %d in the same order", len(got), len(want))
	}
}

// TestShares divides numbers of events: nothing is left over that someone could keep, and who has few loses none before
// those with more.
func TestShares(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 1))
	for range 2000 {
		most, total := r.IntN(100), 0
		var wants []want
		for i := range r.IntN(8) {
			w := want{name: fmt.Sprint(i), newest: fmt.Sprint(r.IntN(100)), count: r.IntN(60)}
			total += w.count
			wants = append(wants, w)
		}
		sum, least, keep := 0, most+1, shares(wants, most)
		for _, w := range wants {
			n := keep[w.name]
			if sum += n; n < 0 || n > w.count {
				t.Fatalf("%v of %d: %v", wants, most, keep)
			}
			if n < w.count {
				least = min(least, n)
			}
		}
		for _, w := range wants {
			if keep[w.name] > least+1 {
				t.Fatalf("%v of %d are not equal shares: %v", wants, most, keep)
			}
		}
		if sum != min(total, most) {
			t.Fatalf("%v of %d: %v", wants, most, keep)
		}
	}
}
