package chunkstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	badger "github.com/dgraph-io/badger/v4"
)

// Tx reads and writes values of callers, and deletes manifests, in one Badger transaction. A value is small and has a
// bucket and a key; iteration is in key order. A Tx is valid until the function that received it returns. That function
// must not write to the store in any other way (writers run one at a time), should be short, and can write or delete
// 20,000 values and write 1 MiB, keys included: beyond that is ErrTxTooLarge, and nothing of the transaction is kept.
type Tx struct {
	s   *Store
	btx *badger.Txn
	w   *writeTxn // nil in View

	values int   // written and deleted
	bytes  int64 // written
}

// Update runs fn in a read-write transaction; sync waits for the disk. Calls at the same time share the writes to the
// disk: fn may run several times, and what it leaves outside of tx is that of the last time.
func (s *Store) Update(ctx context.Context, sync bool, fn func(tx *Tx) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	_ = sync // Badger's log is always synced: that takes half a millisecond, and keeps commits in order
	return s.updateSmall(func(t *writeTxn) error { return fn(&Tx{s: s, btx: t.btx, w: t}) })
}

// View runs fn in a read-only transaction.
func (s *Store) View(ctx context.Context, fn func(tx *Tx) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	return s.view(func(btx *badger.Txn) error { return fn(&Tx{s: s, btx: btx}) })
}

func checkBucket(bucket string) error {
	if strings.IndexByte(bucket, 0) >= 0 {
		return fmt.Errorf("bucket %q holds a zero byte", bucket)
	}
	return nil
}

// Get reads a value; ErrNotFound, or ErrIndex if that may be for damage.
func (tx *Tx) Get(bucket, key string) ([]byte, error) {
	if err := checkBucket(bucket); err != nil {
		return nil, err
	}
	v, err := get(tx.btx, valueKey(bucket, key))
	if err != nil {
		return nil, fmt.Errorf("record %s/%s: %w", bucket, key, tx.s.missing(err))
	}
	return v, nil
}

// spend counts what a function writes.
func (tx *Tx) spend(values int, bytes int64) error {
	tx.values += values
	tx.bytes += bytes
	if tx.values > maxTxValues || tx.bytes > maxTxBytes {
		return fmt.Errorf("%w: %d values of %d bytes", ErrTxTooLarge, tx.values, tx.bytes)
	}
	return nil
}

// Room reports whether so many more values, of so many bytes together with their keys, fit into the transaction.
func (tx *Tx) Room(values int, bytes int64) bool {
	return tx.values+values <= maxTxValues && tx.bytes+bytes <= maxTxBytes
}

// Put writes a value; ErrTxTooLarge.
func (tx *Tx) Put(bucket, key string, value []byte) error {
	if tx.w == nil {
		return ErrReadOnly
	}
	if err := checkBucket(bucket); err != nil {
		return err
	}
	k := valueKey(bucket, key)
	if err := tx.spend(1, int64(len(k)+len(value))); err != nil {
		return err
	}
	return tx.w.set(k, bytes.Clone(value))
}

// Delete removes a value; it is no error if there is none. ErrTxTooLarge.
func (tx *Tx) Delete(bucket, key string) error {
	if tx.w == nil {
		return ErrReadOnly
	}
	if err := checkBucket(bucket); err != nil {
		return err
	}
	k := valueKey(bucket, key)
	if err := tx.spend(1, int64(len(k))); err != nil {
		return err
	}
	return tx.w.delete(k)
}

// Scan calls fn for the values of bucket with keys >= from, in order, until fn returns false. Value is valid during
// the call.
func (tx *Tx) Scan(bucket, from string, fn func(key string, value []byte) (bool, error)) error {
	if err := checkBucket(bucket); err != nil {
		return err
	}
	prefix := valueKey(bucket, "")
	return scan(tx.btx, prefix, valueKey(bucket, from), func(key, value []byte) (bool, error) {
		return fn(string(key[len(prefix):]), value)
	})
}

// deleteParts removes what continues the value of a manifest, and returns how many parts that were.
func (t *writeTxn) deleteParts(id ID) (int, error) {
	var keys [][]byte
	prefix := partKey(id, 0)[:9]
	if err := scan(t.btx, prefix, prefix, func(key, _ []byte) (bool, error) {
		keys = append(keys, bytes.Clone(key))
		return true, nil
	}); err != nil {
		return 0, err
	}
	for _, k := range keys {
		if err := t.delete(k); err != nil {
			return 0, err
		}
	}
	return len(keys), nil
}

// DeleteManifest makes a manifest's chunks garbage, unless others name them. It is no error if there is none. It counts
// as a value, and one for each 64 KiB of the manifest. ErrTxTooLarge.
func (tx *Tx) DeleteManifest(id ID) error {
	if tx.w == nil {
		return ErrReadOnly
	}
	m, err := readManifest(tx.btx, id, tx.s.codec)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err == nil:
		tx.w.state.logical -= m.Size
	case !errors.Is(err, ErrCorrupt): // a damaged one can be deleted, too
		return err
	}
	tx.w.state.manifests--
	tx.w.state.dropped++
	if err := tx.w.delete(manifestKey(id)); err != nil {
		return err
	}
	n, err := tx.w.deleteParts(id)
	if err == nil {
		err = tx.spend(1+n, 0)
	}
	if err != nil {
		return err
	}
	tx.w.done = append(tx.w.done, func() {
		tx.s.manifests.invalidate(id)
		tx.s.liveChanged()
	})
	return nil
}
