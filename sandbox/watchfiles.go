package sandbox

import (
	"context"
	"errors"
	"path"

	"snapfs/sandbox/internal/workfiles"
)

var errTreeMoved = errors.New("the tree of the workspace was moved")

// nextMove is closed when the tree of a workspace has been moved in place, and the kernel knows all of that.
func (l *live) nextMove() <-chan struct{} {
	next := make(chan struct{})
	for {
		if l.moved.CompareAndSwap(nil, &next) {
			return next
		}
		if other := l.moved.Load(); other != nil {
			return *other
		}
	}
}

// tellMoved tells those who wait for that that the tree was moved.
func (l *live) tellMoved() {
	if next := l.moved.Swap(nil); next != nil {
		close(*next)
	}
}

// WatchFiles implements API. What moves the tree of a workspace in place, such as a rollback, makes no events of files:
// the watch begins anew, and an overflow is told.
func (h *Home) WatchFiles(ctx context.Context, r WatchFilesRequest, ready func(), fn func(FileEvent) error) error {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	h.idler.leave() // to wait for events is no work
	defer h.idler.enter()
	l, err := h.filesOf(ctx, r.WorkFileRequest, "watch files", nil)
	if err != nil {
		return err
	}
	raw := func(e FileEvent) FileEvent {
		e.Path, e.OldPath = rawOr(e.RawPath, e.Path), rawOr(e.RawOldPath, e.OldPath)
		return e
	}
	c := workfiles.Call{Do: workfiles.Watch, Request: r, Item: itemsOf(raw, fn)}
	c.Ready = func() error {
		if ready != nil {
			ready()
		}
		return nil
	}
	for {
		moved := l.nextMove()
		err := until(ctx, moved, errTreeMoved, func(ctx context.Context) error { return h.makeOn(ctx, l, c, &struct{}{}) })
		if !errors.Is(err, errTreeMoved) {
			return err
		}
		c.Ready = func() error {
			return fn(FileEvent{Kind: FileOverflow, Path: path.Clean("/" + r.Path), Dir: true, At: h.now()})
		}
	}
}
