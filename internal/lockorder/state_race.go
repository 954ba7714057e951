//go:build race && amd64

package lockorder

import (
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
)

// depth is how many callers are kept of each lock that is taken.
const depth = 12

// state is what the check knows of a lock. It is small, as there are as many as there are locks.
type state struct {
	passed atomic.Int32 // how many holders were passed on
	class  uint16       // index of classes; 0 before the first use. All that set it set the same value
}

// goroutine is what the check knows of the goroutines, one after the other, that the runtime runs as the same g. Only
// the present one uses it, but for id and next.
type goroutine struct {
	id   uintptr    // address of g; immutable
	next *goroutine // in the same bucket; immutable
	held []held
}

// held is a lock that a goroutine holds or waits for.
type held struct {
	lock    *state
	callers [depth]uintptr
}

// goroutines has each one that ever took a lock, by the hash of its id. The runtime keeps each g for ever, too. None is
// ever removed, so that reading needs no lock.
var (
	goroutines [1 << bucketBits]*goroutine
	inserting  sync.Mutex
)

const bucketBits = 12

// g gives the address of the calling goroutine's g.
func g() uintptr

// callers notes the callers of its caller, nearest first.
func callers(to *[depth]uintptr)

// self gives the calling goroutine.
//
//go:norace
func self() *goroutine {
	id := g()
	bucket := &goroutines[uint64(id)*0x9e3779b97f4a7c15>>(64-bucketBits)]
	for me := *bucket; me != nil; me = me.next {
		if me.id == id {
			return me
		}
	}
	runtime.RaceDisable() // this lock must not order what the race detector looks at
	inserting.Lock()
	me := &goroutine{id: id, next: *bucket, held: make([]held, 0, 8)}
	*bucket = me
	inserting.Unlock()
	runtime.RaceEnable()
	return me
}

// take checks that the calling goroutine may take a lock, and notes that it does.
//
//go:norace
func (s *state) take(t reflect.Type) {
	me := self()
	s.is(t)
	for i := range me.held {
		h := &me.held[i]
		if why := forbidden(h.lock, s); why != "" {
			var now held
			callers(&now.callers)
			fault("lockorder: " + s.name() + why + h.lock.name() + "\nit is taken at\n" + now.trace() +
				"the other one was taken at\n" + h.trace())
		}
	}
	me.push(s)
}

// forbidden says why a lock may not be taken while another is held; "" if it may.
//
//go:norace
func forbidden(has, wants *state) string {
	class := &classes[has.class]
	switch {
	case has == wants:
		return " is taken again by its holder: "
	case class.leaf:
		return " is taken under a leaf: "
	case has.class == wants.class && !class.many:
		return " is taken by the holder of another one of its class: "
	case has.class > wants.class:
		return " is taken by the holder of one further down in the tree: "
	}
	return ""
}

// try notes a lock that was taken without waiting.
//
//go:norace
func (s *state) try(t reflect.Type) {
	s.is(t)
	self().push(s)
}

// drop notes that a holder gives a lock back.
//
//go:norace
func (s *state) drop() {
	if self().remove(s) {
		return
	}
	runtime.RaceDisable()
	left := s.passed.Add(-1)
	runtime.RaceEnable()
	if left < 0 {
		s.mistake(" is given back by a goroutine that does not hold it")
	}
}

//go:norace
func (s *state) pass() {
	if !self().remove(s) {
		s.mistake(" is passed on by a goroutine that does not hold it")
		return
	}
	runtime.RaceDisable()
	s.passed.Add(1)
	runtime.RaceEnable()
}

// mistake is a fault of one lock.
//
//go:norace
func (s *state) mistake(what string) {
	var now held
	callers(&now.callers)
	fault("lockorder: " + s.name() + what + "\nat\n" + now.trace())
}

//go:norace
func (me *goroutine) push(s *state) {
	me.held = append(me.held, held{lock: s})
	callers(&me.held[len(me.held)-1].callers)
}

// remove takes a lock off the list; false if it is not there.
//
//go:norace
func (me *goroutine) remove(s *state) bool {
	last := len(me.held) - 1
	for i := last; i >= 0; i-- {
		if me.held[i].lock != s {
			continue
		}
		for ; i < last; i++ {
			me.held[i] = me.held[i+1]
		}
		me.held[last].lock = nil
		me.held = me.held[:last]
		return true
	}
	return false
}

// is sets the class of a lock.
//
//go:norace
func (s *state) is(t reflect.Type) {
	if s.class == 0 {
		s.class = indexOfType(t)
	}
}

//go:norace
func (s *state) name() string { return classes[s.class].name }
