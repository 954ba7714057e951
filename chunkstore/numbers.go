package chunkstore

import (
	"encoding/binary"
	"errors"
	"math"

	"snapfs/chunkstore/internal/corrupt"
)

// Chunk numbers are never used again, so a store that chunks come and go in for years reaches high ones. Whatever
// counts or keeps chunks follows those that exist, not how high their numbers are.

// endNumber is what all chunk numbers are below. Differences of two numbers fit an int64.
const endNumber = 1 << 62

var errNumbers = errors.New("store is full: all chunk numbers are used")

// numbers assigns count consecutive chunk numbers and returns the first.
func (s *Store) numbers(count uint64) (uint64, error) {
	s.numMu.Lock()
	defer s.numMu.Unlock()
	if s.nextNum+count > s.lease {
		lease := s.nextNum + count + leaseStep
		if lease > endNumber {
			return 0, errNumbers
		}
		if err := s.update(func(t *writeTxn) error {
			t.state.lease = lease
			return nil
		}); err != nil {
			return 0, err
		}
		s.lease = lease
	}
	first := s.nextNum
	s.nextNum += count
	return first, nil
}

// appendNumber appends a number to a key so that keys are in the order of their numbers: 4 bytes for what fits them,
// else 4 bytes of ones and 8 bytes. Stores of earlier versions have no longer numbers.
func appendNumber(key []byte, n uint64) []byte {
	if n <= math.MaxUint32 {
		return binary.BigEndian.AppendUint32(key, uint32(n))
	}
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(key, math.MaxUint32), n)
}

// parseNumber reads a number that appendNumber has written behind the first byte of a key.
func parseNumber(key []byte) (uint64, error) {
	switch b := key[1:]; len(b) {
	case 4:
		return uint64(binary.BigEndian.Uint32(b)), nil
	case 12:
		n := binary.BigEndian.Uint64(b[4:])
		if binary.BigEndian.Uint32(b) == math.MaxUint32 && n > math.MaxUint32 {
			return n, nil
		}
	}
	return 0, corrupt.Errorf("number in the key %x is malformed", key)
}
