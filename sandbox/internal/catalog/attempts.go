package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/errclass"
)

// Attempts says that a layer is being stored, or is parked. The record is removed when the layer is stored or the
// attempt ends.
type Attempts struct {
	Begun  int    `json:"begun"`            // attempts that have not ended
	Parked string `json:"parked,omitempty"` // why
}

// Attempts gives the record of a layer; the zero value if there is none.
func (c *Catalog) Attempts(ctx context.Context, layer string) (a Attempts, err error) {
	err = c.store.View(ctx, func(tx *chunkstore.Tx) error {
		a = Attempts{}
		v, err := tx.Get(bucketPacking, layer)
		if errors.Is(err, chunkstore.ErrNotFound) {
			return nil
		}
		if err == nil && json.Unmarshal(v, &a) != nil {
			err = fmt.Errorf("%w: record %s/%s", api.ErrCorrupt, bucketPacking, api.Quoted(layer))
		}
		return err
	})
	return a, errclass.Mark(err)
}

// PutAttempts writes the record of a layer, without waiting for the disk: it is to outlive the process, not the host.
// The zero value removes it.
func (c *Catalog) PutAttempts(ctx context.Context, layer string, a Attempts) error {
	err := c.store.Update(context.WithoutCancel(ctx), false, func(tx *chunkstore.Tx) error {
		if a == (Attempts{}) {
			return DropAttempts(tx, layer)
		}
		b, err := json.Marshal(a)
		if err != nil {
			return err
		}
		return tx.Put(bucketPacking, layer, b)
	})
	c.opts.Points.At("attempt to store noted")
	return errclass.Mark(err)
}

// DropAttempts adds to a transaction that the record of a layer is removed.
func DropAttempts(tx *chunkstore.Tx, layer string) error { return tx.Delete(bucketPacking, layer) }
