package catalog

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
)

// actor changes a catalog and its twin at random, as a home does.
type actor struct {
	t      *testing.T
	rnd    *rand.Rand
	c      *Catalog
	twin   *twin
	staged []*Staged
	made   int
}

func (a *actor) id(kind string) string {
	a.made++
	return fmt.Sprintf("%s%05d", kind, a.made)
}

func pick[R any](rnd *rand.Rand, all []R) (r R, ok bool) {
	if len(all) == 0 {
		return r, false
	}
	return all[rnd.IntN(len(all))], true
}

// update makes a change in both, and compares which layers go with it.
func (a *actor) update(ch *Change) {
	a.t.Helper()
	want := a.twin.collected(ch, a.c.pinned)
	a.c.collect(ch)
	got := map[string]bool{}
	for _, l := range ch.delLayers {
		got[l.ID] = true
	}
	if !maps.Equal(got, want) {
		a.t.Errorf("layers %v go, want %v", got, want)
	}
	a.c.apply(ch)
	a.twin.apply(ch)
}

// seal is a snapshot or a fork of a workspace that has changed.
func (a *actor) seal(w *Workspace) *Change {
	l := &Layer{ID: a.id("l"), Parent: w.Base, State: api.Sealed, Upper: w.Upper}
	next := *w
	next.Base, next.Upper = l.ID, uint64(a.made)
	ch := &Change{PutWorkspaces: []*Workspace{&next}, PutLayers: []*Layer{l}}
	s := a.snapshot(&next, w.Base)
	next.Head = s.ID
	ch.PutSnapshots = append(ch.PutSnapshots, s)
	return ch
}

func (a *actor) snapshot(w *Workspace, below string) *Snapshot {
	s := &Snapshot{ID: a.id("s"), Workspace: w.ID, Session: []string{"a", "b"}[a.rnd.IntN(2)], Top: w.Base, ParentTop: below}
	if a.rnd.IntN(2) == 0 {
		s.Name = fmt.Sprint("n", a.rnd.IntN(3))
	}
	if a.rnd.IntN(3) == 0 {
		at := a.twin.now.Add(time.Duration(a.rnd.IntN(40)-10) * time.Minute)
		s.ExpiresAt = &at
	}
	return s
}

// free are the workspaces of which nothing is staged.
func (a *actor) free() []*Workspace {
	return where(sorted(a.twin.workspaces), func(w *Workspace) bool { return a.twin.staged[w.ID] == nil })
}

// act makes one random change.
func (a *actor) act() {
	a.t.Helper()
	w, hasWorkspace := pick(a.rnd, a.free())
	s, hasSnapshot := pick(a.rnd, sorted(a.twin.snapshots))
	switch op := a.rnd.IntN(14); {
	case op == 0 || !hasWorkspace:
		name := fmt.Sprint("w", a.rnd.IntN(6))
		if a.twin.workspaces[name] != nil || a.twin.staged[name] != nil {
			return
		}
		made := &Workspace{ID: name, Session: []string{"a", "b"}[a.rnd.IntN(2)], Upper: uint64(a.made)}
		ch := &Change{PutWorkspaces: []*Workspace{made}}
		switch {
		case hasSnapshot && a.rnd.IntN(2) == 0:
			made.Base = s.Top
		case a.rnd.IntN(2) == 0: // an import
			base := &Layer{ID: a.id("l"), State: api.Stored, Size: int64(a.rnd.IntN(1000)), Manifest: chunkstore.ID(a.made)}
			made.Base = base.ID
			ch.PutLayers = append(ch.PutLayers, base)
		}
		a.update(ch)
	case op <= 3:
		a.update(a.seal(w))
	case op == 4: // nothing has changed
		next := *w
		a.update(&Change{PutWorkspaces: []*Workspace{&next}, PutSnapshots: []*Snapshot{a.snapshot(&next, w.Base)}})
	case op == 5:
		a.stage(w, s)
	case op == 6:
		a.settle()
	case op <= 8 && hasSnapshot:
		a.update(&Change{DelSnapshots: []*Snapshot{s}})
	case op == 9 && a.rnd.IntN(3) == 0:
		a.update(&Change{DelWorkspaces: []*Workspace{w}, PutTrash: []uint64{w.Upper}})
	case op == 10:
		a.store()
	case op == 11:
		a.twin.now = a.twin.now.Add(time.Duration(a.rnd.IntN(30)-10) * time.Minute)
	default:
		a.merge()
	}
}

// stage stages a seal or a rollback.
func (a *actor) stage(w *Workspace, to *Snapshot) {
	ch := a.seal(w)
	if to != nil && a.rnd.IntN(2) == 0 {
		next := *w
		next.Base, next.Head = to.Top, to.ID
		ch = &Change{PutWorkspaces: []*Workspace{&next}, PutTrash: []uint64{w.Upper}}
	}
	s, err := a.c.Stage(a.t.Context(), false, func(into *Change) error { *into = *ch; return nil })
	if err != nil {
		a.t.Fatal(err)
	}
	a.staged = append(a.staged, s)
	for _, w := range ch.PutWorkspaces {
		a.twin.staged[w.ID] = w
	}
}

// settle shows or withdraws what was staged first.
func (a *actor) settle() {
	if len(a.staged) == 0 {
		return
	}
	s := a.staged[0]
	a.staged = a.staged[1:]
	was := map[string]*Workspace{}
	for _, w := range s.PutWorkspaces {
		was[w.ID] = a.twin.workspaces[w.ID]
		delete(a.twin.staged, w.ID)
	}
	if a.rnd.IntN(2) == 0 {
		if err := a.c.Withdraw(a.t.Context(), s); err != nil {
			a.t.Fatal(err)
		}
	} else {
		a.c.Show(s)
		a.twin.apply(&s.Change)
	}
	// Layers that have lost their last name by it are looked at afterwards, by those who know of them.
	for _, w := range s.PutWorkspaces {
		for _, base := range []string{w.Base, was[w.ID].Base} {
			ch := &Change{reconsider: []string{base}}
			a.c.collect(ch)
			a.c.apply(ch)
			a.twin.apply(ch)
		}
	}
}

// store stores a sealed layer.
func (a *actor) store() {
	l, ok := pick(a.rnd, where(sorted(a.twin.layers), func(l *Layer) bool { return l.State == api.Sealed }))
	if !ok {
		return
	}
	stored := l.Stored(chunkstore.Manifest{ID: chunkstore.ID(a.made + 1), Size: int64(a.rnd.IntN(2000))})
	a.update(&Change{PutLayers: []*Layer{&stored}, PutTrash: []uint64{l.Upper}})
}

// merge makes a layer take in those below it that only it needs, or gives it a tier.
func (a *actor) merge() {
	l, ok := pick(a.rnd, where(sorted(a.twin.layers), func(l *Layer) bool { return l.State == api.Stored }))
	if !ok {
		return
	}
	a.made++
	image := chunkstore.Manifest{ID: chunkstore.ID(a.made), Size: int64(a.rnd.IntN(3000))}
	j := MergeJob{Top: l, Rest: a.c.swallowed(l, 0)}
	if len(j.Rest) == 0 {
		stack, ok := a.twin.stack(l.ID)
		if n := 1 + a.rnd.IntN(4); ok && n < len(stack) {
			next := *l
			next.Tier = &Tier{Manifest: image.ID, Size: image.Size, Down: stack[n].ID, Span: n}
			a.update(&Change{PutLayers: []*Layer{&next}})
		}
		return
	}
	if !a.c.unchanged(j) {
		a.t.Errorf("%+v has changed at once", j)
	}
	ch := &Change{}
	next := *l
	next.Parent, next.Manifest, next.Size = j.Rest[len(j.Rest)-1].Parent, image.ID, image.Size
	ch.PutLayers = append(ch.PutLayers, &next)
	var dropped []string
	a.c.detach(ch, &next, j.Rest, &dropped)
	for _, l := range ch.PutLayers[1:] {
		if !slices.Contains(dropped, a.twin.layers[l.ID].Form(true).Key()) {
			a.t.Errorf("layer %s loses its tier, which is not dropped", l.ID)
		}
	}
	a.update(ch)
}
