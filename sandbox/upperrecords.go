package sandbox

import (
	"context"
	"fmt"
	"strconv"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
)

// upperRecords tells package uppers what the catalog says of them.
type upperRecords struct {
	catalog *catalog
}

// Uppers are those of workspaces and of sealed layers.
func (r upperRecords) Uppers() map[uint64]bool {
	named := map[uint64]bool{}
	for _, w := range r.catalog.allWorkspaces() {
		named[w.Upper] = true
	}
	for _, l := range r.catalog.allLayers() {
		named[l.Upper] = true
	}
	return named
}

// StagedUppers are those of workspaces whose records are staged.
func (r upperRecords) StagedUppers() map[uint64]bool { return r.catalog.stagedUppers() }

// Trash are the uppers that are to be removed.
func (r upperRecords) Trash(ctx context.Context) (map[uint64]bool, error) {
	trash := map[uint64]bool{}
	err := r.catalog.store.View(ctx, func(tx *chunkstore.Tx) error {
		clear(trash)
		return tx.Scan(bucketTrash, "", func(key string, _ []byte) (bool, error) {
			n, err := strconv.ParseUint(key, 10, 64)
			if err != nil {
				return false, fmt.Errorf("%w: record %s/%s", ErrCorrupt, bucketTrash, api.Quoted(key))
			}
			trash[n] = true
			return true, nil
		})
	})
	return trash, classify(err)
}

// DropTrash removes an upper whose directory is gone from the trash.
func (r upperRecords) DropTrash(ctx context.Context, upper uint64) error {
	_, err := r.catalog.update(ctx, false, func(ch *change) error {
		ch.delTrash = append(ch.delTrash, upper)
		return nil
	})
	return err
}

// Images are the manifests of all layers and tiers.
func (r upperRecords) Images() []chunkstore.ID { return manifests(r.catalog.allLayers(), true) }
