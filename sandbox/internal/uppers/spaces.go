package uppers

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"strconv"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"snapfs/chunkstore"
	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/errclass"
)

// A space is 2^32 inode numbers, those that begin with the same 32 bits. Space 0 is for base images, whose stacks have
// no other of its numbers. Every upper has one of its own, which its own number tells:
//
//	upper 1 … 2^24-1        of homes that earlier versions made: spaces upper<<8 to upper<<8 + 255
//	upper 2^32 + space      all others, space being 257 … 2^31-1 and no multiple of 256, so that the least number of an
//	                        upper tells which kind it is; bit 63 of an inode number is for package layers
//
// A host whose inode numbers have more than 32 bits needs further spaces, one for each value of the upper half that
// comes up; see wide.go.
//
// Spaces are given out in order. After the last one the first comes once more, but for those that are still in use, as
// are those whose numbers any image has: they are looked up in the images once for each round, and kept as a bitmap.
const (
	spaceUppers = 1 << 32 // the first upper whose number tells a space
	firstSpace  = 1<<8 + 1
	lastSpace   = 1<<31 - 1
)

// What is recorded of spaces, in buckets of the store:
//
//	bucket        key              record
//	meta          "next-upper"     the next space: every lower one may be in use
//	meta          "spaces-in-use"  bitmap of the spaces that were in use when the last round began
//	wide-numbers  UPPER/HIGH       the space of an upper's numbers whose upper half on the host is HIGH; see wide.go
const (
	bucketMeta   = "meta"
	keyNextUpper = "next-upper"
	keyUsed      = "spaces-in-use"
	bucketWide   = "wide-numbers"
	spacePrefix  = "space "   // of the record keyNextUpper; older versions had a number alone, and refuse this
	wrappedMark  = " wrapped" // at its end, once the last space was reached
)

// SpaceBits are what the numbers of one space do not share.
const SpaceBits = 32

// InoBase is what the inode numbers made in an upper begin with.
func InoBase(upper uint64) uint64 {
	if upper < spaceUppers {
		return upper << 40
	}
	return (upper - spaceUppers) << SpaceBits
}

// upperOf is the inverse of InoBase.
func upperOf(base uint64) uint64 {
	if space := base >> SpaceBits; space&0xff != 0 {
		return spaceUppers + space
	}
	return base >> 40
}

// addSpaces adds the spaces of an upper.
func addSpaces(to *roaring.Bitmap, upper uint64) {
	if upper < spaceUppers {
		to.AddRange(upper<<8, (upper+1)<<8)
		return
	}
	to.Add(uint32(upper - spaceUppers))
}

// decodeSpaces reads the record of the next space. An older version's counts uppers of the first kind.
func (s *Set) decodeSpaces(v []byte) error {
	text, ok := strings.CutPrefix(string(v), spacePrefix)
	if ok {
		text, s.wrapped = strings.CutSuffix(text, wrappedMark)
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 || n > lastSpace+1 || !ok && n > maxOldUpper+1 {
		return fmt.Errorf("%w: record %s/%s: %s", api.ErrCorrupt, bucketMeta, keyNextUpper, api.Quoted(string(v)))
	}
	if !ok {
		// Images that were imported may have the numbers of another home, which ours must not meet.
		n, s.survey = max(n<<8, firstSpace), n > 1
	}
	s.next, s.reserved = n, n
	return nil
}

// maxOldUpper is the greatest upper of the first kind.
const maxOldUpper = 1<<24 - 1

// encodeSpaces is the record that says which space is next.
func (s *Set) encodeSpaces(next uint64) []byte {
	b := strconv.AppendUint([]byte(spacePrefix), next, 10)
	if s.wrapped {
		b = append(b, wrappedMark...)
	}
	return b
}

// loadSpaces reads which spaces are in use, as far as that was needed yet, and the table of further ones.
func (s *Set) loadSpaces(tx *chunkstore.Tx) error {
	v, err := tx.Get(bucketMeta, keyUsed)
	if err == nil {
		err = s.used.UnmarshalBinary(v)
		if err != nil {
			return fmt.Errorf("%w: record %s/%s: %w", api.ErrCorrupt, bucketMeta, keyUsed, err)
		}
	}
	if err != nil && !errors.Is(err, chunkstore.ErrNotFound) {
		return err
	}
	return tx.Scan(bucketWide, "", func(key string, value []byte) (bool, error) {
		var w wideKey
		_, err := fmt.Sscanf(key, "%d/%d", &w.upper, &w.high)
		space, serr := strconv.ParseUint(string(value), 10, 31)
		if err != nil || serr != nil || key != w.String() {
			return false, fmt.Errorf("%w: record %s/%s: %s",
				api.ErrCorrupt, bucketWide, api.Quoted(key), api.Quoted(string(value)))
		}
		s.putWide(func(m map[wideKey]uint64) { m[w] = space << SpaceBits })
		return true, nil
	})
}

// spaceLocked gives a space that nothing uses. The caller holds mu.
func (s *Set) spaceLocked(ctx context.Context) (uint64, error) {
	for wrapped := false; ; {
		if s.next > s.last {
			if wrapped {
				return 0, fmt.Errorf("%w: all spaces of inode numbers are in use: delete snapshots, and workspaces",
					api.ErrUnavailable)
			}
			wrapped = true
			s.survey, s.wrapped, s.next = true, true, firstSpace
		}
		if s.survey {
			if err := s.surveyLocked(ctx); err != nil {
				return 0, err
			}
		}
		n := s.next
		if n&0xff == 0 || s.used.Contains(uint32(n)) {
			s.next++
			continue
		}
		if err := s.reserveLocked(ctx); err != nil {
			return 0, err
		}
		s.next++
		return n, nil
	}
}

// surveyLocked finds out which spaces are in use, durably. The caller holds mu.
func (s *Set) surveyLocked(ctx context.Context) error {
	used, err := s.spacesInUse(ctx)
	if err != nil {
		return fmt.Errorf("looking for spaces of inode numbers that are free: %w", err)
	}
	for n := range s.making {
		addSpaces(used, n)
	}
	for _, base := range s.wideSpaces() {
		used.Add(uint32(base >> SpaceBits))
	}
	used.RunOptimize()
	v, err := used.ToBytes()
	if err != nil {
		return err
	}
	err = s.store.Update(ctx, true, func(tx *chunkstore.Tx) error {
		return errors.Join(tx.Put(bucketMeta, keyUsed, v), tx.Put(bucketMeta, keyNextUpper, s.encodeSpaces(s.next)))
	})
	if err != nil {
		return errclass.Mark(err)
	}
	s.points.At("spaces of inode numbers surveyed")
	s.used, s.survey, s.reserved = used, false, s.next
	return nil
}

// spacesInUse are the spaces of all images, uppers and sealed layers. It reads one column of every image.
func (s *Set) spacesInUse(ctx context.Context) (*roaring.Bitmap, error) {
	used := roaring.New()
	used.Add(0)
	named := s.Named()
	trash, err := s.records.Trash(ctx)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if n, err := strconv.ParseUint(e.Name(), 10, 64); err == nil {
			named[n] = true
		}
	}
	for _, all := range []map[uint64]bool{named, trash} {
		for n := range all {
			if n < spaceUppers+lastSpace && (n <= maxOldUpper || n > spaceUppers) {
				addSpaces(used, n)
			}
		}
	}
	// Images that are stored from now on have numbers of layers and uppers that are there already.
	for _, m := range s.records.Images() {
		for ino, err := range Numbers(ctx, s.store, m) {
			if err != nil {
				return nil, err
			}
			if space := uint32(ino >> SpaceBits); space <= lastSpace {
				used.Add(space)
			}
		}
	}
	return used, nil
}

// Numbers yields the inode numbers of an image; of one that is gone or damaged, which checks report, no more than can
// be read. Nothing follows an error.
func Numbers(ctx context.Context, store *chunkstore.Store, m chunkstore.ID) iter.Seq2[uint64, error] {
	return func(yield func(uint64, error) bool) {
		fail := func(err error) {
			if err = errclass.Mark(err); !errors.Is(err, api.ErrCorrupt) { // which an image that is gone is, too
				yield(0, err)
			}
		}
		r, err := store.OpenManifest(ctx, m)
		if err != nil {
			fail(err)
			return
		}
		defer func() { _ = r.Close() }() // read only
		for ino, err := range layers.Numbers(ctx, r) {
			if err != nil {
				fail(err)
				return
			}
			if !yield(ino, nil) {
				return
			}
		}
	}
}

// Ours is for layers.StoreOptions.Ours: it reports spaces that were given out, but not those of uppers that nobody uses
// yet, to which a workspace over the image may come.
func (s *Set) Ours(ctx context.Context) (func(space uint32) bool, error) {
	s.mu.Lock()
	next, wrapped, used := s.next, s.wrapped, s.used
	refused := roaring.New()
	for n := range s.making {
		addSpaces(refused, n)
	}
	s.mu.Unlock()
	named, err := s.records.Trash(ctx)
	if err != nil {
		return nil, err
	}
	maps.Copy(named, s.records.Uppers())
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if n, err := strconv.ParseUint(e.Name(), 10, 64); err == nil && !named[n] {
			addSpaces(refused, n)
		}
	}
	return func(space uint32) bool {
		return uint64(space) < next && !refused.Contains(space) && (!wrapped || used.Contains(space))
	}, nil
}
