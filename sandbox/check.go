package sandbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"snapfs/chunkstore"
	"snapfs/sandbox/internal/catalog"
	"snapfs/squashfs"
)

// Check verifies the store, the records and the directories of a home, beside everything else that goes on; with
// ReadData also every byte stored and the format of every image. Different files of one tree that report one inode
// number are problems, too. Directories that nothing names are only reported: Open sets them aside. Its error is only
// that of not being able to look.
func (h *Home) Check(ctx context.Context, r CheckRequest) (CheckResult, error) {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return CheckResult{}, err
	}
	defer end()
	kind := ""
	if r.ReadData {
		kind = "read data"
	}
	leave, err := h.working.checks.Enter(ctx, kind, r.Progress) // a home is nobody's: its two kinds share
	if err != nil {
		return CheckResult{}, err
	}
	defer leave()
	c := &checker{h: h, found: []Problem{}}
	steps := []func(context.Context, CheckRequest) error{c.store, c.records, c.documents, c.directories, c.applications, c.images, c.twins}
	for _, step := range steps {
		if err := step(ctx, r); err != nil {
			return CheckResult{}, classify(err)
		}
	}
	return CheckResult{Problems: c.found}, nil
}

// checker is one call of Check; one goroutine uses it.
type checker struct {
	h     *Home
	found []Problem
}

func (c *checker) report(where, what string, snapshots []string) {
	c.found = append(c.found, Problem{Where: where, What: what, Snapshots: snapshots})
}

// hit lists the snapshots that stand on any of the layers.
func (c *checker) hit(layers ...string) []string {
	return c.h.catalog.SnapshotsOver(layers...)
}

// store checks the chunk store.
func (c *checker) store(ctx context.Context, r CheckRequest) error {
	problems, err := c.h.store.Check(ctx, chunkstore.CheckOptions{
		ReadData: r.ReadData, Repair: r.Repair, Progress: stage(r.Progress, "check store", ""),
	})
	if err != nil {
		return err
	}
	c.reportStore(ctx, problems)
	return nil
}

// reportStore reports problems of the store with the snapshots that they hit.
func (c *checker) reportStore(ctx context.Context, problems []chunkstore.Problem) {
	byManifest := map[chunkstore.ID]string{}
	for _, l := range c.h.catalog.Layers() {
		if l.State == Stored {
			byManifest[l.Manifest] = l.ID
		}
		if l.Tier != nil {
			byManifest[l.Tier.Manifest] = l.ID
		}
	}
	documents := c.documentsWith(ctx, problems, byManifest)
	for _, p := range problems {
		var hit []string
		what := p.What
		for _, m := range p.Manifests {
			if layer := byManifest[m]; layer != "" {
				hit = append(hit, layer)
			} else if name := documents[m]; name != "" {
				what += "; of document " + name
			}
		}
		c.report(p.Where, what, c.hit(hit...))
	}
}

// records checks that what records name exists, and that what exists is named.
func (c *checker) records(ctx context.Context, _ CheckRequest) error {
	all, err := c.h.store.Manifests(ctx)
	if err != nil {
		return err
	}
	unnamed := map[chunkstore.ID]bool{}
	for _, m := range all {
		unnamed[m.ID] = true
	}
	missing := map[chunkstore.ID]*catalog.Layer{}
	for _, l := range c.h.catalog.Layers() {
		for _, m := range catalog.ImagesOf([]*catalog.Layer{l}, true) {
			if !unnamed[m] {
				missing[m] = l
			}
			delete(unnamed, m)
		}
		if l.Parent != "" && c.h.catalog.Layer(l.Parent) == nil && c.h.catalog.Layer(l.ID) == l {
			c.report("layer "+l.ID, "the layer below it, "+l.Parent+", has no record", nil)
		}
	}
	if err := errors.Join(c.missing(ctx, missing), c.stray(ctx, unnamed)); err != nil {
		return err
	}
	for s := range c.h.catalog.ListSnapshots(catalog.Query{}) {
		if s.Top != "" && c.h.catalog.Layer(s.Top) == nil && c.h.catalog.Snapshot(s.ID) == s {
			c.report("snapshot "+s.ID, "its layer "+s.Top+" has no record", []string{s.ID})
		}
	}
	for _, w := range c.h.catalog.Workspaces() {
		if w.Base != "" && c.h.catalog.Layer(w.Base) == nil && c.h.catalog.Workspace(w.ID) == w {
			c.report("workspace "+w.ID, "its layer "+w.Base+" has no record", nil)
		}
	}
	return nil
}

// missing reports those layers whose image, not in the list of the store, is not there. Others were stored since the
// list was made, or merged: as in stray, what counts is the records as the store has them.
func (c *checker) missing(ctx context.Context, images map[chunkstore.ID]*catalog.Layer) error {
	gone := map[chunkstore.ID]*catalog.Layer{}
	for m, l := range images {
		if _, err := c.h.store.Manifest(ctx, m); errors.Is(err, chunkstore.ErrNotFound) {
			gone[m] = l
		}
	}
	if len(gone) == 0 {
		return nil
	}
	named, err := c.h.catalog.NamedImages(ctx)
	if err != nil {
		return err
	}
	for m, l := range gone {
		if named[m] {
			c.report("layer "+l.ID, fmt.Sprintf("its manifest %d is not in the store", m), c.hit(l.ID))
		}
	}
	return nil
}

// stray reports those images of a list that nothing names; for documents see strayDocuments. Others were stored, merged or removed since the list was
// made, and the catalog hears of that a moment after the disk: what counts is the records as the store has them.
func (c *checker) stray(ctx context.Context, unnamed map[chunkstore.ID]bool) error {
	if len(unnamed) == 0 {
		return nil
	}
	named, err := c.h.catalog.NamedImages(ctx)
	if err != nil {
		return err
	}
	for id := range unnamed {
		if m, err := c.h.store.Manifest(ctx, id); err == nil && m.Kind == chunkstore.KindImage && !named[id] {
			c.report(fmt.Sprintf("manifest %d", id), "no layer names it", nil)
		}
	}
	return nil
}

// directories checks uppers/ against the records.
func (c *checker) directories(ctx context.Context, _ CheckRequest) error {
	for _, w := range c.h.catalog.Workspaces() {
		if !c.h.uppers.Exists(w.Upper) && !c.h.catalog.IsStaged(w.ID) && c.h.catalog.Workspace(w.ID) == w {
			c.report("workspace "+w.ID, "its upper "+c.h.uppers.Path(w.Upper)+" is missing", nil)
		}
	}
	for _, l := range c.h.catalog.Layers() {
		if l.State != Stored && !c.h.uppers.Exists(l.Upper) && c.h.catalog.Layer(l.ID) == l {
			c.report("layer "+l.ID, "its directory "+c.h.uppers.Path(l.Upper)+" is missing", c.hit(l.ID))
		}
		if why := c.h.storer.Problem(l.ID); why != "" && c.h.catalog.Layer(l.ID) == l {
			what := "it stays a sealed directory, since it cannot be stored: "
			if l.Source != nil {
				what = "it stays on " + l.Source.Path + ", which cannot be imported: "
			}
			c.report("layer "+l.ID, what+why, c.hit(l.ID))
		}
	}
	return c.strays(ctx)
}

// strays reports directories with contents that no record names. What is being destroyed is in the trash before its
// workspace is gone, and a new upper in a record before its first entry, so a second look at both tells them apart.
func (c *checker) strays(ctx context.Context) error {
	names, err := c.h.uppers.Strays(nil)
	if err != nil {
		return err
	}
	trash, err := c.h.catalog.Trash(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		n, err := strconv.ParseUint(name, 10, 64)
		if (err != nil || !trash[n]) && !c.h.uppers.Empty(name) && (err != nil || !c.h.uppers.Named()[n]) {
			c.report(filepath.Join(c.h.uppers.Dir(), name), "no record names it", nil)
		}
	}
	return ctx.Err()
}

// images checks the format of every stored image.
func (c *checker) images(ctx context.Context, r CheckRequest) error {
	if !r.ReadData {
		return nil
	}
	all := slices.DeleteFunc(c.h.catalog.Layers(), func(l *catalog.Layer) bool { return l.State != Stored })
	p := Progress{Stage: "check images"}
	sizes := make([]int64, len(all))
	for i, l := range all {
		if m, err := c.h.store.Manifest(ctx, l.Manifest); err == nil { // else it is reported
			sizes[i] = m.Size
			p.Total += m.Size
		}
	}
	for i, l := range all {
		if r.Progress != nil {
			r.Progress(p)
		}
		p.Files++
		p.Bytes += sizes[i]
		reader, err := c.h.store.OpenManifest(ctx, l.Manifest)
		if errors.Is(err, chunkstore.ErrNotFound) || errors.Is(err, chunkstore.ErrCorrupt) {
			continue // reported before, or deleted meanwhile
		}
		if err != nil {
			return err
		}
		err = squashfs.Check(ctx, reader, reader.Size(), func(v squashfs.Violation) {
			where := "layer " + l.ID
			if v.Path != "" {
				where = filepath.Join(where, v.Path)
			}
			c.report(where, v.Rule, c.hit(l.ID))
		})
		if errors.Is(err, chunkstore.ErrCorrupt) {
			err = nil // reported by the store
		}
		if err = errors.Join(err, reader.Close()); err != nil {
			return err
		}
	}
	return nil
}
