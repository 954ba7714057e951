package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/errclass"
)

// Bounds of what reading the log takes: a log of any length is read in pages.
const (
	eventPage  = 512     // events in memory
	eventOrder = 1 << 16 // keys in memory, to bring those of many workspaces into order
)

// eventKey is the key of an event's record.
func eventKey(e api.Event) string { return e.Workspace + "/" + e.ID }

// eventBuckets are those with events: of workspaces, and of none. Earlier versions do not know the second, and the kinds
// of events that are in it.
var eventBuckets = []string{bucketEvents, bucketAudit}

// eventBucket is the bucket of the events of a workspace, or with "" of those that are of none.
func eventBucket(workspace string) string {
	if workspace == "" {
		return bucketAudit
	}
	return bucketEvents
}

// bucketOfKey is eventBucket by the key of an event.
func bucketOfKey(key string) string {
	workspace, _, _ := strings.Cut(key, "/")
	return eventBucket(workspace)
}

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

// Events calls fn for the log of a workspace, or with "" of all, in order of time. It keeps a page of events in memory,
// and no lock while fn runs. Events that are added meanwhile may or may not be among them, in order all the same.
func (c *Catalog) Events(ctx context.Context, workspace string, fn func(api.Event) error) error {
	next := c.keysOf(workspace)
	if workspace == "" {
		next = c.keysInOrder(eventOrder)
	}
	for {
		keys, err := next(ctx)
		if err != nil {
			return errclass.Mark(err)
		}
		if len(keys) == 0 {
			return nil
		}
		for page := range slices.Chunk(keys, eventPage) {
			if err := ctx.Err(); err != nil {
				return err
			}
			events, err := c.readEvents(ctx, page)
			if err != nil {
				return errclass.Mark(err)
			}
			for _, e := range events {
				if err := fn(e); err != nil {
					return err
				}
			}
		}
	}
}

// readEvents reads some events; those that have expired since their keys were read are left out.
func (c *Catalog) readEvents(ctx context.Context, keys []string) ([]api.Event, error) {
	events := make([]api.Event, 0, len(keys))
	err := c.store.View(ctx, func(tx *chunkstore.Tx) error {
		for _, key := range keys {
			value, err := tx.Get(bucketOfKey(key), key)
			if errors.Is(err, chunkstore.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			e, err := decodeEvent(key, value)
			if err != nil {
				return err
			}
			events = append(events, e)
		}
		return nil
	})
	return events, err
}

// keysOf returns a function that gives the next keys of a workspace's log, none at its end.
func (c *Catalog) keysOf(workspace string) func(context.Context) ([]string, error) {
	prefix := workspace + "/"
	from := prefix
	return func(ctx context.Context) ([]string, error) {
		var keys []string
		err := c.store.View(ctx, func(tx *chunkstore.Tx) error {
			return tx.Scan(bucketEvents, from, func(key string, _ []byte) (bool, error) {
				if !strings.HasPrefix(key, prefix) {
					return false, nil
				}
				keys = append(keys, key)
				return len(keys) < eventOrder, nil
			})
		})
		if len(keys) > 0 {
			from = keys[len(keys)-1] + "\x00"
		}
		return keys, err
	}
}

// keysInOrder is keysOf for all workspaces. The store has the keys in the order of workspaces: the oldest, at most so
// many, are picked in each walk over all of them.
func (c *Catalog) keysInOrder(most int) func(context.Context) ([]string, error) {
	after := "" // id of the last that was given
	byID := func(a, b string) int { return cmp.Compare(eventID(a), eventID(b)) }
	return func(ctx context.Context) ([]string, error) {
		var keys []string
		err := c.store.View(ctx, func(tx *chunkstore.Tx) error {
			for _, bucket := range eventBuckets {
				err := tx.Scan(bucket, "", func(key string, _ []byte) (bool, error) {
					if eventID(key) <= after {
						return true, nil
					}
					if keys = append(keys, key); len(keys) == 2*most {
						slices.SortFunc(keys, byID)
						keys = keys[:most]
					}
					return true, nil
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		slices.SortFunc(keys, byID)
		keys = keys[:min(len(keys), most)]
		if len(keys) > 0 {
			after = eventID(keys[len(keys)-1])
		}
		return keys, err
	}
}

// eventID is the id in the key of an event.
func eventID(key string) string {
	_, id, _ := strings.Cut(key, "/")
	return id
}
