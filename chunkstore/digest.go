package chunkstore

import (
	"errors"

	"github.com/zeebo/blake3"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/pack"
)

// A record has a digest of the hashes of its chunks. Its checksum says that the record is what was written; the digest
// says that it decodes to what was stored. It is needed where the index, which has the whole hashes, is not at hand:
// when the index is rebuilt, and for chunks that equal a later one, which their hash names instead. Whatever moves
// chunks verifies them first: a copy of wrong bytes would be a right record of wrong bytes.
//
// Records of stores of version 1 have no digest. They get one when they are moved.

// digestOf returns the digest of a record: the first bytes of the BLAKE3 hash of the chunks' hashes in order of their
// numbers.
func digestOf(sums []hash) []byte {
	h := blake3.New()
	for i := range sums {
		_, _ = h.Write(sums[i][:]) // cannot fail
	}
	return h.Sum(nil)[:pack.DigestSize:pack.DigestSize]
}

// hashes returns the hashes of a decoded record's chunks, in order of their numbers.
func (b *block) hashes() []hash {
	sums := make([]hash, len(b.members))
	for i, m := range b.members {
		sums[i] = hashOf(b.data[m.off : m.off+m.len])
	}
	return sums
}

// What is known of a decoded record's digest.
const (
	digestUnread = iota
	digestRight
	digestWrong // or there is none
)

// isRight reports whether a record decodes to what its digest says. It is false if there is none. sums are the hashes of
// its chunks; nil if they were not computed.
func (b *block) isRight(sums []hash) bool {
	known := b.verdict.Load()
	if known == digestUnread {
		known = digestWrong
		if len(b.digest) > 0 {
			if sums == nil {
				sums = b.hashes()
			}
			if string(digestOf(sums)) == string(b.digest) {
				known = digestRight
			}
		}
		b.verdict.Store(known)
	}
	return known == digestRight
}

// verify returns the hash of a chunk of a decoded record. It fails with ErrCorrupt if the bytes are not those that were
// stored: neither the record's digest nor the index knows them.
func (s *Store) verify(b *block, num uint64) (hash, error) {
	data, err := b.need(num)
	if err != nil {
		return hash{}, err
	}
	h := hashOf(data)
	if b.isRight(nil) {
		return h, nil
	}
	_, err = s.lookup(h)
	if errors.Is(err, ErrNotFound) {
		err = corrupt.Errorf("chunk %d is not what was stored", num)
	}
	return h, err
}

// verifiedChunk is chunk for what is stored again under another number or in another record.
func (s *Store) verifiedChunk(num uint64) ([]byte, hash, error) {
	b, err := s.block(s.locate, num)
	if err != nil {
		return nil, hash{}, err
	}
	h, err := s.verify(b, num)
	if err != nil {
		return nil, hash{}, err
	}
	data, err := b.need(num)
	return data, h, err
}

// verifyPart verifies the chunks that a part of a transform run is made of.
func (s *Store) verifyPart(m *chunkList, run, part int) error {
	lo, hi := m.transforms[run].needs(part)
	chunks, err := s.chunksIn(m, lo, hi)
	for i := 0; i < len(chunks) && err == nil; i++ {
		_, _, err = s.verifiedChunk(chunks[i].num)
	}
	return err
}

// verifyRecord verifies a record that was read as raw, of which the index names some chunks. It returns the record to
// be appended in its place: with a digest.
func (s *Store) verifyRecord(rec *located, raw []byte, nums []uint64) ([]byte, error) {
	r, err := pack.ParseRecord(append([]byte(nil), raw...)) // decoding changes it
	if err != nil {
		return nil, err
	}
	b, err := s.unpack(s.locate, rec, r, nums[0])
	if err != nil {
		return nil, err
	}
	sums := b.hashes()
	if b.isRight(sums) {
		return raw, nil
	}
	for _, num := range nums {
		if _, err := s.verify(b, num); err != nil {
			return nil, err
		}
	}
	if r, err = pack.ParseRecord(raw); err != nil {
		return nil, err
	}
	r.Digest = digestOf(sums)
	return pack.AppendRecord(nil, r), nil
}
