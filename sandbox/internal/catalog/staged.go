package catalog

import (
	"context"
	"fmt"
	"slices"

	"snapfs/chunkstore"
	"snapfs/sandbox/internal/errclass"
)

// Staged is a change that the store has, durably, or is just getting, and that nobody sees yet: a gate is closed and
// opened before it becomes visible. In the meantime nobody else changes the workspaces that it puts, and no layer goes
// that it names.
type Staged struct {
	Change
	was map[string]*Workspace // the workspaces before it; nil for one that it makes
}

// Stage makes a change durable without making it visible: Show or Withdraw must follow. The caller holds the locks of
// the workspaces that fn puts; beside these, fn adds snapshots, layers, events and trash, and removes nothing. Layers
// that lose their last name by it stay until Reconsider is called for them. With an error of class
// chunkstore.ErrUnwritable the disk may have it all the same. Calls at the same time share their writes to the disk.
func (c *Catalog) Stage(ctx context.Context, sync bool, fn func(ch *Change) error) (*Staged, error) {
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	s, undoes, err := c.hold(fn)
	if err != nil {
		return nil, err
	}
	if undoes {
		err = c.commitAlone(ctx, sync, &s.Change)
	} else {
		err = c.write(ctx, sync, &s.Change)
	}
	if err != nil {
		c.writer.Lock()
		defer c.writer.Unlock()
		c.unswept = append(c.unswept, c.letGo(s)...)
		c.settleLocked(s)
		return nil, err
	}
	return s, nil
}

// Put is Stage, followed by Show.
func (c *Catalog) Put(ctx context.Context, sync bool, fn func(ch *Change) error) error {
	s, err := c.Stage(ctx, sync, fn)
	if err == nil {
		c.Show(s)
	}
	return err
}

// hold has fn fill in a change, and keeps others from what that names. It also reports whether withdrawals are pending,
// which the store must get first.
func (c *Catalog) hold(fn func(ch *Change) error) (s *Staged, undoes bool, err error) {
	c.writer.Lock()
	defer c.writer.Unlock()
	s = &Staged{was: map[string]*Workspace{}}
	if err := fn(&s.Change); err != nil {
		return nil, false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range s.PutWorkspaces {
		s.was[w.ID] = c.index.workspaces[w.ID]
		c.staged[w.ID] = w
		if c.index.layer(w.Base) != nil {
			c.index.holdBase(w.Base, w.ID) // a layer that was there before: it must not go now
		}
	}
	return s, len(c.pending) > 0, nil
}

// letGo is the opposite of hold, for a change that is not to be. It returns layers that may have lost their last name.
// The caller holds writer.
func (c *Catalog) letGo(s *Staged) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var lost []string
	for _, w := range s.PutWorkspaces {
		if now := c.index.workspaces[w.ID]; now == nil || now.Base != w.Base {
			if c.index.dropBase(w.Base, w.ID) {
				c.touchLocked(w.Base)
				lost = append(lost, w.Base)
			}
		}
	}
	return lost
}

// Show makes a staged change visible; nothing of it waits for the disk.
func (c *Catalog) Show(s *Staged) {
	c.writer.Lock()
	defer c.writer.Unlock()
	c.apply(&s.Change)
	c.settleLocked(s)
	c.opts.Tell(s.Events)
}

// Withdraw undoes a staged change whose gate could not be closed. If the store refuses, the change is undone with the
// next one that it takes; until then a crash leaves the change as if it had become visible.
func (c *Catalog) Withdraw(ctx context.Context, s *Staged) error {
	c.writer.Lock()
	defer c.writer.Unlock()
	undo := &Change{DelSnapshots: s.PutSnapshots, delLayers: s.PutLayers, DelTrash: s.PutTrash, delEvents: s.Events}
	for id, w := range s.was {
		if w != nil {
			undo.PutWorkspaces = append(undo.PutWorkspaces, w)
		} else {
			undo.DelWorkspaces = append(undo.DelWorkspaces, c.staged[id])
		}
	}
	c.pending = append(c.pending, undo)
	err := c.commit(ctx, true, &Change{})
	c.letGo(s)
	c.settleLocked(s)
	return err
}

// settleLocked wakes the callers of WaitSettled. The caller holds writer, and not mu.
func (c *Catalog) settleLocked(s *Staged) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range s.PutWorkspaces {
		delete(c.staged, w.ID)
	}
	c.settled.Broadcast()
}

// WaitSettled waits until nothing is staged for a workspace: for changes of its record by callers that do not hold its
// lock. They must call it within Update, before anything else: it gives writer up while it waits.
func (c *Catalog) WaitSettled(workspace string) {
	for c.staged[workspace] != nil {
		c.settled.Wait()
	}
}

// commit writes a change, and pending withdrawals, in one transaction; none if there is nothing to write. The caller
// holds writer.
func (c *Catalog) commit(ctx context.Context, sync bool, ch *Change) error {
	changes := append(slices.Clone(c.pending), ch)
	if !slices.ContainsFunc(changes, (*Change).writes) {
		return nil
	}
	if err := c.write(ctx, sync, changes...); err != nil {
		return err
	}
	c.pending = nil
	return nil
}

// commitAlone is commit for a caller that does not hold writer.
func (c *Catalog) commitAlone(ctx context.Context, sync bool, ch *Change) error {
	c.writer.Lock()
	defer c.writer.Unlock()
	return c.commit(ctx, sync, ch)
}

// write writes changes in one transaction.
func (c *Catalog) write(ctx context.Context, sync bool, changes ...*Change) error {
	err := c.store.Update(context.WithoutCancel(ctx), sync, func(tx *chunkstore.Tx) error {
		for _, ch := range changes {
			if err := c.Write(tx, ch); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return errclass.Mark(fmt.Errorf("writing the records: %w", err))
	}
	c.opts.Points.At("records written")
	return nil
}

// StagedUppers are the uppers that staged workspaces name.
func (c *Catalog) StagedUppers() map[uint64]bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	uppers := map[uint64]bool{}
	for _, w := range c.staged {
		uppers[w.Upper] = true
	}
	return uppers
}

// IsStaged reports whether a change of a workspace is staged.
func (c *Catalog) IsStaged(workspace string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.staged[workspace] != nil
}
