package chunkstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	badger "github.com/dgraph-io/badger/v4"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/internal/varint"
)

// readHashes reads from the index what chunks hash to.
func (c *checker) readHashes(ctx context.Context) error {
	if !c.opts.ReadData {
		return nil
	}
	prefix := []byte{keyHash}
	err := c.s.view(func(btx *badger.Txn) error {
		return scan(btx, prefix, prefix, func(key, value []byte) (bool, error) {
			p := varint.Parser{Rest: value}
			num := p.Uint()
			if len(key) != 1+hashLen || p.Bad {
				return false, corrupt.Errorf("hash of a chunk is malformed")
			}
			c.hashes[num] = hash(key[1:])
			return true, ctx.Err()
		})
	})
	if skipLost(err) == nil && err != nil {
		return c.found(ctx, indexName, err, nil)
	}
	return err
}

// contents verifies the chunks of a decoded record against the index and the record's digest.
func (c *checker) contents(ctx context.Context, at string, rec *located, b *block) error {
	s := c.s
	sums := b.hashes()
	right := b.isRight(sums)
	wrong, left := roaring64.New(), 0
	var what error
	for i, m := range b.members {
		now, n, err := s.locate(m.num)
		if errors.Is(err, errNoChunk) || err == nil && now.Location != rec.Location {
			continue // collected, or moved out of the block
		}
		left++
		if len(b.digest) == 0 {
			c.undigested++
		}
		if err == nil && n != m.len {
			err = corrupt.Errorf("has %d bytes, the index says %d", m.len, n)
		}
		if err == nil {
			err = c.content(m.num, sums[i], b)
		}
		if err != nil {
			wrong.Add(m.num)
			what = fmt.Errorf("chunk %d: %w", m.num, err)
		}
	}
	if what == nil && (right || left == 0 || len(b.digest) == 0) {
		return nil
	}
	for _, m := range b.members {
		if now, _, err := s.locate(m.num); err == nil && now.Location == rec.Location && !wrong.Contains(m.num) {
			c.stamp = append(c.stamp, m.num)
		}
	}
	if what == nil { // a chunk that was collected is wrong, or the digest is
		what = corrupt.Errorf("the digest does not match, although the chunks that are needed are right")
	}
	return c.foundWrong(at, what, wrong)
}

// content verifies a chunk that hashes to h.
func (c *checker) content(num uint64, h hash, b *block) error {
	want, ok := c.hashes[num]
	if !ok {
		_, err := c.s.lookup(h)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		switch {
		case err == nil: // written after the hashes were read, or it equals another chunk
		case b.isRight(nil):
			c.unhashed = append(c.unhashed, &fresh{num: num, hash: h})
		case len(b.digest) > 0:
			return errWrongBytes
		default:
			c.unknown[num] = &fresh{num: num, hash: h}
		}
		c.hashes[num] = h
	} else if want != h {
		return errWrongBytes
	}
	c.read.Add(num)
	return nil
}

// errWrongBytes says that a chunk is not what was stored, although its record is what was written.
var errWrongBytes = fmt.Errorf("%w: the bytes are not those that were stored", ErrCorrupt)

// settle says how many chunks are only known by their checksums.
func (c *checker) settle(context.Context) error {
	if c.undigested > 0 {
		c.s.log.Info("chunks that earlier versions stored have no digest until they are moved", "chunks", c.undigested,
			"unverified", len(c.unknown))
	}
	return nil
}

// vouch takes the unknown chunks of a manifest whose digest is right to be right, unless that is over their numbers.
func (c *checker) vouch(m *chunkList) {
	if m.copied {
		return
	}
	for num, f := range c.unknown {
		if m.names(num) {
			c.unhashed = append(c.unhashed, f)
			delete(c.unknown, num)
		}
	}
}
