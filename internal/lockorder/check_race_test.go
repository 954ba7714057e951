//go:build race && amd64

package lockorder

import (
	"strings"
	"sync"
	"testing"
)

// Classes of the tree, from the outside in: the first is no leaf, the third is one, several of the second may be held.
type (
	outer = OverlayNames
	inner = Node
	leaf  = FDs
)

// faults replaces the end of the process, and gives what was found until the test ends.
func faults(t *testing.T) (found func() []string) {
	var mu sync.Mutex
	var all []string
	old := fault
	fault = func(text string) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, text)
	}
	t.Cleanup(func() { fault = old })
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		was := all
		all = nil
		return was
	}
}

type locks struct {
	outer, outer2 Mutex[outer]
	rw            RWMutex[outer]
	inner, inner2 Mutex[inner]
	leaf          Mutex[leaf]
	token         Token[outer]
}

func TestOrder(t *testing.T) {
	const inverted = "OverlayNames is taken by the holder of one further down in the tree: Node"
	for _, c := range []struct {
		name string
		run  func(l *locks)
		want string // in the only fault; "" for none
	}{
		{"in order", func(l *locks) { l.outer.Lock(); l.inner.Lock(); l.leaf.Lock() }, ""},
		{"given back in another order", func(l *locks) {
			l.outer.Lock()
			l.inner.Lock()
			l.outer.Unlock()
			l.leaf.Lock()
			l.inner.Unlock()
			l.leaf.Unlock()
			l.outer.Lock()
		}, ""},
		{"against the order", func(l *locks) { l.inner.Lock(); l.outer.Lock() }, inverted},
		{"a reader against the order", func(l *locks) { l.inner.Lock(); l.rw.RLock() }, inverted},
		{"under a leaf", func(l *locks) { l.leaf.Lock(); l.inner.Lock() }, "Node is taken under a leaf: FDs"},
		{"two of a class", func(l *locks) {
			l.outer.Lock()
			l.outer2.Lock()
		}, "OverlayNames is taken by the holder of another one of its class: OverlayNames"},
		{"several that may be", func(l *locks) { l.inner.Lock(); l.inner2.Lock() }, ""},
		{"a reader twice", func(l *locks) {
			l.rw.RLock()
			l.rw.RLock()
		}, "OverlayNames is taken again by its holder: OverlayNames"},
		{"an attempt against the order", func(l *locks) { l.inner.Lock(); l.outer.TryLock() }, ""},
		{"after an attempt", func(l *locks) { l.leaf.TryLock(); l.inner.Lock() }, "Node is taken under a leaf: FDs"},
		{"after an attempt in vain", func(l *locks) {
			held, done := make(chan struct{}), make(chan struct{})
			go func() { l.leaf.Lock(); close(held); <-done; l.leaf.Unlock() }()
			<-held
			l.leaf.TryLock()
			l.inner.Lock()
			close(done)
		}, ""},
		{"token", func(l *locks) { l.inner.Lock(); l.token.Take() }, inverted},
		{"token given back", func(l *locks) {
			l.token.Take()
			l.token.Drop()
			l.token.Try()
			l.token.Drop()
			l.outer.Lock()
		}, ""},
		{"not taken", func(l *locks) {
			l.token.Take()
			l.token.Drop()
			l.token.Drop()
		}, "OverlayNames is given back by a goroutine that does not hold it"},
		{"passed on", func(l *locks) {
			l.outer.Lock()
			Pass(&l.outer)
			l.outer2.Lock() // the other one is no longer held here
			done := make(chan struct{})
			go func() { l.outer.Unlock(); close(done) }()
			<-done
		}, ""},
		{"passed on by a reader", func(l *locks) {
			l.rw.RLock()
			Pass(&l.rw)
			l.outer.Lock()
			done := make(chan struct{})
			go func() { l.rw.RUnlock(); close(done) }()
			<-done
		}, ""},
		{"given back by another one", func(l *locks) {
			l.outer.Lock()
			done := make(chan struct{})
			go func() { l.outer.Unlock(); close(done) }()
			<-done
		}, "OverlayNames is given back by a goroutine that does not hold it"},
		{"while it waits", func(l *locks) {
			c := sync.NewCond(&l.outer)
			l.outer.Lock()
			go func() { l.outer.Lock(); c.Signal(); l.outer.Unlock() }()
			c.Wait()
			l.inner.Lock()
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := faults(t)
			done := make(chan struct{})
			go func() { // what is still held in the end is forgotten with the goroutine
				defer close(done)
				c.run(new(locks))
				self().held = self().held[:0]
			}()
			<-done
			all := found()
			switch {
			case c.want == "" && len(all) > 0, c.want != "" && len(all) != 1:
				t.Errorf("got %q, want %q", all, c.want)
			case c.want != "" && !strings.HasPrefix(all[0], "lockorder: "+c.want+"\n"):
				t.Errorf("got %s, want %s", all[0], c.want)
			}
		})
	}
}

//go:noinline
func takeOuter(l *locks) { l.outer.Lock() }

//go:noinline
func takeInner(l *locks) { l.inner.Lock() }

// TestFaultSaysWhere holds that a fault has the names of both locks and the places where both were taken.
func TestFaultSaysWhere(t *testing.T) {
	found := faults(t)
	l := new(locks)
	takeInner(l)
	takeOuter(l)
	l.outer.Unlock()
	l.inner.Unlock()
	all := found()
	if len(all) != 1 {
		t.Fatalf("%d faults", len(all))
	}
	at, other, _ := strings.Cut(all[0], "the other one was taken at")
	if !strings.Contains(at, "lockorder.takeOuter ") || !strings.Contains(other, "lockorder.takeInner ") {
		t.Errorf("got %s", all[0])
	}
}

func BenchmarkLock(b *testing.B) {
	var m Mutex[outer]
	for b.Loop() {
		m.Lock()
		m.Unlock() //nolint:staticcheck // what is measured
	}
}

func BenchmarkLockUnchecked(b *testing.B) {
	var m sync.Mutex
	for b.Loop() {
		m.Lock()
		m.Unlock() //nolint:staticcheck // what is measured
	}
}
