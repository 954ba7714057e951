package catalog

import (
	"context"
	"fmt"
	"strconv"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/errclass"
)

// Uppers are those of workspaces and of sealed layers.
func (c *Catalog) Uppers() map[uint64]bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	named := map[uint64]bool{}
	for _, w := range c.index.workspaces {
		named[w.Upper] = true
	}
	for _, id := range c.index.layers {
		named[c.index.nodes[id].layer.Upper] = true
	}
	return named
}

// Trash lists the uppers that are to be removed.
func (c *Catalog) Trash(ctx context.Context) (map[uint64]bool, error) {
	trash := map[uint64]bool{}
	err := c.store.View(ctx, func(tx *chunkstore.Tx) error {
		clear(trash)
		return tx.Scan(bucketTrash, "", func(key string, _ []byte) (bool, error) {
			n, err := strconv.ParseUint(key, 10, 64)
			if err != nil {
				return false, fmt.Errorf("%w: record %s/%s", api.ErrCorrupt, bucketTrash, api.Quoted(key))
			}
			trash[n] = true
			return true, nil
		})
	})
	return trash, errclass.Mark(err)
}

// DropTrash notes that an upper has been removed.
func (c *Catalog) DropTrash(ctx context.Context, upper uint64) error {
	_, err := c.Update(ctx, false, func(ch *Change) error {
		ch.DelTrash = append(ch.DelTrash, upper)
		return nil
	})
	return err
}
