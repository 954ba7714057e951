package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/errclass"
)

// Names of documents that are not immutable. No id is greater: a list of ids ends before them.
const (
	LatestDocument   = "latest"
	ManifestDocument = "manifest"
)

// DocumentKey names a document. None of its parts has a slash.
type DocumentKey struct {
	Owner string // session of snapfs
	Agent string // session of an agent
	Kind  string
	Scope string
	Name  string // LatestDocument, ManifestDocument or the id of an immutable one
}

// scope is the key of the scope, without a slash at its end.
func (k DocumentKey) scope() string {
	return strings.Join([]string{k.Owner, k.Agent, k.Kind, k.Scope}, "/")
}

// String is the key of the record.
func (k DocumentKey) String() string { return k.scope() + "/" + k.Name }

// Immutable reports whether the document is never replaced.
func (k DocumentKey) Immutable() bool { return k.Name != LatestDocument && k.Name != ManifestDocument }

func parseDocumentKey(key string) (k DocumentKey, err error) {
	p := strings.Split(key, "/")
	if len(p) != 5 {
		return k, fmt.Errorf("%w: record %s/%s", api.ErrCorrupt, bucketDocuments, api.Quoted(key))
	}
	return DocumentKey{p[0], p[1], p[2], p[3], p[4]}, nil
}

// Document is what is durable of a document of an agent's session.
type Document struct {
	Manifest  chunkstore.ID `json:"manifest"` // its contents
	Size      int64         `json:"size"`
	Sum       string        `json:"sum"` // BLAKE3 of its contents
	Snapshot  string        `json:"snapshot,omitempty"`
	UpdatedAt time.Time     `json:"updated_at"`
}

// KeyedDocument is a document with its key.
type KeyedDocument struct {
	DocumentKey
	Document
}

// Documents counts what a session has.
type Documents struct {
	Count int64 `json:"count"`
	Bytes int64 `json:"bytes"`
}

// scopeRecord is what is durable of a scope.
type scopeRecord struct {
	Last chunkstore.ID `json:"last"` // what was saved last in it: what is saved next resembles that
}

// record reads a record into into; false if there is none.
func record(tx *chunkstore.Tx, bucket, key string, into any) (bool, error) {
	value, err := tx.Get(bucket, key)
	if errors.Is(err, chunkstore.ErrNotFound) {
		return false, nil
	}
	if err == nil {
		if err = json.Unmarshal(value, into); err != nil {
			err = fmt.Errorf("%w: record %s/%s: %w", api.ErrCorrupt, bucket, api.Quoted(key), err)
		}
	}
	return err == nil, err
}

// putRecord writes a record.
func putRecord(tx *chunkstore.Tx, bucket, key string, from any) error {
	value, err := json.Marshal(from)
	if err == nil {
		err = tx.Put(bucket, key, value)
	}
	return err
}

// Document gives the record of a document; api.ErrNotFound.
func (c *Catalog) Document(ctx context.Context, k DocumentKey) (d Document, err error) {
	err = c.store.View(ctx, func(tx *chunkstore.Tx) error {
		found, err := record(tx, bucketDocuments, k.String(), &d)
		if err == nil && !found {
			err = fmt.Errorf("%w: document %s", api.ErrNotFound, api.Quoted(k.String()))
		}
		return err
	})
	return d, errclass.Mark(err)
}

// Resembles gives a stored stream that a document which is about to be saved resembles; false if there is none.
func (c *Catalog) Resembles(ctx context.Context, k DocumentKey) (m chunkstore.Manifest, ok bool, err error) {
	var before Document
	var scope scopeRecord
	err = c.store.View(ctx, func(tx *chunkstore.Tx) error {
		_, err := record(tx, bucketDocuments, k.String(), &before)
		if err == nil && k.Name != ManifestDocument {
			_, err = record(tx, bucketScopes, k.scope(), &scope)
		}
		return err
	})
	for _, id := range []chunkstore.ID{scope.Last, before.Manifest} {
		if err != nil || ok || id == 0 {
			continue
		}
		m, err = c.store.Manifest(ctx, id)
		ok = err == nil
		if errors.Is(err, chunkstore.ErrNotFound) {
			err = nil // deleted
		}
	}
	return m, ok, errclass.Mark(err)
}

// PutDocument adds to a transaction that a document is there, in the place of the one before. A document that is named
// and whose contents are those of an earlier one keeps its stream. api.ErrConflict if the session has too many, or the
// document is immutable and there with other contents; errors of class api.ErrNotFound if its snapshot is gone.
func (c *Catalog) PutDocument(tx *chunkstore.Tx, k DocumentKey, d Document, most Documents) error {
	var before Document
	was, err := record(tx, bucketDocuments, k.String(), &before)
	if err != nil {
		return err
	}
	if was && k.Immutable() {
		if err := before.Same(k, d); err != nil {
			return err
		}
		d.Snapshot = before.Snapshot
	}
	if err := c.tie(tx, k, before.Snapshot, d.Snapshot); err != nil {
		return err
	}
	add := Documents{Count: 1, Bytes: d.Size}
	if was {
		add = Documents{Bytes: d.Size - before.Size}
	}
	if was && before.Manifest != d.Manifest {
		if err := tx.DeleteManifest(before.Manifest); err != nil {
			return err
		}
	}
	if err := count(tx, k.Owner, add, most); err != nil {
		return err
	}
	if k.Name != ManifestDocument {
		if err := putRecord(tx, bucketScopes, k.scope(), scopeRecord{d.Manifest}); err != nil {
			return err
		}
	}
	return putRecord(tx, bucketDocuments, k.String(), d)
}

// Same refuses what would change an immutable document; api.ErrConflict.
func (d Document) Same(k DocumentKey, next Document) error {
	switch {
	case d.Sum != next.Sum:
		return fmt.Errorf("%w: document %s is there with other contents, and immutable", api.ErrConflict, api.Quoted(k.Name))
	case next.Snapshot != "" && next.Snapshot != d.Snapshot:
		return fmt.Errorf("%w: document %s is there, and not tied to snapshot %s", api.ErrConflict, api.Quoted(k.Name),
			next.Snapshot)
	}
	return nil
}

// tie notes to which snapshot a document is tied, "" for none.
func (c *Catalog) tie(tx *chunkstore.Tx, k DocumentKey, before, now string) error {
	if before == now {
		return nil
	}
	if before != "" {
		if err := tx.Delete(bucketTied, before+"/"+k.String()); err != nil {
			return err
		}
	}
	if now == "" {
		return nil
	}
	if _, err := tx.Get(bucketSnapshots, now); errors.Is(err, chunkstore.ErrNotFound) {
		return fmt.Errorf("%w: snapshot %s", api.ErrNotFound, api.Quoted(now))
	} else if err != nil {
		return err
	}
	n := 0
	if err := tied(tx, now, func(string) (bool, error) { n++; return n < api.MaxTied, nil }); err != nil {
		return err
	}
	if n >= api.MaxTied {
		return fmt.Errorf("%w: %d documents are tied to snapshot %s: delete some", api.ErrConflict, n, now)
	}
	return tx.Put(bucketTied, now+"/"+k.String(), nil)
}

// tied calls fn for the keys of the documents that are tied to a snapshot, until that returns false.
func tied(tx *chunkstore.Tx, snapshot string, fn func(key string) (bool, error)) error {
	return scanPrefix(tx, bucketTied, snapshot+"/", "", func(key string, _ []byte) (bool, error) {
		return fn(key[len(snapshot)+1:])
	})
}

// scanPrefix calls fn for the records of a bucket whose keys have a prefix, and come after that and after, until fn
// returns false.
func scanPrefix(tx *chunkstore.Tx, bucket, prefix, after string, fn func(key string, value []byte) (bool, error)) error {
	from := prefix
	if after != "" {
		from += after + "\x00"
	}
	return tx.Scan(bucket, from, func(key string, value []byte) (bool, error) {
		if !strings.HasPrefix(key, prefix) {
			return false, nil
		}
		return fn(key, value)
	})
}

// count adds to what a session has; api.ErrConflict beyond the most, of which 0 is any.
func count(tx *chunkstore.Tx, owner string, add, most Documents) error {
	var has Documents
	if _, err := record(tx, bucketOwners, owner, &has); err != nil {
		return err
	}
	has.Count += add.Count
	has.Bytes += add.Bytes
	switch {
	case add.Count > 0 && most.Count > 0 && has.Count > most.Count:
		return fmt.Errorf("%w: session %s has %d documents, and that is the limit: delete some", api.ErrConflict, owner,
			most.Count)
	case add.Bytes > 0 && most.Bytes > 0 && has.Bytes > most.Bytes:
		return fmt.Errorf("%w: the documents of session %s would hold %d bytes, and there is room for %d: delete some",
			api.ErrConflict, owner, has.Bytes, most.Bytes)
	case has.Count <= 0:
		return tx.Delete(bucketOwners, owner)
	}
	return putRecord(tx, bucketOwners, owner, has)
}

// DocumentsOf counts the documents of a session.
func (c *Catalog) DocumentsOf(ctx context.Context, owner string) (has Documents, err error) {
	err = c.store.View(ctx, func(tx *chunkstore.Tx) error {
		has = Documents{}
		_, err := record(tx, bucketOwners, owner, &has)
		return err
	})
	return has, errclass.Mark(err)
}

// dropDocument adds to a transaction that a document is gone.
func dropDocument(tx *chunkstore.Tx, k DocumentKey) error {
	var d Document
	was, err := record(tx, bucketDocuments, k.String(), &d)
	if err != nil || !was {
		return err
	}
	if d.Snapshot != "" {
		if err := tx.Delete(bucketTied, d.Snapshot+"/"+k.String()); err != nil {
			return err
		}
	}
	if err := tx.DeleteManifest(d.Manifest); err != nil {
		return err
	}
	if err := count(tx, k.Owner, Documents{-1, -d.Size}, Documents{}); err != nil {
		return err
	}
	if err := tx.Delete(bucketDocuments, k.String()); err != nil {
		return err
	}
	// Nothing tells of a scope without documents.
	left := false
	if err := scanPrefix(tx, bucketDocuments, k.scope()+"/", "", func(string, []byte) (bool, error) {
		left = true
		return false, nil
	}); err != nil || left {
		return err
	}
	return tx.Delete(bucketScopes, k.scope())
}

// dropTied adds to a transaction that the documents are gone which are tied to a snapshot.
func dropTied(tx *chunkstore.Tx, snapshot string) error {
	var keys []string
	if err := tied(tx, snapshot, func(key string) (bool, error) {
		keys = append(keys, key)
		return true, nil
	}); err != nil {
		return err
	}
	for _, key := range keys {
		k, err := parseDocumentKey(key)
		if err == nil {
			err = dropDocument(tx, k)
		}
		if err == nil {
			err = tx.Delete(bucketTied, snapshot+"/"+key) // also if its document has no record
		}
		if err != nil {
			return err
		}
	}
	return nil
}
