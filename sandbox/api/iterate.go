package api

import (
	"context"
	"errors"
	"iter"
)

// AllWorkspaces ranges over the workspaces that a lists for r, over all pages that follow r.After.
// It asks for a page when the loop gets there, so it sees what changes meanwhile. The first error ends it.
func AllWorkspaces(ctx context.Context, a API, r ListRequest) iter.Seq2[Workspace, error] {
	return pages(r, func(r ListRequest) ([]Workspace, bool, error) {
		page, err := a.Workspaces(ctx, r)
		return page.Workspaces, page.More, err
	}, r.Cursor)
}

// AllSnapshots ranges over the snapshots that a lists for r, as AllWorkspaces does.
func AllSnapshots(ctx context.Context, a API, r ListRequest) iter.Seq2[Snapshot, error] {
	return pages(r, func(r ListRequest) ([]Snapshot, bool, error) {
		page, err := a.Snapshots(ctx, r)
		return page.Snapshots, page.More, err
	}, func(s Snapshot) string { return s.ID })
}

// AllChanges ranges over what [API.Diff] reports. The comparison runs while the loop does, and ends with it.
func AllChanges(ctx context.Context, a API, r DiffRequest) iter.Seq2[Change, error] {
	return calls(func(fn func(Change) error) error { return a.Diff(ctx, r, fn) })
}

// AllEvents ranges over what [API.Events] reports. With Follow it waits for further events until the loop or ctx ends.
func AllEvents(ctx context.Context, a API, r EventsRequest) iter.Seq2[Event, error] {
	return calls(func(fn func(Event) error) error { return a.Events(ctx, r, fn) })
}

// pages ranges over the items of one page after the other. id gives what the next page comes after.
func pages[T any](
	r ListRequest, ask func(ListRequest) (items []T, more bool, err error), id func(T) string,
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		for more := true; more; {
			var items []T
			var err error
			if items, more, err = ask(r); err != nil {
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if len(items) == 0 {
				return
			}
			r.After = id(items[len(items)-1])
		}
	}
}

// errLeft ends a call whose loop has ended.
var errLeft = errors.New("the loop has ended")

// calls ranges over what a call reports one by one.
func calls[T any](call func(fn func(T) error) error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		left := false
		err := call(func(item T) error {
			if !yield(item, nil) {
				left = true
				return errLeft
			}
			return nil
		})
		if err != nil && !left {
			var none T
			yield(none, err)
		}
	}
}
