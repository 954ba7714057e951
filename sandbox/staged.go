package sandbox

import (
	"context"
	"fmt"

	"snapfs/chunkstore"
)

// staged is a change that the store has, durably, and that nobody sees yet: a gate is closed and opened before it is shown. In the
// meantime nobody else changes the workspaces that it puts, and no layer goes that it names.
type staged struct {
	change
	was map[string]*workspaceRecord // the workspaces before it; nil for one that it makes
}

// stage makes a change durable without showing it: show or withdraw must follow. The caller holds the locks of the workspaces
// that fn puts; beside these, fn adds snapshots, layers, events and trash, and removes nothing. Layers that lose their last
// name by it stay until somebody reconsiders them. With an error of class chunkstore.ErrUnwritable the disk may have it all the same.
func (c *catalog) stage(ctx context.Context, sync bool, fn func(ch *change) error) (*staged, error) {
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	c.writer.Lock()
	defer c.writer.Unlock()
	s := &staged{was: map[string]*workspaceRecord{}}
	if err := fn(&s.change); err != nil {
		return nil, err
	}
	if err := c.commit(ctx, sync, &s.change); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range s.putWorkspaces {
		s.was[w.ID] = c.workspaces[w.ID]
		c.staged[w.ID] = w
		if c.layers[w.Base] != nil {
			c.holdLocked(w.Base, holder{'w', w.ID}) // a layer that was there before: it must not go now
		}
	}
	return s, nil
}

// show shows a staged change; nothing of it waits for the disk.
func (c *catalog) show(s *staged) {
	c.writer.Lock()
	defer c.writer.Unlock()
	c.apply(&s.change)
	c.settleLocked(s)
	c.tell(s.events)
}

// withdraw undoes a staged change whose gate could not be closed. If the store refuses, the change is undone with the next one that
// it takes; until then a crash leaves the change as if it had been shown.
func (c *catalog) withdraw(ctx context.Context, s *staged) error {
	c.writer.Lock()
	defer c.writer.Unlock()
	undo := &change{delSnapshots: s.putSnapshots, delLayers: s.putLayers, delTrash: s.putTrash, delEvents: s.events}
	for id, w := range s.was {
		if w != nil {
			undo.putWorkspaces = append(undo.putWorkspaces, w)
		} else {
			undo.delWorkspaces = append(undo.delWorkspaces, c.staged[id])
		}
	}
	c.owed = append(c.owed, undo)
	err := c.commit(context.WithoutCancel(ctx), true, &change{})
	c.mu.Lock()
	for _, w := range s.putWorkspaces {
		if now := c.workspaces[w.ID]; now == nil || now.Base != w.Base {
			c.letGoLocked(w.Base, holder{'w', w.ID})
		}
	}
	c.mu.Unlock()
	c.settleLocked(s)
	return err
}

// settleLocked lets those go on who wait for a staged change. writer is held.
func (c *catalog) settleLocked(s *staged) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range s.putWorkspaces {
		delete(c.staged, w.ID)
	}
	c.settled.Broadcast()
}

// waitSettled waits until nothing is staged for a workspace: for changes of its record by those who do not hold its lock. It is
// called first thing in an update's function.
func (c *catalog) waitSettled(workspace string) {
	for c.staged[workspace] != nil {
		c.settled.Wait()
	}
}

// commit writes a change, and what is owed, in one transaction. writer is held.
func (c *catalog) commit(ctx context.Context, sync bool, ch *change) error {
	err := c.store.Update(context.WithoutCancel(ctx), sync, func(tx *chunkstore.Tx) error {
		for _, o := range c.owed {
			if err := c.write(tx, o); err != nil {
				return err
			}
		}
		return c.write(tx, ch)
	})
	if err != nil {
		return classify(fmt.Errorf("writing the records: %w", err))
	}
	c.owed = nil
	c.points.At("records written")
	return nil
}

// stagedUppers are the uppers that staged workspaces name.
func (c *catalog) stagedUppers() map[uint64]bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	uppers := map[uint64]bool{}
	for _, w := range c.staged {
		uppers[w.Upper] = true
	}
	return uppers
}

// isStaged tells whether a change of a workspace is staged.
func (c *catalog) isStaged(workspace string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.staged[workspace] != nil
}
