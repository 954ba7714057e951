package catalog

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
)

// batch is how many records a list takes under the lock at a time.
const batch = 128

// Query says which records are listed. What is empty does not matter.
type Query struct {
	Session   string // the owner
	Workspace string // that, or the one of the snapshots
	After     string // id, or name of a workspace: only those that come after it
	// Newest lists what is newest first. After is then an id, or what MadeKey gives for a workspace.
	Newest bool
}

// MadeKey is by what workspaces are in the order in which they were made: the time, and among equals the name.
func MadeKey(made time.Time, name string) string {
	return fmt.Sprintf("%020d/%s", made.UnixNano(), name)
}

// made is the key of a workspace.
func (r *Workspace) made() string { return MadeKey(r.CreatedAt, r.ID) }

// Workspace gives the record of a workspace, or nil.
func (c *Catalog) Workspace(name string) *Workspace {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.index.workspaces[name]
}

// Snapshot gives the record of a snapshot, or nil.
func (c *Catalog) Snapshot(id string) *Snapshot {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.index.snapshots[id]
}

// Layer gives the record of a layer, or nil.
func (c *Catalog) Layer(id string) *Layer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.index.layer(id)
}

// Workspaces lists all workspaces in order of names.
func (c *Catalog) Workspaces() []*Workspace {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]*Workspace, 0, len(c.index.names))
	for _, name := range c.index.names {
		all = append(all, c.index.workspaces[name])
	}
	return all
}

// Layers lists all layers, oldest first: parents before what lies on them.
func (c *Catalog) Layers() []*Layer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]*Layer, 0, len(c.index.layers))
	for _, id := range c.index.layers {
		all = append(all, c.index.nodes[id].layer)
	}
	return all
}

// ListWorkspaces gives the workspaces that a query asks for, in order of names, or the newest first. No lock is
// held between one and the next: those that are made or removed meanwhile may be among them or not.
func (c *Catalog) ListWorkspaces(q Query) iter.Seq[*Workspace] {
	if q.Newest {
		return inBatches(q.After, (*Workspace).made, func(before string) []*Workspace {
			c.mu.RLock()
			defer c.mu.RUnlock()
			var some []*Workspace
			for _, key := range c.index.madeFor(q).newestBefore(before) {
				some = append(some, c.index.workspaces[key[strings.IndexByte(key, '/')+1:]])
			}
			return some
		})
	}
	return inBatches(q.After, func(w *Workspace) string { return w.ID }, func(after string) []*Workspace {
		c.mu.RLock()
		defer c.mu.RUnlock()
		list := c.index.workspacesFor(q).after(after)
		some := make([]*Workspace, 0, min(len(list), batch))
		for _, name := range list[:min(len(list), batch)] {
			some = append(some, c.index.workspaces[name])
		}
		return some
	})
}

// ListSnapshots gives the snapshots that a query asks for, oldest first, or the newest first. No lock is held
// between one and the next: those that are taken or deleted meanwhile may be among them or not.
func (c *Catalog) ListSnapshots(q Query) iter.Seq[*Snapshot] {
	all := inBatches(q.After, func(s *Snapshot) string { return s.ID }, func(after string) []*Snapshot {
		c.mu.RLock()
		defer c.mu.RUnlock()
		if q.Newest {
			return c.index.records(c.index.snapshotsFor(q).newestBefore(after))
		}
		list := c.index.snapshotsFor(q).after(after)
		return c.index.records(list[:min(len(list), batch)])
	})
	if q.Session == "" || q.Workspace == "" {
		return all
	}
	return func(yield func(*Snapshot) bool) {
		for s := range all {
			if s.Session == q.Session && s.Workspace == q.Workspace && !yield(s) {
				return
			}
		}
	}
}

// workspacesFor lists what a query asks for.
func (x *index) workspacesFor(q Query) ids {
	if q.Workspace != "" {
		if w := x.workspaces[q.Workspace]; w != nil && (q.Session == "" || q.Session == w.Session) {
			return ids{w.ID}
		}
		return nil
	}
	if q.Session == "" {
		return x.names
	}
	if s := x.sessions[q.Session]; s != nil {
		return s.workspaces
	}
	return nil
}

// madeFor lists what a query asks for by MadeKey.
func (x *index) madeFor(q Query) ids {
	if q.Workspace != "" {
		var one ids
		for _, name := range x.workspacesFor(q) {
			one = ids{x.workspaces[name].made()}
		}
		return one
	}
	if q.Session == "" {
		return x.made
	}
	if s := x.sessions[q.Session]; s != nil {
		return s.made
	}
	return nil
}

// snapshotsFor is the shorter of the lists that have all that a query asks for.
func (x *index) snapshotsFor(q Query) ids {
	list := x.order
	if q.Workspace != "" {
		list = x.ofWorkspace[q.Workspace]
	}
	if q.Session == "" {
		return list
	}
	s := x.sessions[q.Session]
	switch {
	case s == nil:
		return nil
	case len(s.snapshots) < len(list):
		return s.snapshots
	}
	return list
}

// records gives the records of snapshots.
func (x *index) records(list ids) []*Snapshot {
	some := make([]*Snapshot, 0, len(list))
	for _, id := range list {
		some = append(some, x.snapshots[id])
	}
	return some
}

// inBatches gives what next lists after one key after the other.
func inBatches[R any](after string, key func(R) string, next func(after string) []R) iter.Seq[R] {
	return func(yield func(R) bool) {
		for {
			some := next(after)
			for _, r := range some {
				if !yield(r) {
					return
				}
			}
			if len(some) < batch {
				return
			}
			after = key(some[len(some)-1])
		}
	}
}

// SnapshotCalled gives the oldest snapshot of a workspace with a name, or nil.
func (c *Catalog) SnapshotCalled(workspace, name string) *Snapshot {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if list := c.index.called[calling{workspace, name}]; len(list) > 0 {
		return c.index.snapshots[list[0]]
	}
	return nil
}

// FindSnapshots lists the snapshots of all workspaces that have a name, and if abbreviated those whose ids begin with
// it, oldest first.
func (c *Catalog) FindSnapshots(name string, abbreviated bool) []*Snapshot {
	c.mu.RLock()
	defer c.mu.RUnlock()
	list := slices.Clone(c.index.called[calling{"", name}])
	if abbreviated {
		at, _ := slices.BinarySearch(c.index.order, name)
		for _, id := range c.index.order[at:] {
			if !strings.HasPrefix(id, name) {
				break
			}
			list.add(id)
		}
	}
	return c.index.records(list)
}

// NewestSnapshot gives the newest snapshot of a workspace that fn, which must not ask the catalog, wants; nil if there
// is none.
func (c *Catalog) NewestSnapshot(workspace string, fn func(*Snapshot) bool) *Snapshot {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, id := range slices.Backward(c.index.ofWorkspace[workspace]) {
		if s := c.index.snapshots[id]; fn(s) {
			return s
		}
	}
	return nil
}

// Expired lists the snapshots that are past their time at a time, oldest first.
func (c *Catalog) Expired(now time.Time) []*Snapshot {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var list ids
	for _, s := range c.index.expiring {
		if !s.Expired(now) {
			break
		}
		list = append(list, s.ID)
	}
	slices.Sort(list)
	return c.index.records(list)
}
