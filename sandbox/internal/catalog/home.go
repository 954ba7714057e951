package catalog

import (
	"context"
	"errors"

	"snapfs/chunkstore"
	"snapfs/sandbox/internal/errclass"
)

// SetHome records which home a new store belongs to.
func SetHome(ctx context.Context, store *chunkstore.Store, id string) error {
	return errclass.Mark(store.Update(ctx, true, func(tx *chunkstore.Tx) error {
		return tx.Put(bucketMeta, keyHome, []byte(id))
	}))
}

// HomeOf is the home that a store belongs to; "" if it has no record of that.
func HomeOf(ctx context.Context, store *chunkstore.Store) (id string, err error) {
	err = store.View(ctx, func(tx *chunkstore.Tx) error {
		v, err := tx.Get(bucketMeta, keyHome)
		if errors.Is(err, chunkstore.ErrNotFound) {
			v, err = nil, nil
		}
		id = string(v)
		return err
	})
	return id, errclass.Mark(err)
}
