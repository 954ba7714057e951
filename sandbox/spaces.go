package sandbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/zeebo/blake3"

	"snapfs/chunkstore"
	"snapfs/layers"
	"snapfs/sandbox/api"
)

// A space is 2^32 inode numbers, those that begin with the same 32 bits. Space 0 is for base images, whose stacks have no other of its
// numbers. Every upper has one of its own, which its own number tells:
//
//	upper 1 … 2^24-1        of homes that earlier versions made: spaces upper<<8 to upper<<8 + 255
//	upper 2^32 + space      all others, space being 257 … 2^31-1 and no multiple of 256, so that the least number of an upper
//	                        tells which kind it is; bit 63 of an inode number is for package layers
//
// A host whose inode numbers have more than 32 bits needs further spaces, one for each value of the upper half that comes up. They are
// recorded in bucketWide under UPPER/HIGH.
//
// Spaces are given out in order. After the last one the first comes again, but for those that are still in use, as are those whose
// numbers any image has: they are looked up in the images once for each round, and kept as a bitmap.
const (
	spaceUppers = 1 << 32 // the first upper whose number tells a space
	firstSpace  = 1<<8 + 1
	lastSpace   = 1<<31 - 1

	bucketWide  = "wide-numbers"
	keyUsed     = "spaces-in-use"
	spacePrefix = "space "   // of the record keyNextUpper; older versions had a number alone, and refuse this
	wrappedMark = " wrapped" // at its end, once the last space was reached
)

// spaceBits are what the numbers of one space do not share.
const spaceBits = 32

// inoBase is what the inode numbers made in an upper begin with.
func inoBase(upper uint64) uint64 {
	if upper < spaceUppers {
		return upper << 40
	}
	return (upper - spaceUppers) << spaceBits
}

// upperOf is the inverse of inoBase.
func upperOf(base uint64) uint64 {
	if space := base >> spaceBits; space&0xff != 0 {
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
func (u *uppers) decodeSpaces(v []byte) error {
	text, ok := strings.CutPrefix(string(v), spacePrefix)
	if ok {
		text, u.wrapped = strings.CutSuffix(text, wrappedMark)
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 || n > lastSpace+1 || !ok && n > maxOldUpper+1 {
		return fmt.Errorf("%w: record %s/%s: %s", ErrCorrupt, bucketMeta, keyNextUpper, api.Quoted(string(v)))
	}
	if !ok {
		// Images that were imported may have the numbers of another home, which ours must not meet.
		n, u.survey = max(n<<8, firstSpace), n > 1
	}
	u.next, u.reserved = n, n
	return nil
}

// maxOldUpper is the greatest upper of the first kind.
const maxOldUpper = 1<<24 - 1

// encodeSpaces is the record that says which space is next.
func (u *uppers) encodeSpaces(next uint64) []byte {
	b := strconv.AppendUint([]byte(spacePrefix), next, 10)
	if u.wrapped {
		b = append(b, wrappedMark...)
	}
	return b
}

// loadSpaces reads which spaces are in use, as far as that was needed yet, and the table of further ones.
func (u *uppers) loadSpaces(tx *chunkstore.Tx) error {
	v, err := tx.Get(bucketMeta, keyUsed)
	if err == nil {
		err = u.used.UnmarshalBinary(v)
		if err != nil {
			return fmt.Errorf("%w: record %s/%s: %w", ErrCorrupt, bucketMeta, keyUsed, err)
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
			return false, fmt.Errorf("%w: record %s/%s: %s", ErrCorrupt, bucketWide, api.Quoted(key), api.Quoted(string(value)))
		}
		u.putWide(func(m map[wideKey]uint64) { m[w] = space << spaceBits })
		return true, nil
	})
}

// spaceLocked gives a space that nothing uses. The caller holds mu.
func (u *uppers) spaceLocked(ctx context.Context) (uint64, error) {
	for wrapped := false; ; {
		if u.next > u.last {
			if wrapped {
				return 0, fmt.Errorf("%w: all spaces of inode numbers are in use: delete snapshots, and workspaces", ErrUnavailable)
			}
			wrapped = true
			u.survey, u.wrapped, u.next = true, true, firstSpace
		}
		if u.survey {
			if err := u.surveyLocked(ctx); err != nil {
				return 0, err
			}
		}
		n := u.next
		if n&0xff == 0 || u.used.Contains(uint32(n)) {
			u.next++
			continue
		}
		if err := u.reserveLocked(ctx); err != nil {
			return 0, err
		}
		u.next++
		return n, nil
	}
}

// surveyLocked finds out which spaces are in use, durably. The caller holds mu.
func (u *uppers) surveyLocked(ctx context.Context) error {
	used, err := u.inUse(ctx)
	if err != nil {
		return fmt.Errorf("looking for spaces of inode numbers that are free: %w", err)
	}
	for n := range u.making {
		addSpaces(used, n)
	}
	for _, base := range u.wideSpaces() {
		used.Add(uint32(base >> spaceBits))
	}
	used.RunOptimize()
	v, err := used.ToBytes()
	if err != nil {
		return err
	}
	err = u.store.Update(ctx, true, func(tx *chunkstore.Tx) error {
		return errors.Join(tx.Put(bucketMeta, keyUsed, v), tx.Put(bucketMeta, keyNextUpper, u.encodeSpaces(u.next)))
	})
	if err != nil {
		return classify(err)
	}
	u.points.At("spaces of inode numbers surveyed")
	u.used, u.survey, u.reserved = used, false, u.next
	return nil
}

// spacesInUse are the spaces of all images, uppers and sealed layers. It reads one column of every image.
func (h *Home) spacesInUse(ctx context.Context) (*roaring.Bitmap, error) {
	used := roaring.New()
	used.Add(0)
	named := h.namedUppers()
	trash, err := h.readTrash(ctx)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(h.uppers.dir)
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
	for _, m := range manifests(h.catalog.allLayers(), true) {
		if err := h.eachNumber(ctx, m, func(ino uint64) error {
			if space := uint32(ino >> spaceBits); space <= lastSpace {
				used.Add(space)
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return used, nil
}

// eachNumber calls fn with the inode numbers of an image, none of one that is gone or damaged, which Check reports.
func (h *Home) eachNumber(ctx context.Context, m chunkstore.ID, fn func(ino uint64) error) error {
	r, err := h.store.OpenManifest(ctx, m)
	if err == nil {
		err = errors.Join(layers.Numbers(ctx, r, fn), r.Close())
	}
	if errors.Is(err, chunkstore.ErrNotFound) || errors.Is(classify(err), ErrCorrupt) {
		return nil
	}
	return classify(err)
}

// wideKey is the upper half of inode numbers of an upper's host.
type wideKey struct{ upper, high uint64 }

func (w wideKey) String() string { return fmt.Sprintf("%d/%d", w.upper, w.high) }

// wideSpaces are the further spaces; the map is never changed.
func (u *uppers) wideSpaces() map[wideKey]uint64 {
	if m := u.wide.Load(); m != nil {
		return *m
	}
	return nil
}

// putWide changes a copy of the table of further spaces. The caller holds mu, or is alone.
func (u *uppers) putWide(change func(m map[wideKey]uint64)) {
	m := maps.Clone(u.wideSpaces())
	if m == nil {
		m = map[wideKey]uint64{}
	}
	change(m)
	u.wide.Store(&m)
}

// wideIno is layers.Options.WideIno: what an upper's numbers begin with if those of the host begin with high. Every look-up asks.
func (u *uppers) wideIno(base, high uint64) (uint64, error) {
	w := wideKey{upperOf(base), high}
	if w.upper < spaceUppers && high < 1<<8 {
		return base | high<<spaceBits, nil
	}
	if base, ok := u.wideSpaces()[w]; ok {
		return base, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if base, ok := u.wideSpaces()[w]; ok {
		return base, nil
	}
	ctx := context.Background() // whoever asks is a file system, which cannot be cancelled
	space, err := u.spaceLocked(ctx)
	if err != nil {
		return 0, err
	}
	err = u.store.Update(ctx, true, func(tx *chunkstore.Tx) error {
		return tx.Put(bucketWide, w.String(), strconv.AppendUint(nil, space, 10))
	})
	if err != nil {
		return 0, classify(err)
	}
	u.points.At("further space of an upper recorded")
	u.putWide(func(m map[wideKey]uint64) { m[w] = space << spaceBits })
	return space << spaceBits, nil
}

// dropWide forgets the further spaces of an upper that is gone.
func (u *uppers) dropWide(upper uint64) error {
	var keys []wideKey
	for w := range u.wideSpaces() {
		if w.upper == upper {
			keys = append(keys, w)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	err := u.store.Update(context.Background(), false, func(tx *chunkstore.Tx) error {
		for _, w := range keys {
			if err := tx.Delete(bucketWide, w.String()); err != nil {
				return err
			}
		}
		return nil
	})
	u.points.At("further spaces of an upper forgotten")
	u.mu.Lock()
	defer u.mu.Unlock()
	u.putWide(func(m map[wideKey]uint64) {
		for _, w := range keys {
			delete(m, w)
		}
	})
	return classify(err)
}

// ours is layers.PackOptions.Ours: spaces that were given out, but not those of uppers that nobody uses yet, to which a workspace over
// the image may come.
func (h *Home) ours(ctx context.Context) (func(space uint32) bool, error) {
	u := h.uppers
	u.mu.Lock()
	next, wrapped, used := u.next, u.wrapped, u.used
	refused := roaring.New()
	for n := range u.making {
		addSpaces(refused, n)
	}
	u.mu.Unlock()
	named, err := h.readTrash(ctx)
	if err != nil {
		return nil, err
	}
	for _, w := range h.catalog.allWorkspaces() {
		named[w.Upper] = true
	}
	for _, l := range h.catalog.allLayers() {
		named[l.Upper] = true
	}
	entries, err := os.ReadDir(u.dir)
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

// number64 is the home's id as images have it.
func number64(id string) uint64 {
	sum := blake3.Sum256([]byte("snapfs home " + id))
	return max(binary.LittleEndian.Uint64(sum[:]), 1)
}
