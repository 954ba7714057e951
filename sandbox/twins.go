package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"golang.org/x/sys/unix"

	"snapfs/layers"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/uppers"
)

// maxTwinNames is how many paths Check tells of one snapshot or workspace with files that share inode numbers.
const maxTwinNames = 100

// twins finds files of one tree that report one inode number and are no hard links of each other. Versions that kept
// the numbers of images of other homes have made such trees, and could take two such files for one.
//
// Few trees are walked. Numbers that no two layers of a stack have cannot be twins, nor can those of base images, below
// 2^32, of which a stack has one. Of the rest nearly all are copies of what lies below, which the look of one layer
// tells; a tree is walked only for a layer of which it does not, and once for the layer, not for all that stands on it.
func (c *checker) twins(ctx context.Context, _ CheckRequest) error {
	f := newTwinFinder(c)
	all := c.h.catalog.Workspaces()
	f.arrange(c.h.catalog.Layers(), all)
	if err := f.walkUp(ctx, ""); err != nil {
		return err
	}
	tops := map[string][]string{}
	for s := range c.h.catalog.ListSnapshots(catalog.Query{}) {
		tops[s.Top] = append(tops[s.Top], s.ID)
	}
	var order []string
	for top := range tops {
		if l := f.layers[top]; l != nil && !l.twins.IsEmpty() {
			order = append(order, top)
		}
	}
	slices.Sort(order)
	for _, top := range order {
		ids := tops[top]
		tree, err := c.h.openLayers(ctx, top, "")
		if err := f.tell(ctx, "snapshot "+ids[0], ids, tree, err, f.layers[top].twins); err != nil {
			return err
		}
	}
	for _, w := range all {
		if n := f.workspaces[w.ID]; n != nil && !n.twins.IsEmpty() {
			tree, err := c.h.openTree(ctx, w, nil, "")
			if err := f.tell(ctx, "workspace "+w.ID, nil, tree, err, n.twins); err != nil {
				return err
			}
		}
	}
	return nil
}

// twinFinder is the state of Check.twins.
type twinFinder struct {
	*checker
	layers     map[string]*layerNumbers // by id
	workspaces map[string]*layerNumbers // the same of their uppers

	on    map[string][]*catalog.Layer     // layers by the layer that they lie on; "": on none
	used  map[string][]*catalog.Workspace // workspaces in the same way
	below *roaring64.Bitmap               // the numbers of all layers below the one that is being looked at
}

// layerNumbers are the numbers of a layer that two of its stack can have.
type layerNumbers struct {
	own   *roaring64.Bitmap // from 2^32 on; nil once all that lies on the layer was looked at
	twins *roaring64.Bitmap // that different inodes have in the tree of the layer, or of one below
}

func newTwinFinder(c *checker) *twinFinder {
	return &twinFinder{
		checker: c, layers: map[string]*layerNumbers{}, workspaces: map[string]*layerNumbers{},
		on: map[string][]*catalog.Layer{}, used: map[string][]*catalog.Workspace{}, below: roaring64.New(),
	}
}

// arrange notes what lies on what.
func (f *twinFinder) arrange(all []*catalog.Layer, workspaces []*catalog.Workspace) {
	known := map[string]bool{}
	for _, l := range all {
		known[l.ID] = true
	}
	place := func(id string) string {
		if known[id] {
			return id
		}
		return "" // its record is missing, which others report
	}
	for _, l := range all {
		at := place(l.Parent)
		f.on[at] = append(f.on[at], l)
	}
	for _, w := range workspaces {
		at := place(w.Base)
		f.used[at] = append(f.used[at], w)
	}
}

// walkUp looks at the trees of all that lies on a layer, whose numbers, and those of the layers below it, are in below.
func (f *twinFinder) walkUp(ctx context.Context, id string) error {
	for _, w := range f.used[id] {
		if err := f.workspace(ctx, w); err != nil {
			return err
		}
	}
	for _, l := range f.on[id] {
		if err := f.layer(ctx, l); err != nil {
			return err
		}
		leave := f.enter(f.layers[l.ID])
		err := f.walkUp(ctx, l.ID)
		leave()
		if err != nil {
			return err
		}
	}
	return nil
}

// enter adds the numbers of a layer to those below, until leave is called.
func (f *twinFinder) enter(n *layerNumbers) (leave func()) {
	fresh := roaring64.AndNot(n.own, f.below)
	n.own = nil
	f.below.Or(fresh)
	return func() { f.below.AndNot(fresh) }
}

// read gathers the numbers of a layer, and suspects: those that it has more than once.
func (n *layerNumbers) read(numbers iter.Seq2[uint64, error]) (suspects *roaring64.Bitmap, err error) {
	n.own, suspects = roaring64.New(), roaring64.New()
	for ino, err := range numbers {
		if err != nil {
			return nil, err
		}
		if ino > 1 && !n.own.CheckedAdd(ino) { // 1 is the root
			suspects.Add(ino)
		}
	}
	n.own.RemoveRange(0, 1<<uppers.SpaceBits)
	return suspects, nil
}

// repeats gives the numbers that a layer has in common with those below it, but for those that are known.
func (f *twinFinder) repeats(n *layerNumbers, known *roaring64.Bitmap) *roaring64.Bitmap {
	shared := roaring64.And(n.own, f.below)
	shared.AndNot(known)
	return shared
}

// over makes the numbers of what lies on a layer.
func (f *twinFinder) over(id string) *layerNumbers {
	n := &layerNumbers{own: roaring64.New(), twins: roaring64.New()}
	if parent := f.layers[id]; parent != nil {
		n.twins.Or(parent.twins)
	}
	return n
}

// layer looks at the tree of a layer.
func (f *twinFinder) layer(ctx context.Context, l *catalog.Layer) error {
	n := f.over(l.Parent)
	f.layers[l.ID] = n
	if l.State == Importing {
		return nil // to look at it is to read the directory; it gets the numbers of a base image
	}
	if l.State == Stored {
		suspects, err := n.read(uppers.Numbers(ctx, f.h.store, l.Manifest))
		if err != nil {
			return err
		}
		if suspects.IsEmpty() && f.repeats(n, suspects).IsEmpty() {
			return nil
		}
		tree, err := f.h.openLayers(ctx, l.ID, l.Parent)
		return f.look(ctx, "layer "+l.ID, n, suspects, tree, err)
	}
	tree, err := f.h.openLayers(ctx, l.ID, l.Parent)
	return f.look(ctx, "layer "+l.ID, n, nil, tree, err)
}

// workspace looks at the tree of a workspace.
func (f *twinFinder) workspace(ctx context.Context, w *catalog.Workspace) error {
	n := f.over(w.Base)
	f.workspaces[w.ID] = n
	if n.twins.IsEmpty() && f.below.IsEmpty() {
		return nil
	}
	tree, err := f.h.openTree(ctx, w, nil, "")
	if err == nil && tree.lowers[0].Key() != "" { // nothing was ever written to it
		tree.close()
		return nil
	}
	return f.look(ctx, "workspace "+w.ID, n, nil, tree, err)
}

// look adds the twins in a tree whose topmost layer is n, and closes it. With suspects nil the numbers of n are still
// to be read.
func (f *twinFinder) look(
	ctx context.Context, where string, n *layerNumbers, suspects *roaring64.Bitmap, t *tree, err error,
) error {
	if err != nil {
		return f.unread(ctx, where, err)
	}
	defer t.close()
	if suspects == nil {
		suspects, err = n.read(t.lowers[0].Numbers(ctx))
		if err != nil {
			return f.unread(ctx, where, err)
		}
	}
	if shared := f.repeats(n, suspects); !shared.IsEmpty() {
		open, err := layers.Unexplained(ctx, t.lowers, shared)
		if err != nil {
			return f.unread(ctx, where, err)
		}
		suspects.Or(open)
	}
	if suspects.AndNot(n.twins); suspects.IsEmpty() {
		return nil
	}
	found, err := layers.TwinNumbers(ctx, t.lowers, suspects)
	if err != nil {
		return f.unread(ctx, where, err)
	}
	n.twins.Or(found)
	return nil
}

// tell reports the twins of a tree, and closes it.
func (f *twinFinder) tell(
	ctx context.Context, where string, snapshots []string, t *tree, err error, of *roaring64.Bitmap,
) error {
	if err != nil {
		return f.unread(ctx, where, err)
	}
	defer t.close()
	found, all, err := layers.FindTwins(ctx, t.lowers, of, maxTwinNames)
	if err != nil {
		return f.unread(ctx, where, err)
	}
	for _, s := range found {
		quoted, plain := make([]string, len(s.Paths)), make([]string, len(s.Paths))
		for i, p := range s.Paths {
			quoted[i], plain[i] = strconv.Quote(p), p
			if !utf8.ValidString(p) {
				plain[i] = quoted[i]
			}
		}
		f.found = append(f.found, Problem{
			Where:     where,
			What:      fmt.Sprintf("different files have inode number %d: %s", s.Ino, strings.Join(quoted, ", ")),
			Snapshots: snapshots, Ino: s.Ino, Paths: plain,
		})
	}
	if all > 0 {
		f.report(where, fmt.Sprintf("files share %d inode numbers, of which %d are told: "+
			"a version before this one may have taken such a file for the other when it was read or written. "+
			"Compare them with what they were made from; export the tree and 'create --from' the image, "+
			"and all have numbers of their own", all, len(found)), snapshots)
	}
	return nil
}

// unread deals with a tree that cannot be read. What is damaged is found by others, and what has gone meanwhile is in
// no tree.
func (f *twinFinder) unread(ctx context.Context, where string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err = classify(err)
	for _, known := range []error{ErrCorrupt, ErrNotFound, ErrConflict, fs.ErrNotExist, unix.ESTALE} {
		if errors.Is(err, known) {
			return nil
		}
	}
	f.report(where, "files with one inode number cannot be looked for: "+err.Error(), nil)
	return nil
}
