package sandbox

import (
	"context"
	"fmt"

	"snapfs/internal/treefilter"
	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/part"
	"snapfs/squashfs"
)

// filterOf reads what part of a tree is wanted; nil for all of it.
func filterOf(p Part) (*treefilter.Filter, error) {
	f, err := treefilter.New(treefilter.Options{Paths: p.Paths, Exclude: p.Exclude, GitIgnore: p.GitIgnore})
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return f, err
}

// foundAll refuses a filter with a path that was not there, or that it leaves out, when the tree was walked.
func foundAll(f *treefilter.Filter) error {
	if f == nil {
		return nil
	}
	if p := f.LeftOut(); p != "" {
		return fmt.Errorf("%w: the path %s is asked for, and left out by a pattern: drop one of them", ErrInvalid, api.Quoted(p))
	}
	if p := f.Missing(); p != "" {
		return fmt.Errorf("%w: no path %s in the tree", ErrNotFound, api.Quoted(p))
	}
	return nil
}

// total adds up, beside the work of a call that reports progress, how much there is to do, and has the reports say it
// when it is known. The tree stays open until end has been called.
func total(ctx context.Context, lowers []*layers.Lower, p Part, progress func(Progress)) (
	report func(Progress), end func(),
) {
	if progress == nil {
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	sum := make(chan int64, 1)
	ended := make(chan struct{})
	go func() { // ended by end
		defer close(ended)
		if n, err := totalOf(ctx, lowers, p); err == nil {
			sum <- n
		}
	}()
	known := int64(-1)
	report = func(p Progress) {
		select {
		case known = <-sum:
		default:
		}
		p.Total = known
		if known >= 0 {
			p.Total = max(known, p.Bytes)
		}
		progress(p)
	}
	return report, func() { cancel(); <-ended }
}

// totalOf walks a tree.
func totalOf(ctx context.Context, lowers []*layers.Lower, p Part) (int64, error) {
	filter, err := filterOf(p)
	if err != nil {
		return 0, err
	}
	src, err := layers.Merged(lowers)
	if err != nil {
		return 0, err
	}
	return part.Size(ctx, part.Of(src, filter))
}

// partOf presents what a filter takes of a source.
func partOf(f *treefilter.Filter) func(squashfs.Source) squashfs.Source {
	if f == nil {
		return nil
	}
	return func(src squashfs.Source) squashfs.Source { return part.Of(src, f) }
}

// partName tells parts of one tree apart; "" for all of it.
func partName(p Part) string {
	if p.All() {
		return ""
	}
	return fmt.Sprintf(" %q %q %t", p.Paths, p.Exclude, p.GitIgnore)
}

// has refuses a part with paths that the tree does not have, or that its patterns leave out.
func (t *tree) has(ctx context.Context, p Part) error {
	filter, err := filterOf(p)
	if len(p.Paths) == 0 || filter == nil || err != nil {
		return err
	}
	at, done, err := layers.OpenTree(t.lowers)
	if err != nil {
		return err
	}
	defer done()
	look, err := filter.Lookup(func(dir string) ([]byte, error) { return ignoreFile(ctx, dir, at) })
	if err != nil {
		return err
	}
	return findPaths(p, look, filter, at)
}
