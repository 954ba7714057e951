package catalog

import (
	"errors"
	"fmt"
	"testing"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
)

// saveDocument stores a document with a stream of its own.
func saveDocument(t *testing.T, c *Catalog, k DocumentKey, snapshot string, most Documents) error {
	t.Helper()
	in, err := c.store.NewIngest(t.Context(), chunkstore.IngestOptions{Kind: chunkstore.KindDocument})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Abort()
	body := fmt.Sprintf("%q", k.String())
	if err := in.Hint(chunkstore.Hint{Path: "a", Size: int64(len(body))}); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write([]byte(body)); err != nil {
		t.Fatal(err)
	}
	_, err = in.Commit(t.Context(), func(tx *chunkstore.Tx, m chunkstore.Manifest) error {
		return c.PutDocument(tx, k, Document{Manifest: m.ID, Size: m.Size, Sum: body, Snapshot: snapshot}, most)
	})
	return err
}

// TestSweepTied: documents of a snapshot go which a program that knows of none has deleted; all others stay.
func TestSweepTied(t *testing.T) {
	c := open(t, openStore(t))
	put(t, c, Change{PutSnapshots: []*Snapshot{{ID: "s1", Workspace: "w"}, {ID: "s2", Workspace: "w"}}})
	k := DocumentKey{Owner: "o", Agent: "a", Kind: api.AgentScope, Scope: "x", Name: LatestDocument}
	for i, snapshot := range []string{"", "s1", "s2"} {
		k.Scope = fmt.Sprint("x", i)
		if err := saveDocument(t, c, k, snapshot, Documents{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.store.Update(t.Context(), true, func(tx *chunkstore.Tx) error {
		return tx.Delete(bucketSnapshots, "s1")
	}); err != nil {
		t.Fatal(err)
	}
	c = open(t, c.store)
	if err := c.SweepTied(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, there := range []bool{true, false, true} {
		k.Scope = fmt.Sprint("x", i)
		if _, err := c.Document(t.Context(), k); err == nil != there {
			t.Errorf("document %d: %v", i, err)
		}
	}
	said, has, err := c.CountDocuments(t.Context(), "o")
	if err != nil || said != has || has.Count != 2 {
		t.Errorf("said %+v, has %+v, %v", said, has, err)
	}
}

// TestDocumentLimits: what a session may have is counted with what it has lost.
func TestDocumentLimits(t *testing.T) {
	c := open(t, openStore(t))
	k := DocumentKey{Owner: "o", Agent: "a", Kind: api.AgentScope, Scope: "x"}
	save := func(name string, most Documents) error {
		k.Name = name
		return saveDocument(t, c, k, "", most)
	}
	for i := range 3 {
		if err := save(fmt.Sprint(i), Documents{Count: 3}); err != nil {
			t.Fatal(err)
		}
	}
	if err := save("3", Documents{Count: 3}); !errors.Is(err, api.ErrConflict) {
		t.Errorf("beyond the limit: %v", err)
	}
	k.Name = "1"
	if err := c.DropDocument(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	if err := save("3", Documents{Count: 3}); err != nil {
		t.Error(err)
	}
	if err := save("4", Documents{Bytes: 50}); !errors.Is(err, api.ErrConflict) {
		t.Errorf("beyond the bytes: %v", err)
	}
	if err := c.DropAgentSession(t.Context(), "o", "a"); err != nil {
		t.Fatal(err)
	}
	if has, err := c.DocumentsOf(t.Context(), "o"); err != nil || has != (Documents{}) {
		t.Errorf("has %+v, %v", has, err)
	}
	all, err := c.store.Manifests(t.Context())
	if err != nil || len(all) != 0 {
		t.Errorf("streams left: %+v, %v", all, err)
	}
}
