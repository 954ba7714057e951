package livestate_test

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
)

const resent = livestate.Resent

// created gives an empty state.
func created(t *testing.T) *livestate.State {
	t.Helper()
	s, err := livestate.Create("w")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// successor opens the state by another descriptor.
func successor(t *testing.T, s *livestate.State) *livestate.State {
	t.Helper()
	next := again(t, s)
	t.Cleanup(func() {
		if err := next.Close(); err != nil {
			t.Error(err)
		}
	})
	return next
}

func TestRequestsAgain(t *testing.T) {
	s := created(t)
	r := s.Requests()
	facts := livestate.Facts{
		Kind: 3, Nodes: [4]uint64{1, 2, 3, 4}, Inodes: [4]uint64{5, 6, 7, 8}, Values: [8]uint64{9, 10, 11, 12, 13, 14, 15, 16},
		Names: [2]string{strings.Repeat("x", 255), "to"},
	}
	r.Begin(2, 9, 1, true).Doing(&facts)
	r.Begin(4, 9, 1, true).Done(livestate.Answer{Errno: 17, Size: 5, Node: 77})
	ended := r.Begin(6, 9, 1, true)
	ended.Done(livestate.Answer{})
	ended.End()
	r.Begin(8, 1, 1, false)
	r.Begin(10, 9, 1, true)

	for range 2 { // a successor that is killed at once leaves the same
		r = successor(t, s).Requests()
		if left := r.Left(); len(left) != 1 {
			t.Fatalf("%d changes were left", len(left))
		}
	}
	q := r.Begin(2|resent, 9, 1, true)
	if got, ok := q.Unfinished(); !ok || got != facts {
		t.Errorf("facts are %+v, %v", got, ok)
	}
	if _, ok := q.Answered(); ok {
		t.Error("it was not answered")
	}
	q.NotDone()
	if _, ok := q.Unfinished(); ok {
		t.Error("it was undone")
	}
	if a, ok := r.Begin(4|resent, 9, 1, true).Answered(); !ok || a != (livestate.Answer{Errno: 17, Size: 5, Node: 77}) {
		t.Errorf("the answer is %+v, %v", a, ok)
	}
	for _, unique := range []uint64{6 | resent, 8 | resent, 10 | resent, 12 | resent, 4} {
		q := r.Begin(unique, 9, 1, true)
		if _, ok := q.Answered(); ok {
			t.Errorf("%#x: it was answered", unique)
		}
		if _, ok := q.Unfinished(); ok {
			t.Errorf("%#x: it has facts", unique)
		}
		if r.At(q.Slot()) != q || r.At(0) != nil {
			t.Errorf("%#x: it is not in its slot", unique)
		}
		q.End()
	}
}

// TestRequestsLate: what a process has left is not settled before it is asked for again once another has been given
// requests, and work of its own not at all.
func TestRequestsLate(t *testing.T) {
	s := created(t)
	r := s.Requests()
	r.Begin(2, 9, 1, true).Doing(&livestate.Facts{Kind: 3})
	r.BeginOwn(4).Doing(&livestate.Facts{Kind: 4})
	r = successor(t, s).Requests()
	if left := r.Left(); len(left) != 2 {
		t.Fatalf("%d changes were left, want 2", len(left))
	}
	r.BeginOwn(6).End() // no request
	r = successor(t, s).Requests()
	if left := r.Left(); len(left) != 2 {
		t.Fatalf("%d changes were left to the second successor, want 2", len(left))
	}
	r.Begin(8, 1, 1, false).End()
	r = successor(t, s).Requests()
	if left := r.Left(); len(left) != 0 {
		t.Fatalf("%d changes were left to the third successor, want 0", len(left))
	}
	if _, ok := r.Begin(2|resent, 9, 1, true).Unfinished(); !ok {
		t.Error("a request that is asked for again has no facts")
	}
}

// TestRequestsFull: changes wait for a free slot, others go without one.
func TestRequestsFull(t *testing.T) {
	r := created(t).Requests()
	var changes []*livestate.Request
	for i := range uint64(128) {
		changes = append(changes, r.Begin(2+2*i, 9, 1, true))
	}
	waits := make(chan *livestate.Request)
	go func() { waits <- r.Begin(1000, 9, 1, true) }()
	others := 0
	for i := range uint64(1000) {
		if r.Begin(2000+2*i, 1, 1, false) != nil {
			others++
		}
	}
	if others != 192 {
		t.Errorf("%d others are noted", others)
	}
	changes[77].End()
	if got := <-waits; got != changes[77] {
		t.Error("it has another slot")
	}
	var none *livestate.Request
	none.Doing(&livestate.Facts{})
	none.Done(livestate.Answer{})
	none.NotDone()
	none.End()
	if none.Slot() != 0 || none.Poisoned() {
		t.Error("nothing is noted of none")
	}
}

// TestWithdrawn: requests that are never asked for again give their slots back.
func TestWithdrawn(t *testing.T) {
	s := created(t)
	for i := range uint64(128) {
		s.Requests().Begin(2+2*i, 9, 1, true).Done(livestate.Answer{Errno: 5})
	}
	s = successor(t, s)
	r := s.Requests()
	if a, ok := r.Begin(2|resent, 9, 1, true).Answered(); !ok || a.Errno != 5 {
		t.Error("an answer is lost")
	}
	r.Age(time.Minute)
	seen := map[uint16]bool{}
	for i := range uint64(127) {
		q := r.Begin(1000+2*i, 9, 1, true)
		if _, ok := q.Answered(); ok || seen[q.Slot()] {
			t.Error("it has an answer, or the slot of another")
		}
		seen[q.Slot()] = true
	}
	// What a process has begun by itself, and not noted, was nothing.
	s = created(t)
	for i := range uint64(128) {
		s.Requests().BeginOwn(i << 1)
	}
	if q := successor(t, s).Requests().Begin(2, 9, 1, true); q == nil {
		t.Error("no slot")
	}
}

// TestDeaths: the request of which a process dies is found, and others are not harmed.
func TestDeaths(t *testing.T) {
	s := created(t)
	now := time.Unix(1e9, 0)
	s.Requests().Begin(2, 9, 1, true).Doing(&livestate.Facts{Names: [2]string{"bad", ""}})
	s.Requests().Begin(4, 9, 1, true)
	s.Requests().Begin(6, 1, 1, false)
	for death := 1; ; death++ {
		s = successor(t, s)
		r := s.Requests()
		now = now.Add(10 * time.Second)
		r.Died(now)
		if death == 3 {
			if !r.Begin(2|resent, 9, 1, true).Poisoned() {
				t.Error("it may be handled a fourth time")
			}
			for _, unique := range []uint64{4, 6} {
				q := r.Begin(unique|resent, 9, 1, true)
				if q.Poisoned() {
					t.Error("others are refused")
				}
				q.End()
			}
			return
		}
		if death == 1 {
			r.Begin(4|resent, 9, 1, true)
			r.Begin(6|resent, 1, 1, false)
			r.Begin(2|resent, 9, 1, true).Doing(&livestate.Facts{Names: [2]string{"bad", ""}})
			continue
		}
		// Suspects are handled one at a time: the others wait until one has ended, or the process.
		alone := r.Begin(2|resent, 9, 1, true)
		if alone.Poisoned() {
			t.Fatalf("refused after %d deaths", death)
		}
		alone.Doing(&livestate.Facts{Names: [2]string{"bad", ""}})
		waits := make(chan *livestate.Request)
		go func() { waits <- r.Begin(4|resent, 9, 1, true) }()
		defer func() {
			alone.End()
			<-waits
		}()
		if q := r.Begin(100, 1, 1, false); q == nil || q.Poisoned() {
			t.Error("other requests wait")
		}
	}
}

// TestDeathsLater: deaths are counted for a minute.
func TestDeathsLater(t *testing.T) {
	s := created(t)
	now := time.Unix(1e9, 0)
	s.Requests().Begin(2, 9, 1, true)
	for range 5 {
		s = successor(t, s)
		now = now.Add(31 * time.Second)
		s.Requests().Died(now)
		if s.Requests().Begin(2|resent, 9, 1, true).Poisoned() {
			t.Fatal("refused")
		}
	}
}

// BenchmarkRequest is what it costs a change to be noted.
func BenchmarkRequest(b *testing.B) {
	s, err := livestate.Create("bench")
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	r := s.Requests()
	f := livestate.Facts{Kind: 1, Nodes: [4]uint64{1, 2}, Names: [2]string{"some name.go", "another name.go"}}
	for i := range b.N {
		q := r.Begin(uint64(2+2*i), 9, 1, true)
		q.Doing(&f)
		q.Done(livestate.Answer{Node: 5})
		q.End()
	}
}

// TestMemory: a mount whose requests come one after another takes a few pages, in each process that goes on with it.
func TestMemory(t *testing.T) {
	s := created(t)
	for range 3 {
		if _, err := s.OpenNodes(); err != nil {
			t.Fatal(err)
		}
		r := s.Requests()
		for i := range uint64(1000) {
			r.Begin(2*i+2, 9, 1, i%2 == 0).End()
		}
		var a unix.Stat_t
		if err := unix.Fstat(int(s.File().Fd()), &a); err != nil {
			t.Fatal(err)
		}
		const page = 4096
		if got := a.Blocks * 512 / page; got > 10 {
			t.Errorf("it takes %d pages", got)
		}
		s = successor(t, s)
	}
}
