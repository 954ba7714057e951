package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"snapfs/sandbox/api"
)

// twin answers what a catalog answers, from the records alone, by looking at all of them.
type twin struct {
	workspaces map[string]*Workspace
	snapshots  map[string]*Snapshot
	layers     map[string]*Layer
	staged     map[string]*Workspace // holds the base of a staged change, too, if that is there
	now        time.Time
}

func newTwin() *twin {
	return &twin{
		workspaces: map[string]*Workspace{}, snapshots: map[string]*Snapshot{}, layers: map[string]*Layer{}, staged: map[string]*Workspace{},
		now: time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC),
	}
}

func (t *twin) apply(ch *Change) {
	for _, l := range ch.PutLayers {
		t.layers[l.ID] = l
	}
	for _, w := range ch.PutWorkspaces {
		t.workspaces[w.ID] = w
	}
	for _, s := range ch.PutSnapshots {
		t.snapshots[s.ID] = s
	}
	for _, w := range ch.DelWorkspaces {
		delete(t.workspaces, w.ID)
	}
	for _, s := range ch.DelSnapshots {
		delete(t.snapshots, s.ID)
	}
	for _, l := range ch.delLayers {
		delete(t.layers, l.ID)
	}
}

// sorted gives the records of a map in order of keys.
func sorted[R any](m map[string]R) []R {
	var all []R
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, m[k])
	}
	return all
}

// where gives the records that fn wants.
func where[R any](all []R, fn func(R) bool) []R {
	return slices.DeleteFunc(all, func(r R) bool { return !fn(r) })
}

// holders are who names a layer.
func (t *twin) holders(layer string) map[Holder]bool {
	h := map[Holder]bool{}
	for _, w := range t.workspaces {
		if w.Base == layer {
			h[w.Holder()] = true
		}
	}
	for _, w := range t.staged {
		if w.Base == layer && t.layers[layer] != nil {
			h[w.Holder()] = true
		}
	}
	for _, s := range t.snapshots {
		if s.Top == layer {
			h[s.Holder()] = true
		}
	}
	for _, l := range t.layers {
		if l.Parent == layer {
			h[Holder{'l', l.ID}] = true
		}
	}
	return h
}

// stack gives the layers from top down; false if the record of one is missing.
func (t *twin) stack(top string) (stack []*Layer, ok bool) {
	for id := top; id != ""; {
		l := t.layers[id]
		if l == nil || len(stack) > len(t.layers) {
			return stack, false
		}
		stack = append(stack, l)
		id = l.Parent
	}
	return stack, true
}

func (t *twin) usage(session string) (n int, bytes int64) {
	seen := map[string]bool{}
	for _, s := range t.snapshots {
		if s.Session != session || s.Expired(t.now) {
			continue
		}
		n++
		for id := s.Top; id != "" && !seen[id]; {
			l := t.layers[id]
			if l == nil {
				break
			}
			seen[id] = true
			bytes += l.Size
			id = l.Parent
		}
	}
	return n, bytes
}

func (t *twin) own(top string, who Holder) []*Layer {
	var own []*Layer
	for id := top; id != ""; {
		l, holders := t.layers[id], t.holders(id)
		if l == nil || len(holders) != 1 || !holders[who] {
			break
		}
		own = append(own, l)
		id, who = l.Parent, Holder{'l', id}
	}
	return own
}

func (t *twin) holding(session string) Holding {
	var h Holding
	mine := map[Holder]bool{}
	var tops []string
	for _, w := range sorted(t.workspaces) {
		if w.Session == session {
			mine[w.Holder()] = true
			h.Uppers = append(h.Uppers, w.Upper)
			tops = append(tops, w.Base)
		}
	}
	for _, s := range t.snapshots {
		if s.Session == session {
			mine[s.Holder()] = true
			h.Snapshots++
			tops = append(tops, s.Top)
		}
	}
	met := map[*Layer]bool{}
	for _, top := range tops {
		stack, _ := t.stack(top)
		for _, l := range stack {
			met[l] = true
		}
	}
	h.Layers = slices.Collect(maps.Keys(met))
	for _, l := range slices.Backward(sorted(t.layers)) { // what lies on a layer before the layer
		holders := t.holders(l.ID)
		own := len(holders) > 0
		for h := range holders {
			own = own && mine[h]
		}
		if own {
			mine[Holder{'l', l.ID}] = true
			h.Own = append(h.Own, l)
		}
	}
	return h
}

func (t *twin) common(a, b string) string {
	one, ok1 := t.stack(a)
	other, ok2 := t.stack(b)
	if ok1 && ok2 {
		for _, l := range one {
			if slices.Contains(other, l) {
				return l.ID
			}
		}
	}
	return ""
}

// collected are the layers that go with a change.
func (t *twin) collected(ch *Change, pinned map[string]bool) map[string]bool {
	after := *t
	after.workspaces, after.snapshots, after.layers = maps.Clone(t.workspaces), maps.Clone(t.snapshots), maps.Clone(t.layers)
	before := map[string]bool{}
	for id := range t.layers {
		before[id] = len(t.holders(id)) > 0
	}
	after.apply(ch)
	gone := map[string]bool{}
	for changed := true; changed; {
		changed = false
		for id := range after.layers {
			// One that nothing named before is not looked at.
			if before[id] && !pinned[id] && len(after.holders(id)) == 0 {
				delete(after.layers, id)
				gone[id], changed = true, true
			}
		}
	}
	return gone
}

// layerIDs are the ids of layers, sorted, each once.
func layerIDs(all []*Layer) []string {
	var list []string
	for _, l := range all {
		list = append(list, l.ID)
	}
	slices.Sort(list)
	return list
}

// same compares everything that a catalog says with what its twin says.
func (t *twin) same(tt *testing.T, c *Catalog, rnd *rand.Rand) {
	tt.Helper()
	check := func(what string, got, want any) {
		tt.Helper()
		if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
			tt.Errorf("%s: got %s, want %s", what, g, w)
		}
	}
	workspaces, snapshots, layers := sorted(t.workspaces), sorted(t.snapshots), sorted(t.layers)
	check("workspaces", c.Workspaces(), workspaces)
	check("layers", c.Layers(), layers)
	n := Counts{Workspaces: len(workspaces), Snapshots: len(snapshots), Layers: len(layers)}
	n.Sealed = len(where(slices.Clone(layers), func(l *Layer) bool { return l.State != api.Stored }))
	check("count", c.Count(), n)

	for _, session := range []string{"", "a", "b", "none"} {
		for _, workspace := range []string{"", "w1", "w2", "none"} {
			after := ""
			if len(snapshots) > 0 && rnd.IntN(2) == 0 {
				after = snapshots[rnd.IntN(len(snapshots))].ID
			}
			check("snapshots", slices.Collect(c.ListSnapshots(Query{Session: session, Workspace: workspace, After: after})),
				where(slices.Clone(snapshots), func(s *Snapshot) bool {
					return s.ID > after && (session == "" || s.Session == session) && (workspace == "" || s.Workspace == workspace)
				}))
			check("workspaces of "+session, slices.Collect(c.ListWorkspaces(Query{Session: session, Workspace: workspace, After: after})),
				where(slices.Clone(workspaces), func(w *Workspace) bool {
					return w.ID > after && (session == "" || w.Session == session) && (workspace == "" || w.ID == workspace)
				}))
		}
		if session != "" {
			count, bytes := c.Usage(session)
			wantCount, wantBytes := t.usage(session)
			check("usage of "+session, fmt.Sprint(count, bytes), fmt.Sprint(wantCount, wantBytes))
			got, want := c.Holding(session), t.holding(session)
			check("holding of "+session, fmt.Sprint(got.Uppers, got.Snapshots, layerIDs(got.Layers), layerIDs(got.Own)),
				fmt.Sprint(want.Uppers, want.Snapshots, layerIDs(want.Layers), layerIDs(want.Own)))
		}
	}
	for _, name := range []string{"", "n1", "n2", "none"} {
		for _, workspace := range []string{"w1", "w2"} {
			var want *Snapshot
			if all := where(slices.Clone(snapshots), func(s *Snapshot) bool {
				return name != "" && s.Name == name && s.Workspace == workspace
			}); len(all) > 0 {
				want = all[0]
			}
			check("called "+name, c.SnapshotCalled(workspace, name), want)
		}
		if name != "" {
			check("find "+name, c.FindSnapshots(name, false), where(slices.Clone(snapshots), func(s *Snapshot) bool { return s.Name == name }))
		}
	}
	for _, prefix := range []string{"s0", "s00001", "s", "n1", "x"} {
		check("abbreviated "+prefix, c.FindSnapshots(prefix, true), where(slices.Clone(snapshots), func(s *Snapshot) bool {
			return s.Name == prefix || strings.HasPrefix(s.ID, prefix)
		}))
	}
	uneven := func(s *Snapshot) bool { return s.ID[len(s.ID)-1]%2 == 1 }
	var newest *Snapshot
	for _, s := range snapshots {
		if s.Workspace == "w1" && uneven(s) {
			newest = s
		}
	}
	check("newest", c.NewestSnapshot("w1", uneven), newest)
	check("expired", c.Expired(t.now), where(slices.Clone(snapshots), func(s *Snapshot) bool { return s.Expired(t.now) }))
	t.sameStacks(tt, c, check)
}

// sameStacks is same for what is said of stacks.
func (t *twin) sameStacks(tt *testing.T, c *Catalog, check func(what string, got, want any)) {
	tt.Helper()
	tops := slices.Sorted(maps.Keys(t.layers))
	tops = append(tops, "", "none")
	over := map[string][]string{}
	for _, s := range sorted(t.snapshots) {
		if stack, ok := t.stack(s.Top); ok {
			for _, l := range stack {
				over[l.ID] = append(over[l.ID], s.ID)
			}
		}
	}
	for i, top := range tops {
		stack, ok := t.stack(top)
		got, err := c.Stack(top)
		if check("stack of "+top+" is complete", err == nil, ok); !ok {
			continue
		}
		check("stack of "+top, got, stack)
		head, _ := c.Head(top, 2)
		sealed := where(slices.Clone(stack), func(l *Layer) bool { return l.State != api.Stored })
		check("head of "+top, head, Head{Layers: stack[:min(2, len(stack))], Depth: len(stack), Sealed: len(sealed)})
		list, _ := c.SealedOf(top)
		check("sealed of "+top, list, sealed)
		check("common", c.Common(top, tops[(i*7+3)%len(tops)]), t.common(top, tops[(i*7+3)%len(tops)]))
		check("over "+top, c.SnapshotsOver(top), over[top])
		if top == "" {
			continue
		}
		holders := t.holders(top)
		check("named "+top, c.Named(top), len(holders) > 0)
		check("unnamed "+top, c.unnamed(top), t.layers[top] != nil && len(holders) == 0)
		check("snapshots on "+top, c.SnapshotsOn(top), where(sorted(t.snapshots), func(s *Snapshot) bool { return s.Top == top }))
		n := c.index.nodes[top]
		for h := range holders {
			check("holder", n.holds(h), true)
			check("own of "+top, c.Own(top, h), t.own(top, h))
		}
		check("held "+top, n.held(), len(holders))
		var ends, compared []string
		for _, l := range sorted(t.layers) {
			if l.Tier != nil && l.Tier.Down == top {
				ends = append(ends, l.ID)
			}
		}
		for _, s := range sorted(t.snapshots) {
			if s.ParentTop == top {
				compared = append(compared, s.ID)
			}
		}
		check("tiers on "+top, keys(&n.ends), ends)
		check("compared with "+top, keys(&n.compared), compared)
	}
	// What has gone leaves nothing behind.
	for id, n := range c.index.nodes {
		if n.layer == nil && len(t.holders(id)) == 0 && n.compared.size() == 0 && n.ends.size() == 0 {
			tt.Errorf("layer %s is gone, and its node is still there", id)
		}
	}
	sessions := map[string]bool{}
	for _, w := range t.workspaces {
		sessions[w.Session] = true
	}
	for _, s := range t.snapshots {
		sessions[s.Session] = true
	}
	check("sessions", slices.Sorted(maps.Keys(c.index.sessions)), slices.Sorted(maps.Keys(sessions)))
}

func keys(s *set) []string {
	var all []string
	for id := range s.all() {
		all = append(all, id)
	}
	slices.Sort(all)
	return all
}

// TestTwin changes a catalog at random and compares everything that it says with what looking at all records says.
func TestTwin(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	tw := newTwin()
	store := openStore(t)
	c, err := Open(t.Context(), store, Options{Clock: func() time.Time { return tw.now }})
	if err != nil {
		t.Fatal(err)
	}
	a := &actor{t: t, rnd: rnd, c: c, twin: tw}
	for step := range 1500 {
		a.act()
		if step%25 == 0 {
			tw.same(t, c, rnd)
		}
		if t.Failed() {
			t.Fatalf("after step %d of seed %d", step, seed)
		}
	}
	if n := c.Count(); n.Layers == 0 || n.Snapshots == 0 {
		t.Errorf("nothing is left: %+v", n)
	}
}

// TestBrokenRecords has records that name layers without one, and layers that lie on each other.
func TestBrokenRecords(t *testing.T) {
	tw, c := newTwin(), newCatalog(nil, Options{})
	ch := &Change{
		PutLayers: []*Layer{
			{ID: "a", Parent: "0", State: api.Sealed},
			{ID: "b", Parent: "a", State: api.Stored, Size: 5},
			{ID: "r1", Parent: "r2", State: api.Stored, Size: 3},
			{ID: "r2", Parent: "r1", State: api.Stored, Size: 4},
			{ID: "c", State: api.Stored, Size: 1, Tier: &Tier{Manifest: 1, Down: "gone", Span: 2}},
		},
		PutSnapshots: []*Snapshot{
			{ID: "s1", Session: "a", Workspace: "w1", Top: "b", ParentTop: "nowhere"},
			{ID: "s2", Session: "b", Workspace: "w1", Top: "r1"},
			{ID: "s3", Session: "a", Workspace: "w2", Top: "c"},
			{ID: "s4", Session: "a", Workspace: "w2", Top: "missing"},
		},
		PutWorkspaces: []*Workspace{{ID: "w1", Session: "a", Base: "none"}},
	}
	slices.SortFunc(ch.PutLayers, func(a, b *Layer) int { return cmp.Compare(a.ID, b.ID) })
	c.apply(ch)
	tw.apply(ch)
	tw.now = c.Now()
	rnd := rand.New(rand.NewPCG(1, 0))
	tw.same(t, c, rnd)
	if _, err := c.Stack("b"); err == nil || !strings.Contains(err.Error(), "layer 0 has no record") {
		t.Errorf("got %v", err)
	}
	if t.Failed() {
		return
	}
	// The records come: what they complete is complete.
	ch = &Change{PutLayers: []*Layer{{ID: "0", State: api.Sealed, Size: 7}, {ID: "missing", Parent: "c", State: api.Stored, Size: 9}}}
	c.apply(ch)
	tw.apply(ch)
	tw.same(t, c, rnd)
	ch = &Change{DelSnapshots: ch.DelSnapshots, DelWorkspaces: sorted(tw.workspaces)}
	ch.DelSnapshots = sorted(tw.snapshots)
	c.apply(ch)
	tw.apply(ch)
	tw.same(t, c, rnd)
}
