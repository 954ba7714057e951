package catalog

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"snapfs/sandbox/api"
)

// many fills a catalog and its twin: n workspaces of n sessions with a snapshot each, all on one base, and a workspace
// with a history of n snapshots, of which every tenth expires.
func many(n int) (*Catalog, *twin) {
	tw := newTwin()
	c := newCatalog(nil, Options{Clock: func() time.Time { return tw.now }})
	ch := &Change{PutLayers: []*Layer{{ID: "base", State: api.Stored, Size: 1 << 20}}}
	for i := range n {
		l := &Layer{ID: fmt.Sprintf("l%06d", i), Parent: "base", State: api.Stored, Size: 4096}
		w := &Workspace{ID: fmt.Sprintf("w%06d", i), Session: fmt.Sprint("session", i), Base: l.ID, Upper: uint64(i)}
		ch.PutLayers = append(ch.PutLayers, l)
		ch.PutWorkspaces = append(ch.PutWorkspaces, w)
		ch.PutSnapshots = append(ch.PutSnapshots, &Snapshot{
			ID: fmt.Sprintf("s%06d", i), Workspace: w.ID, Session: w.Session, Name: "before", Top: l.ID, ParentTop: "base",
		})
	}
	top := "base"
	for i := range n {
		l := &Layer{ID: fmt.Sprintf("m%06d", i), Parent: top, State: api.Stored, Size: 4096}
		s := &Snapshot{ID: fmt.Sprintf("t%06d", i), Workspace: "deep", Session: "deep", Name: fmt.Sprint("step", i), Top: l.ID, ParentTop: top}
		if i%10 == 0 {
			at := tw.now.Add(time.Duration(i+1) * time.Hour)
			s.ExpiresAt = &at
		}
		ch.PutLayers = append(ch.PutLayers, l)
		ch.PutSnapshots = append(ch.PutSnapshots, s)
		top = l.ID
	}
	ch.PutWorkspaces = append(ch.PutWorkspaces, &Workspace{ID: "deep", Session: "deep", Base: top, Upper: uint64(n)})
	c.apply(ch)
	tw.apply(ch)
	return c, tw
}

// BenchmarkQuestions compares what calls ask of 10,001 workspaces, 20,000 snapshots and 20,001 layers with looking at
// all of them.
func BenchmarkQuestions(b *testing.B) {
	const n = 10_000
	c, tw := many(n)
	tip := c.Workspace("deep").Base
	first := func(fn func(*Snapshot) bool) *Snapshot {
		for _, id := range c.index.order {
			if s := tw.snapshots[id]; fn(s) {
				return s
			}
		}
		return nil
	}
	for _, q := range []struct {
		name        string
		index, scan func()
	}{
		{"limits of a session", func() { c.Usage("deep") }, func() { tw.usage("deep") }},
		{"is a name free", func() { c.SnapshotCalled("deep", "new") }, func() {
			first(func(s *Snapshot) bool { return s.Workspace == "deep" && s.Name == "new" })
		}},
		{"find by name", func() { c.FindSnapshots("step5000", false) }, func() {
			first(func(s *Snapshot) bool { return s.Name == "none" })
		}},
		{"expired", func() { c.Expired(tw.now) }, func() { first(func(s *Snapshot) bool { return s.Expired(tw.now) }) }},
		{"newest of a workspace", func() { c.NewestSnapshot("w000001", func(*Snapshot) bool { return true }) }, func() {
			first(func(s *Snapshot) bool { return s.Workspace == "none" })
		}},
		{"snapshots of a workspace", func() { _ = slices.Collect(c.ListSnapshots(Query{Workspace: "w000001"})) }, func() {
			first(func(s *Snapshot) bool { return s.Workspace == "none" })
		}},
		{"workspaces of a session", func() { _ = slices.Collect(c.ListWorkspaces(Query{Session: "session1"})) }, func() { sorted(tw.workspaces) }},
		{"describe a deep stack", func() { _, _ = c.Head(tip, 100) }, func() { tw.stack(tip) }},
		{"what is not stored of a deep stack", func() { _, _ = c.SealedOf(tip) }, func() { tw.stack(tip) }},
		{"what a session holds", func() { c.Holding("session1") }, func() { sorted(tw.layers) }},
		{"count", func() { c.Count() }, func() {
			for _, l := range tw.layers {
				_ = l.State
			}
		}},
	} {
		b.Run(q.name+"/index", func(b *testing.B) {
			for b.Loop() {
				q.index()
			}
		})
		b.Run(q.name+"/scan", func(b *testing.B) {
			for b.Loop() {
				q.scan()
			}
		})
	}
}

// BenchmarkSnapshot is what a snapshot on top of 10,000 others, and its deletion, do to the records in memory.
func BenchmarkSnapshot(b *testing.B) {
	c, _ := many(10_000)
	w := c.Workspace("deep")
	for b.Loop() {
		l := &Layer{ID: "z", Parent: w.Base, State: api.Sealed, Upper: w.Upper}
		s := &Snapshot{ID: "z", Workspace: w.ID, Session: w.Session, Top: l.ID, ParentTop: w.Base}
		next := *w
		next.Base = l.ID
		c.apply(&Change{PutLayers: []*Layer{l}, PutWorkspaces: []*Workspace{&next}, PutSnapshots: []*Snapshot{s}})
		ch := &Change{PutWorkspaces: []*Workspace{w}, DelSnapshots: []*Snapshot{s}}
		c.collect(ch)
		c.apply(ch)
	}
}

// BenchmarkMerges makes, in memory, the merges that are due when every second of 10,000 snapshots in a row is deleted:
// what looking for each costs, and for how long the records are held to change them.
func BenchmarkMerges(b *testing.B) {
	const n = 10_000
	var looking, changing, longest time.Duration
	merges := 0
	for b.Loop() {
		b.StopTimer()
		c, _ := many(n)
		ch := &Change{}
		for i := range n - 2 {
			if i%2 == 1 {
				ch.DelSnapshots = append(ch.DelSnapshots, c.Snapshot(fmt.Sprintf("t%06d", i)))
			}
		}
		c.apply(ch)
		g := c.Merges()
		b.StartTimer()
		for {
			start := time.Now()
			j, ok := g.Next(0)
			looking += time.Since(start)
			if !ok || j.Tier > 0 {
				break
			}
			next := *j.Top
			next.Parent = j.Rest[len(j.Rest)-1].Parent
			start = time.Now()
			c.apply(&Change{PutLayers: []*Layer{&next}, delLayers: j.Rest})
			took := time.Since(start)
			changing, longest = changing+took, max(longest, took)
			merges++
		}
	}
	b.ReportMetric(float64(looking.Microseconds())/float64(merges), "µs-looking/merge")
	b.ReportMetric(float64(changing.Microseconds())/float64(merges), "µs-changing/merge")
	b.ReportMetric(float64(longest.Microseconds()), "µs-longest")
}
