package sandbox

import (
	"context"
	"errors"
	"fmt"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// documentsWith gives the keys of the documents whose contents have problems and are of no layer, by manifest. What
// cannot be read of the records is reported by records.
func (c *checker) documentsWith(
	ctx context.Context, problems []chunkstore.Problem, layers map[chunkstore.ID]string,
) map[chunkstore.ID]string {
	wanted := map[chunkstore.ID]string{}
	for _, p := range problems {
		for _, m := range p.Manifests {
			if layers[m] == "" {
				wanted[m] = ""
			}
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	_ = c.h.catalog.EachDocument(ctx, "", func(d catalog.KeyedDocument) error { // as above
		if _, ok := wanted[d.Manifest]; ok {
			wanted[d.Manifest] = d.String()
		}
		return nil
	})
	return wanted
}

// documents checks that the contents of every document are in the store, that its snapshot has a record, that all of its
// kind in the store is named by one, and that what sessions have is counted right. Records change beside that: what seems
// wrong is looked at again.
func (c *checker) documents(ctx context.Context, _ CheckRequest) error {
	all, err := c.h.store.Manifests(ctx)
	if err != nil {
		return err
	}
	unnamed := map[chunkstore.ID]bool{}
	for _, m := range all {
		unnamed[m.ID] = m.Kind == chunkstore.KindDocument
	}
	owners := map[string]catalog.Documents{}
	if err := c.h.catalog.EachDocument(ctx, "", func(d catalog.KeyedDocument) error {
		if _, there := unnamed[d.Manifest]; !there {
			if err := c.missingDocument(ctx, d); err != nil {
				return err
			}
		}
		delete(unnamed, d.Manifest)
		if d.Snapshot != "" && c.h.catalog.Snapshot(d.Snapshot) == nil && c.isDocument(ctx, d) {
			c.report("document "+d.String(), "the snapshot "+d.Snapshot+" that it is tied to has no record", nil)
		}
		has := owners[d.Owner]
		owners[d.Owner] = catalog.Documents{Count: has.Count + 1, Bytes: has.Bytes + d.Size}
		return nil
	}); err != nil {
		return err
	}
	return errors.Join(c.strayDocuments(ctx, unnamed), c.counts(ctx, owners))
}

// isDocument reports whether a record is what it was.
func (c *checker) isDocument(ctx context.Context, d catalog.KeyedDocument) bool {
	now, err := c.h.catalog.Document(ctx, d.DocumentKey)
	return err == nil && now.Manifest == d.Manifest && now.Snapshot == d.Snapshot
}

// missingDocument reports a document whose contents are not in the list of the store, unless they were stored since.
func (c *checker) missingDocument(ctx context.Context, d catalog.KeyedDocument) error {
	_, err := c.h.store.Manifest(ctx, d.Manifest)
	if errors.Is(err, chunkstore.ErrNotFound) {
		if c.isDocument(ctx, d) {
			c.report("document "+d.String(), fmt.Sprintf("its manifest %d is not in the store", d.Manifest), nil)
		}
		return nil
	}
	return err
}

// strayDocuments reports those manifests of a list, the documents among them, that no record names.
func (c *checker) strayDocuments(ctx context.Context, unnamed map[chunkstore.ID]bool) error {
	for m, is := range unnamed {
		if !is {
			delete(unnamed, m)
		}
	}
	if len(unnamed) == 0 {
		return nil
	}
	// They may have been stored after the records were read.
	if err := c.h.catalog.EachDocument(ctx, "", func(d catalog.KeyedDocument) error {
		delete(unnamed, d.Manifest)
		return nil
	}); err != nil {
		return err
	}
	for m := range unnamed {
		if _, err := c.h.store.Manifest(ctx, m); err == nil {
			c.report(fmt.Sprintf("manifest %d", m), "no document names it", nil)
		}
	}
	return nil
}

// counts reports sessions of which the record says something else than their documents, whenever one looks.
func (c *checker) counts(ctx context.Context, owners map[string]catalog.Documents) error {
	for owner, has := range owners {
		said, err := c.h.catalog.DocumentsOf(ctx, owner)
		if err == nil && said != has {
			said, has, err = c.h.catalog.CountDocuments(ctx, owner)
		}
		if err != nil {
			return err
		}
		if said != has {
			c.report("documents of session "+api.Quoted(owner), fmt.Sprintf("its record says %d of %d bytes, it has %d of %d",
				said.Count, said.Bytes, has.Count, has.Bytes), nil)
		}
	}
	return nil
}
