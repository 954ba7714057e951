package catalog

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"

	"snapfs/internal/lockorder"
)

// idSource makes UUIDv7s (RFC 9562, 5.7) that only grow, also when the clock goes back and over restarts: lists are in
// order of ids, and a cursor must not skip what came later. So ids of snapshots and events are made while nothing else
// can be committed, in the order in which the records become durable, and the newest one is recorded with them.
//
//	48 bits milliseconds | 0111 | 12 bits counter | 10 | 62 bits random
type idSource struct {
	clock func() time.Time // nil = time.Now; immutable

	mu      lockorder.Mutex[lockorder.IDs]
	ms      uint64 // guarded by mu: of the newest id
	counter uint16 // guarded by mu
}

// now is what the clock of the home says.
func (s *idSource) now() time.Time {
	if s.clock == nil {
		return time.Now()
	}
	return s.clock()
}

// seen makes all later ids greater than id.
func (s *idSource) seen(id string) {
	u, err := uuid.Parse(id)
	if err != nil {
		return // not one of ours: the reader of the record has complained
	}
	ms := binary.BigEndian.Uint64(u[:8]) >> 16
	counter := binary.BigEndian.Uint16(u[6:8]) & 0xfff
	s.mu.Lock()
	defer s.mu.Unlock()
	if ms > s.ms || ms == s.ms && counter > s.counter {
		s.ms, s.counter = ms, counter
	}
}

// next makes an id.
func (s *idSource) next() string {
	s.mu.Lock()
	if now := uint64(s.now().UnixMilli()); now > s.ms {
		s.ms, s.counter = now, 0
	} else if s.counter++; s.counter > 0xfff {
		s.ms, s.counter = s.ms+1, 0
	}
	u := s.headLocked()
	s.mu.Unlock()
	// crypto/rand.Read never fails: it ends the process where the kernel gives no random bytes.
	_, _ = rand.Read(u[8:])
	u[8] = u[8]&0x3f | 0x80
	return u.String()
}

// newest is what seen must be given for all later ids to be greater than those made so far.
func (s *idSource) newest() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.headLocked()
	u[8] = 0x80
	return u.String()
}

// firstID is at or before all ids that are made from a time on.
func firstID(from time.Time) string {
	ms := uint64(max(0, from.UnixMilli()))
	return fmt.Sprintf("%08x-%04x", ms>>16, ms&0xffff)
}

// headLocked is an id but for its random bits. The caller holds mu.
func (s *idSource) headLocked() (u uuid.UUID) {
	binary.BigEndian.PutUint64(u[:8], s.ms<<16|0x7000|uint64(s.counter))
	return u
}
