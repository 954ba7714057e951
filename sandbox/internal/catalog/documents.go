package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/errclass"
)

// documentsAtOnce is how many documents one transaction looks at or removes.
const documentsAtOnce = 256

// DropDocument removes a document. It is no error if there is none.
func (c *Catalog) DropDocument(ctx context.Context, k DocumentKey) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	err := c.store.Update(context.WithoutCancel(ctx), true, func(tx *chunkstore.Tx) error { return dropDocument(tx, k) })
	if err != nil {
		return errclass.Mark(fmt.Errorf("writing the records: %w", err))
	}
	c.opts.Points.At("document removed")
	return nil
}

// DropAgentSession removes all documents of an agent's session, in as many transactions as that takes.
func (c *Catalog) DropAgentSession(ctx context.Context, owner, agent string) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	for more := true; more; {
		err := c.store.Update(context.WithoutCancel(ctx), true, func(tx *chunkstore.Tx) error {
			var some []DocumentKey
			if err := scanPrefix(tx, bucketDocuments, owner+"/"+agent+"/", "", func(key string, _ []byte) (bool, error) {
				k, err := parseDocumentKey(key)
				some = append(some, k)
				return len(some) < documentsAtOnce, err
			}); err != nil {
				return err
			}
			for _, k := range some {
				if err := dropDocument(tx, k); err != nil {
					return err
				}
			}
			more = len(some) == documentsAtOnce
			return nil
		})
		if err != nil {
			return errclass.Mark(fmt.Errorf("writing the records: %w", err))
		}
		c.opts.Points.At("documents of an agent's session removed")
	}
	return nil
}

// ListDocuments lists immutable documents of the scope of a key, after the one that it names, at most so many, and
// whether more follow.
func (c *Catalog) ListDocuments(ctx context.Context, k DocumentKey, most int) (list []KeyedDocument, more bool, err error) {
	err = c.store.View(ctx, func(tx *chunkstore.Tx) error {
		list, more = nil, false
		return scanPrefix(tx, bucketDocuments, k.scope()+"/", k.Name, func(key string, value []byte) (bool, error) {
			d, err := decodeDocument(key, value)
			if err != nil || !d.Immutable() {
				return false, err // they come behind all ids
			}
			if more = len(list) == most; more {
				return false, nil
			}
			list = append(list, d)
			return true, nil
		})
	})
	return list, more, errclass.Mark(err)
}

// TiedDocuments lists the documents that are tied to a snapshot, in the order of their keys.
func (c *Catalog) TiedDocuments(ctx context.Context, snapshot string) (list []KeyedDocument, err error) {
	err = c.store.View(ctx, func(tx *chunkstore.Tx) error {
		list = nil
		return tied(tx, snapshot, func(key string) (bool, error) {
			value, err := tx.Get(bucketDocuments, key)
			if err != nil {
				return false, err
			}
			d, err := decodeDocument(key, value)
			list = append(list, d)
			return true, err
		})
	})
	return list, errclass.Mark(err)
}

func decodeDocument(key string, value []byte) (d KeyedDocument, err error) {
	if d.DocumentKey, err = parseDocumentKey(key); err == nil {
		if err = json.Unmarshal(value, &d.Document); err != nil {
			err = fmt.Errorf("%w: record %s/%s: %w", api.ErrCorrupt, bucketDocuments, api.Quoted(key), err)
		}
	}
	return d, err
}

// EachDocument calls fn for the documents of a session, of all for "", in the order of their keys. No transaction is open
// meanwhile.
func (c *Catalog) EachDocument(ctx context.Context, owner string, fn func(KeyedDocument) error) error {
	prefix := ""
	if owner != "" {
		prefix = owner + "/"
	}
	for after, more := "", true; more; {
		var page []KeyedDocument
		if err := c.store.View(ctx, func(tx *chunkstore.Tx) error {
			page = page[:0]
			return scanPrefix(tx, bucketDocuments, prefix, after, func(key string, value []byte) (bool, error) {
				d, err := decodeDocument(key, value)
				page = append(page, d)
				return len(page) < documentsAtOnce, err
			})
		}); err != nil {
			return errclass.Mark(err)
		}
		for _, d := range page {
			after = d.String()[len(prefix):]
			if err := fn(d); err != nil {
				return err
			}
		}
		more = len(page) == documentsAtOnce
	}
	return ctx.Err()
}

// CountDocuments gives what the record of a session says that it has, and what it has, both as of one time.
func (c *Catalog) CountDocuments(ctx context.Context, owner string) (said, has Documents, err error) {
	err = c.store.View(ctx, func(tx *chunkstore.Tx) error {
		said, has = Documents{}, Documents{}
		if _, err := record(tx, bucketOwners, owner, &said); err != nil {
			return err
		}
		return scanPrefix(tx, bucketDocuments, owner+"/", "", func(key string, value []byte) (bool, error) {
			d, err := decodeDocument(key, value)
			has = Documents{has.Count + 1, has.Bytes + d.Size}
			return true, err
		})
	})
	return said, has, errclass.Mark(err)
}

// SweepTied removes the documents that are tied to snapshots which are gone: an earlier version, which knows of no
// documents, has deleted these.
func (c *Catalog) SweepTied(ctx context.Context) error {
	gone := map[string]bool{}
	if err := c.store.View(ctx, func(tx *chunkstore.Tx) error {
		return tx.Scan(bucketTied, "", func(key string, _ []byte) (bool, error) {
			if snapshot, _, _ := strings.Cut(key, "/"); c.Snapshot(snapshot) == nil {
				gone[snapshot] = true
			}
			return true, nil
		})
	}); err != nil {
		return errclass.Mark(err)
	}
	for snapshot := range gone {
		err := c.store.Update(ctx, true, func(tx *chunkstore.Tx) error { return dropTied(tx, snapshot) })
		if err != nil {
			return errclass.Mark(err)
		}
		c.opts.Points.At("documents of a lost snapshot removed")
	}
	return nil
}
