package livestate

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// Resent is the bit of a request's number with which the kernel gives it out again (FUSE_UNIQUE_RESEND).
const Resent = 1 << 63

// own is the bit of the numbers of work that no request of the kernel stands for.
const own = 1 << 62

// The region of intents, in words of 8 bytes:
//
//	0     life: how many processes have opened the mount
//	1     the life of the last one that was given a request
//	512   128 slots of changes, 104 words each
//	13824 192 slots of other requests, 8 words each
//
// and a slot:
//
//	0  number of the request, without Resent; 0: free      5  time of the death before
//	1  opcode, phase << 32                                 6  errno, size << 32 of the answer; see Listed
//	2  node                                                7  node of the answer; see Listed
//	3  life in which it was handled last, deaths << 32     8  facts of a change: kind, nodes, inodes, values, lengths of
//	4  time of the last death, in nanoseconds                 names; the names are from word 40 on
//
// The number is stored last and cleared first; the phase is stored after what it says is there.
const (
	changeSlots = 128
	changeWords = 104
	otherSlots  = 192
	otherWords  = 8
	servedAt    = 1
	changesAt   = 512
	othersAt    = changesAt + changeSlots*changeWords
	namesAt     = 40
	maxNameLen  = (changeWords - namesAt) / 2 * 8
	firstSlots  = 16 // are enough for two processors
)

// Phases of a request.
const (
	begun = 1 + iota // nothing was changed
	doing            // the facts say what may have been changed
	done             // the answer is noted
)

// Crash counting: a request that was being handled when the process died, deadly times within deadlyTime, is refused.
// From one death less on such requests are handled one at a time.
const (
	deadly     = 3
	deadlyTime = time.Minute
)

// Facts make a change recognisable by who looks at what it has left. What they mean is the business of who writes them.
type Facts struct {
	Kind   uint64
	Nodes  [4]uint64
	Inodes [4]uint64
	Values [8]uint64
	Names  [2]string // of at most 255 bytes
}

// Answer is what a request is answered with, as far as it cannot be found out again.
type Answer struct {
	Errno uint32
	Size  uint32
	Node  uint64
}

// Requests are those of a mount that are being handled, in memory that outlives the process. Its methods may be called
// concurrently.
type Requests struct {
	words []uint64
	life  uint64
	after uint64 // the life of the last process before that was given a request
	all   []Request
	left  map[uint64]*Request // those that the process before was handling; immutable
	turn  chan struct{}       // holds one value while a suspect is handled

	opened time.Time
}

// Request is one that is being handled. All methods but Unfinished, Poisoned and Answered are for one goroutine at a
// time. A nil Request is one of which nothing is noted.
type Request struct {
	of      *Requests
	w       []uint64
	busy    atomic.Bool
	claimed atomic.Bool // false: of the process before, and not asked for again
	turn    bool        // it holds Requests.turn
}

// Requests gives the requests of the mount. Of a state that another process has made they include those that it was
// handling.
func (s *State) Requests() *Requests {
	s.once.Do(func() {
		// What was never written is not looked at in the mapping, where it would take memory from then on.
		was := make([]uint64, IntentsSize/8)
		if _, err := s.f.ReadAt(bytesOf(was), intentsAt); err != nil {
			was = wordsOf(s.Intents())
		}
		s.requests = newRequests(wordsOf(s.Intents()), was)
	})
	return s.requests
}

func wordsOf(b []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

func bytesOf(w []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), len(w)*8)
}

// newRequests makes the requests of a region, of which was is what it has been given.
func newRequests(words, was []uint64) *Requests {
	r := &Requests{
		words: words, after: words[servedAt], all: make([]Request, changeSlots+otherSlots), left: map[uint64]*Request{},
		turn: make(chan struct{}, 1), opened: time.Now(),
	}
	words[0]++
	r.life = words[0]
	for i := range r.all {
		q := &r.all[i]
		q.of = r
		at, size := changesAt+i*changeWords, changeWords
		if i >= changeSlots {
			at, size = othersAt+(i-changeSlots)*otherWords, otherWords
		}
		q.w = words[at:][:size]
		if was[at] == 0 {
			q.claimed.Store(true)
			continue
		}
		if q.w[0]&own != 0 && (q.phase() != doing || !q.fresh()) {
			q.w[0] = 0 // it had changed nothing, or was not settled in time
		}
		if q.w[0] == 0 {
			q.claimed.Store(true)
			continue
		}
		q.busy.Store(true)
		r.left[q.w[0]] = q
	}
	return r
}

// Begin notes that a request is being handled, until End. One that the kernel gives out again goes on where the process
// before has left it. Changes wait while all slots are taken: by requests that do not wait for later ones. Of others
// nothing is noted then, and the result is nil.
func (r *Requests) Begin(unique uint64, op uint32, node uint64, change bool) *Request {
	if unique&own == 0 && atomic.LoadUint64(&r.words[servedAt]) != r.life {
		atomic.StoreUint64(&r.words[servedAt], r.life)
	}
	if unique&Resent != 0 {
		unique &^= Resent
		if q := r.claim(unique); q != nil {
			return q
		}
	}
	q := r.take(unique, change)
	if q == nil {
		return nil
	}
	q.claimed.Store(true)
	q.w[1] = uint64(op) | begun<<32
	q.w[2] = node
	q.w[3] = r.life
	q.w[4], q.w[5], q.w[6], q.w[7] = 0, 0, 0, 0
	atomic.StoreUint64(&q.w[0], unique)
	return q
}

// BeginOwn is Begin for a change that the process makes by itself. key tells those apart that are made at a time.
func (r *Requests) BeginOwn(key uint64) *Request { return r.Begin(key&^Resent|own, 0, 0, true) }

// claim gives a request of the process before that is asked for again. Suspects wait for their turn before.
func (r *Requests) claim(unique uint64) *Request {
	q := r.left[unique]
	if q == nil || atomic.LoadUint64(&q.w[0]) != unique || !q.claimed.CompareAndSwap(false, true) {
		return nil
	}
	if d := q.deaths(); d >= deadly-1 && d < deadly {
		r.turn <- struct{}{}
		q.turn = true
	}
	q.w[3] = q.w[3]>>32<<32 | r.life
	return q
}

// take finds a free slot.
func (r *Requests) take(unique uint64, change bool) *Request {
	slots := r.all[changeSlots:]
	if change {
		slots = r.all[:changeSlots]
	}
	// The kernel counts in steps of two, so one of the first ones is free, as a rule. The others take no memory then.
	for at := int(unique / 2 % firstSlots); ; {
		for i := range slots {
			q := &slots[(at+i)%len(slots)]
			if !q.busy.Load() && q.busy.CompareAndSwap(false, true) {
				return q
			}
		}
		if q := r.withdrawn(slots); q != nil {
			return q
		}
		if !change {
			return nil
		}
		runtime.Gosched()
		time.Sleep(time.Millisecond)
	}
}

// withdrawnAfter is when requests of the process before that were not asked for again count as withdrawn, their programs
// having been killed: the kernel gives them out before all others.
const withdrawnAfter = 10 * time.Second

// withdrawn gives the slot of a request that will not be asked for again; nil if there is none.
func (r *Requests) withdrawn(slots []Request) *Request {
	if time.Since(r.opened) < withdrawnAfter {
		return nil
	}
	for i := range slots {
		if q := &slots[i]; !q.claimed.Load() && q.claimed.CompareAndSwap(false, true) {
			atomic.StoreUint64(&q.w[0], 0)
			return q
		}
	}
	return nil
}

// At gives the request in a slot, by what Slot has given; nil for 0.
func (r *Requests) At(slot uint16) *Request {
	if r == nil || slot == 0 || int(slot) > len(r.all) {
		return nil
	}
	return &r.all[slot-1]
}

// Slot is where the request is noted, never 0; 0 for nil.
func (q *Request) Slot() uint16 {
	if q == nil {
		return 0
	}
	return uint16((uintptr(unsafe.Pointer(q))-uintptr(unsafe.Pointer(&q.of.all[0])))/unsafe.Sizeof(*q)) + 1
}

// End forgets the request: its answer was given.
func (q *Request) End() {
	if q == nil {
		return
	}
	atomic.StoreUint64(&q.w[0], 0)
	if q.turn {
		q.turn = false
		<-q.of.turn
	}
	q.busy.Store(false)
}

func (q *Request) phase() uint64 { return atomic.LoadUint64(&q.w[1]) >> 32 }

func (q *Request) setPhase(p uint64) {
	atomic.StoreUint64(&q.w[1], q.w[1]&0xffffffff|p<<32)
}

// Doing notes facts, before the step that changes something.
func (q *Request) Doing(f *Facts) {
	if q == nil {
		return
	}
	q.setPhase(begun)
	w := append(q.w[8:8], f.Kind)
	w = append(w, f.Nodes[:]...)
	w = append(w, f.Inodes[:]...)
	w = append(w, f.Values[:]...)
	lengths := uint64(0)
	for i, name := range f.Names {
		name = name[:min(len(name), maxNameLen)]
		copy(q.name(i), name)
		lengths |= uint64(len(name)) << (16 * i)
	}
	_ = append(w, lengths)
	q.setPhase(doing)
}

func (q *Request) name(i int) []byte {
	const words = maxNameLen / 8
	w := q.w[namesAt+i*words:][:words]
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), maxNameLen)
}

// NotDone notes that nothing was changed, or that it was undone.
func (q *Request) NotDone() {
	if q != nil {
		q.setPhase(begun)
	}
}

// Done notes the answer.
func (q *Request) Done(a Answer) {
	if q == nil {
		return
	}
	atomic.StoreUint64(&q.w[6], uint64(a.Errno)|uint64(a.Size)<<32)
	atomic.StoreUint64(&q.w[7], a.Node)
	q.setPhase(done)
}

// Answered gives the answer, if it was noted.
func (q *Request) Answered() (Answer, bool) {
	if q == nil || q.phase() != done {
		return Answer{}, false
	}
	v := q.w[6]
	return Answer{Errno: uint32(v), Size: uint32(v >> 32), Node: q.w[7]}, true
}

// SetListed notes how many references the answer to a listing gives, and a sum of the nodes.
func (q *Request) SetListed(n, sum uint64) {
	if q != nil {
		atomic.StoreUint64(&q.w[7], sum)
		atomic.StoreUint64(&q.w[6], n)
	}
}

// Listed gives what SetListed has noted, perhaps a sum without its number.
func (q *Request) Listed() (n, sum uint64) {
	if q == nil {
		return 0, 0
	}
	return q.w[6], q.w[7]
}

// Unfinished gives the facts of a change that the process before may have made; false if it has made none, or has noted
// the answer.
func (q *Request) Unfinished() (f Facts, ok bool) {
	if q == nil || q.phase() != doing {
		return f, false
	}
	w := q.w[8:]
	f.Kind = w[0]
	w = w[1+copy(f.Nodes[:], w[1:]):]
	w = w[copy(f.Inodes[:], w):]
	w = w[copy(f.Values[:], w):]
	for i := range f.Names {
		n := min(int(w[0]>>(16*i)&0xffff), maxNameLen)
		f.Names[i] = string(q.name(i)[:n])
	}
	return f, true
}

// fresh reports whether nobody was given a request since the process died that was handling this one. Later, its program
// may have been killed, and another may have changed the same names: facts are true then only if it is asked for again,
// as the kernel has held the locks until then.
func (q *Request) fresh() bool { return q.w[3]&0xffffffff >= q.of.after&0xffffffff }

// Left are the changes that the process before may have made without noting the answer. Those of an earlier one are to be
// settled when they are asked for again.
func (r *Requests) Left() []*Request {
	var out []*Request
	for _, q := range r.left {
		if !q.claimed.Load() && len(q.w) == changeWords && q.phase() == doing && q.fresh() {
			out = append(out, q)
		}
	}
	return out
}

// EndOwn forgets a change of BeginOwn that the process before has left, and reports whether it is one.
func (q *Request) EndOwn() bool {
	if q.w[0]&own == 0 {
		return false
	}
	q.claimed.Store(true)
	q.End()
	return true
}

// deaths is how often the process has died within the last minute while it handled the request.
func (q *Request) deaths() int { return int(q.w[3] >> 32) }

// Poisoned reports whether the request is refused because the process has died of it.
func (q *Request) Poisoned() bool { return q != nil && q.deaths() >= deadly }

// Suspect is a request that was being handled at every one of several deaths.
type Suspect struct {
	Opcode uint32
	Node   uint64
	Names  []string // as far as it has noted them
}

// Died counts the death of the process before, at a time, for all requests that it was handling. It is called at most
// once, before the first Begin, and not for a process that somebody else has ended: nothing that it handled is to blame
// for that.
func (r *Requests) Died(now time.Time) {
	for _, q := range r.left {
		if q.w[0]&own != 0 || q.w[3]&0xffffffff != (r.life-1)&0xffffffff {
			continue // it was not being handled then
		}
		n := uint64(1)
		for _, at := range q.w[4:6] {
			if at != 0 && now.Sub(time.Unix(0, int64(at))) < deadlyTime {
				n++
			}
		}
		q.w[5] = q.w[4]
		q.w[4] = uint64(now.UnixNano())
		q.w[3] = q.w[3]&0xffffffff | n<<32
	}
}
