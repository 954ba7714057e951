package chunkstore

import (
	"context"
	"runtime"

	"snapfs/internal/lockorder"
)

// Bounds of what is decoded ahead.
const (
	loadForward = 512 << 10 // bytes of the stream behind a chunk that was read
	loadBack    = 128 << 10 // bytes before it, for programs that read a directory in another order
	loadAtOnce  = 32        // records, for one chunk
	loadQueue   = 4         // read points to continue at; the oldest is dropped when there are more
	loadMembers = 8         // chunks of a record of small files
)

// Credit is counted in quarters of a record. It starts with a few records. A record that is decoded ahead costs 4, and
// earns 6 when it is read; one that a reader had to wait for earns 1. So random reads cause at most a quarter of wasted
// work, and a program that reads a tree soon finds everything decoded.
const (
	creditStart  = 16
	creditRecord = 4
	creditUsed   = 6
	creditWaited = 1
	creditMax    = 64 * creditRecord
)

// loader decodes ahead for programs that read a tree of small files. The chunks of a directory lie side by side in the
// stream, but in many records, which hold similar chunks. So a miss in one file shows what the next files need. Large
// reads have their records decoded in parallel instead, see readMany.
type loader struct {
	mu      lockorder.Mutex[lockorder.Loader]
	credit  int         // guarded by mu
	queue   []readPoint // guarded by mu; the newest last
	workers int         // goroutines that decode; each is a user of the store while it runs; guarded by mu
}

// readPoint is a location in a stored stream that was just read.
type readPoint struct {
	m  *chunkList
	at int64
}

// Origins of a block, for its first reader.
const (
	blockUsed   = iota // it was read before
	blockWaited        // the reader had it decoded
	blockAhead         // it was decoded ahead
)

// takeOrigin returns the origin of the block to its first reader, and blockUsed to all others.
func (b *block) takeOrigin() int32 {
	if b.origin.Load() == blockUsed {
		return blockUsed
	}
	return b.origin.Swap(blockUsed)
}

// isOfSmall reports whether a block holds chunks of small files, or the delta of one. Reads of others are random reads of
// a large file, where nothing is decoded ahead.
func (b *block) isOfSmall() bool { return len(b.members) >= loadMembers || len(b.data) < directMin }

// noteFirstRead notes that the byte at a location was read from a block for the first time, and has the surroundings
// decoded.
func (s *Store) noteFirstRead(m *chunkList, at int64, origin int32) {
	l := &s.loader
	l.mu.Lock()
	defer l.mu.Unlock()
	earned := creditWaited
	if origin == blockAhead {
		earned = creditUsed
	}
	if l.credit = min(l.credit+earned, creditMax); l.credit < creditRecord {
		return
	}
	if len(l.queue) == loadQueue {
		l.queue = append(l.queue[:0], l.queue[1:]...)
	}
	l.queue = append(l.queue, readPoint{m, at})
	if l.workers < max(1, runtime.GOMAXPROCS(0)/2) && s.enter(context.Background()) == nil {
		l.workers++
		go s.loadAhead()
	}
}

// loadAhead works until nothing is left to do. Close waits for it.
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

// loadAround decodes the records of the chunks around a location, as far as credit allows.
func (s *Store) loadAround(a readPoint) {
	no := a.m.segmentAt(a.at)
	sg, err := s.segment(a.m, no)
	if err != nil {
		return // the reader that needs it reports it
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

// load decodes the record of chunk i of a segment, unless it is large or decoded already. It returns false when it is
// time to stop.
func (s *Store) load(sg *segment, i int, left *int) bool {
	if sg.offs[i+1]-sg.offs[i] >= directMin {
		return true
	}
	num := sg.nums[i]
	rec, _, err := s.locate(num)
	if err != nil {
		return false
	}
	if s.blocks.has(rec.Location) {
		return true
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
	_, err = s.blocks.load(rec.Location, func() (*block, error) {
		b, err := s.decode(s.locate, rec, num)
		if err == nil {
			b.origin.Store(blockAhead)
		}
		return b, err
	})
	return err == nil
}
