package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/errclass"
)

// eventKey is the key of an event's record.
func eventKey(e api.Event) string { return e.Workspace + "/" + e.ID }

// decodeEvent reads an entry of the log. A kind that this version does not know is ErrCorrupt: what it means for the
// workspace cannot be told.
func decodeEvent(key string, value []byte) (api.Event, error) {
	var e api.Event
	if err := json.Unmarshal(value, &e); err != nil {
		return e, fmt.Errorf("%w: event %s: %w", api.ErrCorrupt, api.Quoted(key), err)
	}
	if !e.Kind.Known() {
		return e, fmt.Errorf("%w: event %s: unknown kind %s", api.ErrCorrupt, key, api.Quoted(string(e.Kind)))
	}
	return e, nil
}

// Events reads the log of a workspace, or with "" of all, in order of time.
func (c *Catalog) Events(ctx context.Context, workspace string) ([]api.Event, error) {
	prefix := ""
	if workspace != "" {
		prefix = workspace + "/"
	}
	var events []api.Event
	err := c.store.View(ctx, func(tx *chunkstore.Tx) error {
		events = nil
		return tx.Scan(bucketEvents, prefix, func(key string, value []byte) (bool, error) {
			if !strings.HasPrefix(key, prefix) {
				return false, nil
			}
			e, err := decodeEvent(key, value)
			events = append(events, e)
			return err == nil, err
		})
	})
	if err != nil {
		return nil, errclass.Mark(err)
	}
	slices.SortFunc(events, func(a, b api.Event) int { return cmp.Compare(a.ID, b.ID) })
	return events, nil
}
