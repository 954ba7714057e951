package catalog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
)

// Rename records that a workspace has got another name. The records of its snapshots, of which there may be very many,
// keep the name that the workspace had when they were taken: ids grow, so those whose ids are smaller were taken before.
type Rename struct {
	ID  string `json:"id"`
	Old string `json:"old"`
	New string `json:"new"`
}

// renamed is the record of a snapshot as it is after a workspace was renamed; the same if that is not its own.
func (s *Snapshot) renamed(r *Rename) *Snapshot {
	if s.Workspace != r.Old || s.ID >= r.ID {
		return s
	}
	next := *s
	next.First, next.Workspace = cmp.Or(s.First, s.Workspace), r.New
	return &next
}

// durable is the record of a snapshot as the store has it.
func (s *Snapshot) durable() *Snapshot {
	if s.First == "" {
		return s
	}
	stored := *s
	stored.Workspace = s.First
	return &stored
}

// WasOf reports whether a snapshot is of a workspace that has, or once had, a name.
func (c *Catalog) WasOf(s *Snapshot, name string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	at := s.durable()
	for _, r := range c.index.renames {
		if at.Workspace == name {
			return true
		}
		at = at.renamed(r)
	}
	return at.Workspace == name
}

// renameSnapshots repeats in memory what a rename means for the snapshots of the workspace.
func (x *index) renameSnapshots(r *Rename) {
	x.renames = append(x.renames, r)
	for _, id := range slices.Clone(x.ofWorkspace[r.Old]) {
		x.putSnapshot(x.snapshots[id].renamed(r))
	}
}

// readRenames reads all renames, oldest first, and removes those from it that are of no snapshot: the next change of
// names removes their records, too.
func readRenames(tx *chunkstore.Tx, snapshots []*Snapshot) (renames, unused []*Rename, err error) {
	var all []*Rename
	err = tx.Scan(bucketRenames, "", func(key string, value []byte) (bool, error) {
		r := new(Rename)
		if err := json.Unmarshal(value, r); err != nil {
			return false, fmt.Errorf("%w: record %s/%s: %w", api.ErrCorrupt, bucketRenames, api.Quoted(key), err)
		}
		all = append(all, r)
		return true, nil
	})
	if err != nil {
		return nil, nil, err
	}
	for _, r := range all {
		used := false
		for i, s := range snapshots {
			snapshots[i] = s.renamed(r)
			used = used || snapshots[i] != s
		}
		if used {
			renames = append(renames, r)
		} else {
			unused = append(unused, r)
		}
	}
	return renames, unused, nil
}
