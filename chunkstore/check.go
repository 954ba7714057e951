package chunkstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	badger "github.com/dgraph-io/badger/v4"
	"github.com/zeebo/blake3"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/pack"
)

// CheckOptions are for Check.
type CheckOptions struct {
	ReadData bool // decode every block and verify every chunk's hash
	// Repair removes what cannot be read from the index, so that equal contents that come again are stored anew.
	Repair   bool
	Progress func(done, total int64) // bytes of records; nil: none is reported
}

// Problem is one finding of Check.
type Problem struct {
	Where     string // a file, record, page or manifest
	What      string // one line
	Manifests []ID   // that are affected
}

// Check verifies the store. It returns damage of the store as problems, and an error only if the check itself fails. It
// runs concurrently with readers and writers, but not with a collection.
func (s *Store) Check(ctx context.Context, opts CheckOptions) ([]Problem, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	s.gcMu.Lock()
	defer s.gcMu.Unlock()
	c := &checker{
		s: s, opts: opts, known: roaring64.New(), bad: roaring64.New(), blocks: map[pack.Location]bool{},
		hashes: map[uint64]hash{}, read: roaring64.New(), unknown: map[uint64]*fresh{},
	}
	if c.opts.Progress == nil {
		c.opts.Progress = func(int64, int64) {}
	}
	for _, step := range []func(context.Context) error{c.index, c.packs, c.readHashes, c.chunks, c.manifests, c.settle} {
		if err := step(ctx); err != nil {
			return c.problems, err
		}
	}
	if opts.Repair && c.badJournal {
		if err := s.rewriteJournal(ctx, false); err != nil {
			return c.problems, err
		}
	}
	if opts.Repair {
		if err := errors.Join(c.rehash(), c.restamp(ctx)); err != nil {
			return c.problems, err
		}
	}
	if opts.Repair && !c.bad.IsEmpty() {
		return c.problems, c.repair(ctx)
	}
	return c.problems, nil
}

// checker is one call of Check; one goroutine uses it.
type checker struct {
	s        *Store
	opts     CheckOptions
	problems []Problem
	known    *roaring64.Bitmap      // chunks of the index
	blocks   map[pack.Location]bool // blocks seen so far
	done     int64                  // bytes of records seen so far
	bad      *roaring64.Bitmap      // chunks that cannot be read, without those that need them

	// With ReadData, what chunks hash to: as the index says, until the chunk is read.
	hashes map[uint64]hash
	read   *roaring64.Bitmap // chunks that were read and are right, as far as is known

	// unhashed are chunks that a look-up by hash does not find. That is no damage if their record's digest says so: two
	// concurrent ingests may store the same contents twice. The hash names the later chunk and is removed with it.
	// Repair makes the other one findable.
	unhashed []*fresh
	// unknown are such chunks in records without a digest. They are right if the digest of a manifest says so.
	unknown    map[uint64]*fresh
	undigested int64    // chunks in records without a digest
	stamp      []uint64 // right chunks in records with a wrong digest

	badJournal bool // the journal cannot be read: repair begins a new one
}

// found notes a problem that makes the chunks of bad, and all that need them, unreadable. bad may be nil.
func (c *checker) found(ctx context.Context, where string, what error, bad *roaring64.Bitmap) error {
	if bad != nil {
		c.bad.Or(bad)
		bad = bad.Clone()
		if err := c.needing(ctx, bad); err != nil {
			return err
		}
	}
	return c.note(where, what, bad)
}

// foundWrong notes a problem of chunks that can be read. Those that need them are verified by themselves.
func (c *checker) foundWrong(where string, what error, bad *roaring64.Bitmap) error {
	c.bad.Or(bad)
	return c.note(where, what, bad)
}

// note adds a problem of the manifests that name one of the chunks of bad.
func (c *checker) note(where string, what error, bad *roaring64.Bitmap) (err error) {
	p := Problem{Where: where, What: what.Error()}
	if bad != nil {
		p.Manifests, err = c.hit(bad)
	}
	c.problems = append(c.problems, p)
	return err
}

// hit lists the manifests that name one of the chunks of bad.
func (c *checker) hit(bad *roaring64.Bitmap) ([]ID, error) {
	ids, err := c.s.manifestIDs(0)
	if err != nil {
		return nil, err
	}
	var list []ID
	for _, id := range ids {
		if m, err := c.s.manifest(id); err == nil && m.bitmap().Intersects(bad) {
			list = append(list, id)
		}
	}
	return list, nil
}

// pageNumbers lists the pages of the index. Where damage hides keys from a walk over it, those stand in that manifests
// name chunks of.
func (s *Store) pageNumbers(ctx context.Context) (*roaring64.Bitmap, error) {
	nums := roaring64.New()
	prefix := []byte{keyPage}
	_ = s.view(func(btx *badger.Txn) error { // damage is what the caller looks for
		return scan(btx, prefix, prefix, func(key, _ []byte) (bool, error) {
			if no, err := parseNumber(key); err == nil {
				nums.Add(no)
			}
			return true, ctx.Err()
		})
	})
	ids, err := s.manifestIDs(0)
	if skipLost(err) != nil {
		return nil, err
	}
	for _, id := range ids {
		m, err := s.manifest(id)
		if err != nil {
			continue // deleted or damaged
		}
		for _, r := range m.runs {
			first, _ := pageOf(r.first)
			last, _ := pageOf(r.first + r.count - 1)
			nums.AddRange(first, last+1)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return nums, ctx.Err()
}

// eachPageLoose calls fn for the pages that can be read.
func (s *Store) eachPageLoose(ctx context.Context, fn func(no uint64, pg *page) error) error {
	nums, err := s.pageNumbers(ctx)
	if err != nil {
		return err
	}
	for it := nums.Iterator(); it.HasNext(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		no := it.Next()
		if pg, err := s.page(no); err == nil {
			if err := fn(no, pg); err != nil {
				return err
			}
		}
	}
	return nil
}

// index verifies Badger's tables.
func (c *checker) index(ctx context.Context) error {
	_, err := guarded("verify index", func() (struct{}, error) { return struct{}{}, c.s.db.VerifyChecksum() })
	if err != nil {
		return c.found(ctx, indexName, err, nil)
	}
	if num, err := c.s.checkJournal(); err != nil {
		c.badJournal = true
		return c.found(ctx, journalName(num), err, nil)
	}
	return nil
}

// packs verifies the files' headers and lengths.
func (c *checker) packs(ctx context.Context) error {
	var ends map[uint32]int64
	err := c.s.view(func(btx *badger.Txn) (err error) {
		ends, err = readEnds(btx)
		return err
	})
	if err != nil {
		return c.found(ctx, indexName, err, nil)
	}
	for num, end := range ends {
		if err := c.pack(num, end); err != nil {
			bad := roaring64.New()
			if err := c.s.eachPageLoose(ctx, func(no uint64, pg *page) error {
				for i := range pg.slots {
					if r := pg.slots[i].rec; r != nil && r.Pack == num && !c.s.packs.Reaches(r.Location) {
						bad.Add(no*pageChunks + uint64(i))
					}
				}
				return nil
			}); err != nil {
				return err
			}
			if err := c.found(ctx, pack.Name(num), err, bad); err != nil {
				return err
			}
		}
	}
	return nil
}

// pack verifies the header and the length of one pack; end is how far its records are named.
func (c *checker) pack(num uint32, end int64) error {
	f, err := os.Open(filepath.Join(c.s.packDir(), pack.Name(num)))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	h := make([]byte, pack.HeaderSize)
	if _, err := f.ReadAt(h, 0); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	if !pack.IsHeader(h, num) {
		return errors.New("header is damaged")
	}
	fi, err := f.Stat()
	if err == nil && fi.Size() < end {
		err = fmt.Errorf("has %d bytes, %d are named", fi.Size(), end)
	}
	return err
}

// chunks verifies pages and, with ReadData, the records they name.
func (c *checker) chunks(ctx context.Context) error {
	s := c.s
	nums, err := s.pageNumbers(ctx)
	if err != nil {
		return err
	}
	s.writeMu.Lock()
	total := s.state.payload
	s.writeMu.Unlock()
	for it := nums.Iterator(); it.HasNext(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		no := it.Next()
		c.opts.Progress(min(c.done, total), total)
		pg, err := s.page(no)
		if err != nil {
			bad := roaring64.New()
			bad.AddRange(no*pageChunks, (no+1)*pageChunks)
			if err := c.found(ctx, fmt.Sprintf("index page %d", no), err, bad); err != nil {
				return err
			}
			continue
		}
		for i := range pg.slots {
			if sl := pg.slots[i]; sl.rec != nil {
				if err := c.chunk(ctx, no*pageChunks+uint64(i), sl); err != nil {
					return err
				}
			}
		}
	}
	c.opts.Progress(total, total)
	return nil
}

// chunk verifies one chunk, or its whole block if it is the first one seen of the block.
func (c *checker) chunk(ctx context.Context, num uint64, sl slot) error {
	s, rec := c.s, sl.rec
	c.known.Add(num)
	at := fmt.Sprintf("pack %d at %d", rec.Pack, rec.Off)
	for _, b := range rec.bases {
		base, _, err := s.locate(b)
		if err == nil && base.rank() >= rec.rank() {
			err = corrupt.Errorf("base %d of chunk %d has a later generation", b, num)
		}
		if err != nil {
			return c.found(ctx, at, err, roaring64.BitmapOf(num))
		}
	}
	if c.blocks[rec.Location] {
		return nil
	}
	if !rec.delta {
		c.blocks[rec.Location] = true
	}
	c.done += rec.Len
	if !c.opts.ReadData {
		return nil
	}
	b, err := s.decode(s.locate, rec, num)
	if err != nil {
		if now, _, lerr := s.locate(num); lerr == nil && now.Location != rec.Location {
			return nil
		}
		return c.found(ctx, at, err, c.inRecord(ctx, rec.Location))
	}
	return c.contents(ctx, at, rec, b)
}

// inRecord lists the chunks of a record.
func (c *checker) inRecord(ctx context.Context, at pack.Location) *roaring64.Bitmap {
	bad := roaring64.New()
	_ = c.s.eachPageLoose(ctx, func(no uint64, pg *page) error { // a cancelled check ends soon enough
		for i := range pg.slots {
			if r := pg.slots[i].rec; r != nil && r.Location == at {
				bad.Add(no*pageChunks + uint64(i))
			}
		}
		return nil
	})
	return bad
}

// manifests verifies that their chunks are there and, with ReadData, their digests.
func (c *checker) manifests(ctx context.Context) error {
	s := c.s
	ids, err := s.manifestIDs(0)
	if err != nil {
		return c.found(ctx, indexName, err, nil)
	}
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return err
		}
		c.listed(id)
	}
	return nil
}

// listed verifies a manifest that was in the index when the manifests were listed.
func (c *checker) listed(id ID) {
	m, err := c.s.manifest(id)
	if err == nil {
		err = c.manifest(m)
	}
	if err != nil && !c.s.isDeleted(id) { // else its chunks went with it
		c.problems = append(c.problems, Problem{fmt.Sprintf("manifest %d", id), err.Error(), []ID{id}})
	}
}

// isDeleted reports whether the index has no manifest of this number. The cache of manifests may have it for a moment
// longer.
func (s *Store) isDeleted(id ID) bool {
	err := s.view(func(btx *badger.Txn) error {
		_, err := get(btx, manifestKey(id))
		return err
	})
	return errors.Is(err, ErrNotFound)
}

// manifest verifies the chunks of one manifest and, with ReadData, its digest.
func (c *checker) manifest(m *chunkList) error {
	if lost := roaring64.AndNot(m.bitmap(), c.known); !lost.IsEmpty() {
		// It may have been committed after the pages were read.
		for it := lost.Iterator(); it.HasNext(); {
			if _, _, err := c.s.locate(it.Next()); err != nil {
				return fmt.Errorf("of %d chunks that were not found: %w", lost.GetCardinality(), err)
			}
		}
		return nil
	}
	for no := range m.segments {
		if _, err := c.s.segment(m, no); err != nil {
			return err
		}
	}
	if !c.opts.ReadData {
		return nil
	}
	sum := blake3.New()
	for _, r := range m.runs {
		for num := r.first; num < r.first+r.count; num++ {
			h := c.hashes[num]
			if !c.read.Contains(num) {
				return nil // unreadable, which was reported
			}
			_, _ = sum.Write(h[:]) // cannot fail
		}
	}
	if m.digest(sum) != m.Digest {
		return corrupt.Errorf("digest does not match")
	}
	c.vouch(m)
	for run := range m.transforms {
		for off := int64(0); off < m.transforms[run].len; {
			b, start, err := c.s.transformed(m, run, off)
			if err != nil {
				return err
			}
			off = start + int64(len(b))
		}
	}
	return nil
}
