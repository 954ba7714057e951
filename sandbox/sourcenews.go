package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// How much is told of files that were changed in a directory which is being imported.
const (
	mostTold       = 20  // files of one directory; all are counted
	mostToldAtOnce = 256 // files that wait for an event
	mostTellers    = 8   // workspaces that get an event of one directory
)

// sourceNews are the files that were found changed in directories after workspaces had shown them.
type sourceNews struct {
	told    chan sourceChange // immutable
	changed sync.Map          // of *atomic.Int64, by layer
	running sync.Map          // of *layers.Lower, by layer that is being imported
}

// sourceChange is one file that was found changed.
type sourceChange struct{ layer, path string }

// note counts a file, and has an event tell of it unless there are too many. It does not wait.
func (s *sourceNews) note(layer, path string) {
	n, _ := s.changed.LoadOrStore(layer, new(atomic.Int64))
	if n.(*atomic.Int64).Add(1) > mostTold {
		return
	}
	select {
	case s.told <- sourceChange{layer, path}:
	default:
	}
}

// count tells how many files of a layer were found changed since the home was opened.
func (s *sourceNews) count(layer string) int64 {
	n, ok := s.changed.Load(layer)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}

// tellSources writes the events of changed files until the home is closed.
func (h *Home) tellSources() {
	for {
		select {
		case <-h.ctx.Done():
			return
		case c := <-h.sources.told:
			err := h.tellSource(c.layer, func(workspace string) Event {
				e := h.event(EventSourceChanged, workspace, "", "", c.path)
				e.Level = "warn"
				return e
			})
			if err != nil && !errors.Is(err, context.Canceled) {
				h.log.Warn("recording that a file was changed in a directory that is being imported", "path", c.path, "error", err)
			}
		}
	}
}

// tellSource records an event of the workspaces that stand on a layer.
func (h *Home) tellSource(layer string, event func(workspace string) Event) error {
	_, err := h.catalog.Update(h.ctx, false, func(ch *catalog.Change) error {
		ch.Events = h.eventsOver(layer, event)
		return nil
	})
	return err
}

// eventsOver are events of the workspaces that stand on a layer, of the first of very many.
func (h *Home) eventsOver(layer string, event func(workspace string) Event) []Event {
	var events []Event
	for _, name := range h.catalog.WorkspacesOver(layer, mostTellers) {
		events = append(events, event(name))
	}
	return events
}

// missing counts the names that are gone in the directory of a layer while it is imported.
func (s *sourceNews) missing(layer string) int64 {
	low, ok := s.running.Load(layer)
	if !ok {
		return 0
	}
	n, _ := low.(*layers.Lower).SourceLost()
	return int64(n)
}

// lostText says which names are not in the image of a directory, because they were gone; empty if none are.
func lostText(low *layers.Lower) string {
	n, some := low.SourceLost()
	if n == 0 {
		return ""
	}
	for i := range some {
		some[i] = api.Quoted(some[i])
	}
	return fmt.Sprintf("%d names were gone before they were read: %s", n, strings.Join(some, ", "))
}

// Imported implements layerstore.Owner.
func (o storerOwner) Imported(r *catalog.Layer, low *layers.Lower) []Event {
	detail, level := r.Source.Path, "info"
	if n := o.home.sources.count(r.ID); n > 0 {
		detail = fmt.Sprintf("%s; %d files were changed there meanwhile", detail, n)
	}
	if n := low.SourceLeftOut(); n > 0 {
		detail = fmt.Sprintf("%s; %d mounts in it were left out", detail, n)
	}
	if lost := lostText(low); lost != "" {
		detail, level = fmt.Sprintf("%s; %s", detail, lost), "warn"
		o.home.log.Warn("a directory is imported", "path", r.Source.Path, "missing", lost)
	}
	o.home.sources.changed.Delete(r.ID)
	return o.home.eventsOver(r.ID, func(workspace string) Event {
		e := o.home.event(EventImportEnded, workspace, "", "", detail)
		e.Level = level
		return e
	})
}

// Failed implements layerstore.Owner.
func (o storerOwner) Failed(r *catalog.Layer, cause error) {
	err := o.home.tellSource(r.ID, func(workspace string) Event {
		e := o.home.event(EventImportFailed, workspace, "", "", cause.Error())
		e.Level = "warn"
		return e
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		o.home.log.Warn("recording that an import failed", "error", err)
	}
}
