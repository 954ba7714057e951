package catalog

import (
	"context"
	"encoding/json"
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

// Abandoned is an upper in the trash that an overlay of the kernel may have: programs hold its mount, which was taken away.
type Abandoned struct {
	Upper uint64 `json:"upper"`
	View  string `json:"view,omitempty"` // see Kernel
}

// Abandoned lists the uppers in the trash that an overlay of the kernel may have.
func (c *Catalog) Abandoned(ctx context.Context) ([]Abandoned, error) {
	var all []Abandoned
	err := c.store.View(ctx, func(tx *chunkstore.Tx) error {
		all = nil
		return tx.Scan(bucketTrash, "", func(key string, value []byte) (bool, error) {
			if len(value) == 0 {
				return true, nil
			}
			var a Abandoned
			if err := json.Unmarshal(value, &a); err != nil {
				return false, fmt.Errorf("%w: record %s/%s: %w", api.ErrCorrupt, bucketTrash, api.Quoted(key), err)
			}
			all = append(all, a)
			return true, nil
		})
	})
	return all, errclass.Mark(err)
}

// Trash lists the uppers that are to be removed, also those that are abandoned.
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
