package chunkstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	badger "github.com/dgraph-io/badger/v4"
	"github.com/zeebo/blake3"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/frame"
	"snapfs/chunkstore/internal/pack"
	"snapfs/internal/varint"
)

// ID is a manifest's number: dense, never reused.
type ID uint64

// Kind tells what a manifest describes.
type Kind uint8

// Kinds of manifest.
const (
	KindImage Kind = iota + 1
	KindDocument
)

// Manifest describes one stored byte stream.
type Manifest struct {
	ID     ID
	Kind   Kind
	Size   int64 // bytes
	Chunks int64
	// Digest is BLAKE3 over chunk hashes, header and transform runs. If chunks were copied from another manifest, it is
	// over chunk numbers instead of hashes. Equal digests in a store mean equal bytes and cuts.
	Digest [32]byte
	New    int64 // bytes of chunks that were new to the store when it was committed
}

// The value of a manifest, without its id:
//
//	version  1 byte: 1, or 2 if the digest is over chunk numbers
//	kind     1 byte
//	size, chunks, new   uvarint each
//	digest   32 bytes
//	header   uvarint length, bytes: the start of the stream, which no chunk holds
//	packed   uvarint decoded length of the rest; if that is not 0 it is one zstd frame, else plain
//	runs     uvarint count, then per run: varint first number - end of the run before it, uvarint chunks
//	segments per segmentChunks chunks: uvarint bytes
//	transforms uvarint count, then per run: uvarint bytes between the run before and it, codec (1 byte),
//	         uvarint bytes, uvarint inner bytes, codec Deflate: the pieces
//
// The concatenated chunks, after the header, are the stored stream. It is the stream itself except for transform runs:
// of those it has the inner bytes, from which the run's bytes are made.
//
// Values longer than partSize are continued under keyPart.
const (
	manifestVersion = 1
	manifestCopied  = 2
	segmentChunks   = 1024
	partSize        = 64 << 10
	maxHeader       = 4 << 10
	maxRuns         = 64 << 20 // bytes of runs and segments
)

// run is a sequence of chunks with consecutive numbers.
type run struct {
	first uint64
	count uint64
}

// chunkList is the body of a manifest; immutable when complete.
type chunkList struct {
	Manifest
	header   []byte
	runs     []run
	segments []int64 // bytes of the stored stream per segmentChunks chunks
	stored   int64   // bytes of the stored stream
	copied   bool    // has copied chunks, whose hashes are not known

	transforms []transformRun // in order; each starts and ends with a chunk

	starts []int64 // first byte of each segment in the stored stream, and the end; set by index
	firsts []int64 // index, in chunks of the stream, of the first chunk of each run; set by index
}

// index prepares a complete list for reading.
func (m *chunkList) index() {
	at := int64(len(m.header))
	for _, n := range m.segments {
		m.starts = append(m.starts, at)
		at += n
	}
	m.starts = append(m.starts, at)
	n := int64(0)
	for _, r := range m.runs {
		m.firsts = append(m.firsts, n)
		n += int64(r.count)
	}
}

// segmentAt finds the segment that holds byte off of the stored stream.
func (m *chunkList) segmentAt(off int64) int {
	return sort.Search(len(m.starts), func(i int) bool { return m.starts[i] > off }) - 1
}

// add appends a chunk.
func (m *chunkList) add(num uint64, n int) {
	if k := len(m.runs); k > 0 && m.runs[k-1].first+m.runs[k-1].count == num {
		m.runs[k-1].count++
	} else {
		m.runs = append(m.runs, run{num, 1})
	}
	if m.Chunks%segmentChunks == 0 {
		m.segments = append(m.segments, 0)
	}
	m.segments[len(m.segments)-1] += int64(n)
	m.Chunks++
	m.Size += int64(n)
	m.stored += int64(n)
}

// digest completes the digest of a stream. sum has the hashes of its chunks, unless it has copied chunks.
func (m *chunkList) digest(sum *blake3.Hasher) [32]byte {
	if m.copied {
		sum = blake3.New()
		b := []byte("chunk numbers")
		for _, r := range m.runs {
			b = binary.AppendUvarint(binary.AppendUvarint(b, r.first), r.count)
		}
		_, _ = sum.Write(b) // cannot fail
	}
	_, _ = sum.Write(m.header) // cannot fail, as the next
	_, _ = sum.Write(m.appendTransforms(nil))
	return [32]byte(sum.Sum(nil))
}

// bitmap is the set of the manifest's chunks.
func (m *chunkList) bitmap() *roaring64.Bitmap {
	b := roaring64.New()
	for _, r := range m.runs {
		b.AddRange(r.first, r.first+r.count)
	}
	return b
}

// names reports whether a chunk is one of the manifest's.
func (m *chunkList) names(num uint64) bool {
	return slices.ContainsFunc(m.runs, func(r run) bool { return num-r.first < r.count })
}

// cost estimates its memory.
func (m *chunkList) cost() int64 {
	return 200 + int64(len(m.runs))*24 + int64(len(m.segments))*16 + m.transformsCost()
}

func (m *chunkList) encode(c *frame.Codec) []byte {
	b := []byte{manifestVersion, byte(m.Kind)}
	if m.copied {
		b[0] = manifestCopied
	}
	for _, v := range []int64{m.Size, m.Chunks, m.New} {
		b = binary.AppendUvarint(b, uint64(v))
	}
	b = append(b, m.Digest[:]...)
	b = binary.AppendUvarint(b, uint64(len(m.header)))
	b = append(b, m.header...)
	body := binary.AppendUvarint(nil, uint64(len(m.runs)))
	end := uint64(0)
	for _, r := range m.runs {
		body = binary.AppendVarint(body, int64(r.first-end))
		body = binary.AppendUvarint(body, r.count)
		end = r.first + r.count
	}
	for _, n := range m.segments {
		body = binary.AppendUvarint(body, uint64(n))
	}
	body = m.appendTransforms(body)
	if len(body) <= frame.MaxInput {
		if packed := c.Encode(nil, body, nil, frame.Better); len(packed)+1 < len(body) {
			return append(binary.AppendUvarint(b, uint64(len(body))), packed...)
		}
	}
	return append(append(b, 0), body...)
}

// parseHead reads the beginning of a manifest's value: the fields of the public type, and whether it has copied chunks.
func (m *Manifest) parseHead(id ID, p *varint.Parser) (copied bool, err error) {
	version := p.Byte()
	if version != manifestVersion && version != manifestCopied {
		return false, corrupt.Errorf("manifest %d has an unknown version", id)
	}
	m.ID, m.Kind = id, Kind(p.Byte())
	for _, v := range []*int64{&m.Size, &m.Chunks, &m.New} {
		*v = int64(p.Uint())
	}
	copy(m.Digest[:], p.Bytes(32))
	if p.Bad {
		return false, corrupt.Errorf("manifest %d is malformed", id)
	}
	return version == manifestCopied, nil
}

func parseManifest(id ID, b []byte, c *frame.Codec) (*chunkList, error) {
	bad := func() (*chunkList, error) { return nil, corrupt.Errorf("manifest %d is malformed", id) }
	p := varint.Parser{Rest: b}
	m := &chunkList{}
	var err error
	if m.copied, err = m.parseHead(id, &p); err != nil {
		return nil, err
	}
	m.header = slices.Clone(p.Bytes(p.Count(maxHeader)))
	if n := p.Count(maxRuns); n > 0 {
		body, err := c.Decode(nil, p.Rest, nil, n)
		if err != nil {
			return nil, fmt.Errorf("manifest %d: %w", id, err)
		}
		p.Rest = body
	}
	n := p.Count(maxRuns)
	m.runs = make([]run, 0, min(n, len(p.Rest)))
	end, chunks, size := uint64(0), uint64(0), int64(len(m.header))
	for range n {
		r := run{first: end + uint64(p.Int()), count: p.Uint()}
		end = r.first + r.count
		if p.Bad || r.count == 0 || r.count > maxRuns*segmentChunks || r.first >= endNumber || end > endNumber {
			return bad()
		}
		chunks += r.count
		m.runs = append(m.runs, r)
	}
	for range (chunks + segmentChunks - 1) / segmentChunks {
		s := int64(p.Count(segmentChunks * pack.MaxRaw))
		if p.Bad {
			return bad()
		}
		m.segments = append(m.segments, s)
		size += s
	}
	m.stored = size
	if !m.parseTransforms(&p) || p.Bad || len(p.Rest) > 0 || uint64(m.Chunks) != chunks {
		return bad()
	}
	m.index()
	return m, nil
}

// manifest reads a manifest; ErrNotFound.
func (s *Store) manifest(id ID) (*chunkList, error) {
	m, epoch, ok := s.manifests.get(id)
	if ok {
		return m, nil
	}
	err := s.view(func(btx *badger.Txn) (err error) {
		m, err = readManifest(btx, id, s.codec)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.manifests.put(id, m, m.cost(), epoch)
	return m, nil
}

func readManifest(btx *badger.Txn, id ID, c *frame.Codec) (*chunkList, error) {
	return assembleManifest(id, c, func(key []byte) ([]byte, error) { return get(btx, key) })
}

// assembleManifest reads a manifest from its value and the parts of it.
func assembleManifest(id ID, c *frame.Codec, get func(key []byte) ([]byte, error)) (*chunkList, error) {
	b, err := get(manifestKey(id))
	if err != nil {
		return nil, fmt.Errorf("manifest %d: %w", id, err)
	}
	for part, last := uint32(1), b; len(last) == partSize; part++ {
		last, err = get(partKey(id, part))
		if errors.Is(err, ErrNotFound) {
			return nil, corrupt.Errorf("manifest %d: part %d is missing", id, part)
		}
		if err != nil {
			return nil, err
		}
		b = append(slices.Clip(b), last...)
	}
	return parseManifest(id, b, c)
}

// putManifest writes the value of a manifest. Parts that do not fit one transaction were written before by writeAhead.
func (t *writeTxn) putManifest(id ID, value []byte) error {
	return t.set(manifestKey(id), value[:min(len(value), partSize)])
}

// parts splits what is behind the first partSize bytes. The last part is shorter than partSize, possibly empty.
func parts(value []byte) [][]byte {
	var ps [][]byte
	if len(value) < partSize {
		return nil
	}
	for rest := value[partSize:]; ; rest = rest[partSize:] {
		ps = append(ps, rest[:min(len(rest), partSize)])
		if len(rest) < partSize {
			return ps
		}
	}
}

// manifestIDs lists the numbers of the manifests after one, in order.
func (s *Store) manifestIDs(after ID) ([]ID, error) {
	var ids []ID
	err := s.view(func(btx *badger.Txn) error {
		return scan(btx, []byte{keyManifest}, manifestKey(after+1), func(key, _ []byte) (bool, error) {
			if len(key) != 9 {
				return false, corrupt.Errorf("manifest key of %d bytes", len(key))
			}
			ids = append(ids, ID(binary.BigEndian.Uint64(key[1:])))
			return true, nil
		})
	})
	return ids, err
}

// eachManifest calls fn for all manifests in order of their numbers.
func (s *Store) eachManifest(ctx context.Context, fn func(m *chunkList) error) error {
	return s.eachManifestAfter(ctx, 0, fn)
}

func (s *Store) eachManifestAfter(ctx context.Context, after ID, fn func(m *chunkList) error) error {
	ids, err := s.manifestIDs(after)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return err
		}
		m, err := s.manifest(id)
		if errors.Is(err, ErrNotFound) {
			continue // deleted in the meantime
		}
		if err == nil {
			err = fn(m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eachManifestOnce calls fn for all manifests in one scan, bypassing the cache.
func (s *Store) eachManifestOnce(ctx context.Context, fn func(m *chunkList)) error {
	prefix := []byte{keyManifest}
	return s.view(func(btx *badger.Txn) error {
		var big []ID // only one iterator may be open
		if err := scan(btx, prefix, prefix, func(key, value []byte) (bool, error) {
			if err := ctx.Err(); err != nil {
				return false, err
			}
			if len(key) != len(manifestKey(0)) {
				return false, corrupt.Errorf("manifest key of %d bytes", len(key))
			}
			id := ID(binary.BigEndian.Uint64(key[1:]))
			if len(value) == partSize {
				big = append(big, id)
				return true, nil
			}
			m, err := parseManifest(id, value, s.codec)
			if err == nil {
				fn(m)
			}
			return err == nil, err
		}); err != nil {
			return err
		}
		for _, id := range big {
			m, err := readManifest(btx, id, s.codec)
			if err != nil {
				return err
			}
			fn(m)
		}
		return nil
	})
}

// Manifest describes a stored stream; ErrNotFound.
func (s *Store) Manifest(ctx context.Context, id ID) (Manifest, error) {
	if err := s.enter(ctx); err != nil {
		return Manifest{}, err
	}
	defer s.leave()
	m, err := s.manifest(id)
	if err != nil {
		return Manifest{}, err
	}
	return m.Manifest, nil
}

// Manifests lists all stored streams in order of their numbers.
func (s *Store) Manifests(ctx context.Context) ([]Manifest, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	var list []Manifest
	prefix := []byte{keyManifest}
	err := s.view(func(btx *badger.Txn) error {
		return scan(btx, prefix, prefix, func(key, value []byte) (bool, error) {
			if len(key) != len(manifestKey(0)) {
				return false, corrupt.Errorf("manifest key of %d bytes", len(key))
			}
			var m Manifest
			_, err := m.parseHead(ID(binary.BigEndian.Uint64(key[1:])), &varint.Parser{Rest: value})
			list = append(list, m)
			return true, errors.Join(err, ctx.Err())
		})
	})
	return list, err
}
