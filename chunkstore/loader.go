package chunkstore

import (
	"context"
	"runtime"

	"snapfs/internal/lockorder"
)

// Bounds of what is decoded before it is asked for.
const (
	loadForward = 512 << 10 // bytes of the stream behind a chunk that was wanted
	loadBack    = 128 << 10 // and before it: who reads a directory in an order of its own wants these as well
	loadAtOnce  = 32        // records, for one chunk
	loadQueue   = 4         // places where to go on; when there are more the oldest is forgotten
	loadMembers = 8         // chunks of a record of small files; around others nothing is decoded: random reads of a large file
)

// Credit is counted in quarters of a record. It starts with a few records; one that was decoded ahead costs 4 of them
// and earns 6 when it is wanted; one that had to be waited for earns 1. So random reads cause a quarter of work in vain
// at most, and who reads a tree soon finds everything there.
const (
	creditStart  = 16
	creditRecord = 4
	creditUsed   = 6
	creditWaited = 1
	creditMax    = 64 * creditRecord
)

// loader decodes ahead, beside those who read a tree of small files. The chunks of a directory lie beside each other in
// the stream but in many records, which hold alike beside alike, so that a miss in one file tells what the next files
// need. Who reads much at once has its records decoded side by side instead, see readMany.
type loader struct {
	mu      lockorder.Mutex[lockorder.Loader]
	credit  int      // guarded by mu
	queue   []around // guarded by mu; the newest last
	workers int      // goroutines that decode; each is a user of the store while it lives; guarded by mu
}

// around is a place of a stored stream that was just read.
type around struct {
	m  *chunkList
	at int64
}

// What a block tells whoever is the first to read it.
const (
	blockUsed   = iota // by somebody before
	blockWaited        // nobody: he had it decoded
	blockAhead         // nobody: it was decoded ahead
)

// first tells once how the block came to be there.
func (b *block) first() int32 {
	if b.how.Load() == blockUsed {
		return blockUsed
	}
	return b.how.Swap(blockUsed)
}

// met notes that the byte at a place was read from a block for the first time, and has what lies around it decoded.
func (s *Store) met(m *chunkList, at int64, how int32) {
	l := &s.loader
	l.mu.Lock()
	defer l.mu.Unlock()
	earned := creditWaited
	if how == blockAhead {
		earned = creditUsed
	}
	if l.credit = min(l.credit+earned, creditMax); l.credit < creditRecord {
		return
	}
	if len(l.queue) == loadQueue {
		l.queue = append(l.queue[:0], l.queue[1:]...)
	}
	l.queue = append(l.queue, around{m, at})
	if l.workers < max(1, runtime.GOMAXPROCS(0)/2) && s.enter(context.Background()) == nil {
		l.workers++
		go s.loadAhead()
	}
}

// loadAhead works until nothing is left to do. It leaves the store, which waits for it when it is closed.
func (s *Store) loadAhead() {
	defer s.leave()
	l := &s.loader
	for {
		l.mu.Lock()
		n := len(l.queue)
		if n == 0 {
			l.workers--
			l.mu.Unlock()
			return
		}
		a := l.queue[n-1]
		l.queue = l.queue[:n-1]
		l.mu.Unlock()
		s.loadAround(a)
	}
}

// loadAround decodes the records of the chunks around a place as far as credit goes.
func (s *Store) loadAround(a around) {
	no := a.m.segmentAt(a.at)
	sg, err := s.segment(a.m, no)
	if err != nil {
		return // who needs it will meet it
	}
	here := sg.chunkAt(a.at)
	left := loadAtOnce
	for i := here + 1; ; i++ {
		if i == len(sg.nums) {
			if no++; no == len(a.m.segments) {
				break
			}
			if sg, err = s.segment(a.m, no); err != nil {
				return
			}
			i = 0
		}
		if sg.offs[i] > a.at+loadForward {
			break
		}
		if !s.load(sg, i, &left) {
			return
		}
	}
	if sg, err = s.segment(a.m, a.m.segmentAt(a.at)); err != nil {
		return
	}
	for i := here - 1; i >= 0 && sg.offs[i+1] > a.at-loadBack; i-- {
		if !s.load(sg, i, &left) {
			return
		}
	}
}

// load decodes the record of chunk i of a segment, a small one, unless it is there; false if that is enough.
func (s *Store) load(sg *segment, i int, left *int) bool {
	if sg.offs[i+1]-sg.offs[i] >= directMin {
		return true
	}
	num := uint64(sg.nums[i])
	rec, _, err := s.locate(num)
	if err != nil {
		return false
	}
	if rec.delta || s.blocks.has(rec.Place) {
		return true // a delta of a small file is decoded in less time than its reader takes to wait for another goroutine
	}
	l := &s.loader
	l.mu.Lock()
	ok := *left > 0 && l.credit >= creditRecord
	if ok {
		l.credit -= creditRecord
		*left--
	}
	l.mu.Unlock()
	if !ok || s.isClosed() {
		return false
	}
	_, err = s.blocks.load(rec.Place, func() (*block, error) {
		b, err := s.decode(s.locate, rec, num)
		if err == nil {
			b.how.Store(blockAhead)
		}
		return b, err
	})
	return err == nil
}
