package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/errclass"
)

// maxPositions bounds the positions of a session.
const maxPositions = 1000

// Position is where an agent of a session works; see package api.
type Position struct {
	Session string `json:"session"`
	api.Position
}

// key is the key of a position's record: no session has a slash in its name.
func (p *Position) key() string { return p.Session + "/" + p.Name }

// Position gives a position, or nil.
func (c *Catalog) Position(ctx context.Context, session, name string) (*Position, error) {
	p := &Position{Session: session, Position: api.Position{Name: name}}
	err := c.store.View(ctx, func(tx *chunkstore.Tx) error {
		value, err := tx.Get(bucketPositions, p.key())
		if err == nil {
			p, err = decodePosition(p.key(), value)
		}
		return err
	})
	if errors.Is(err, chunkstore.ErrNotFound) {
		return nil, nil
	}
	return p, errclass.Mark(err)
}

// SetPosition makes a position durable. A session that has too many loses its oldest.
func (c *Catalog) SetPosition(ctx context.Context, p *Position) error {
	all, err := c.positions(ctx, p.Session)
	if err != nil {
		return err
	}
	_, err = c.Update(ctx, true, func(ch *Change) error {
		ch.PutPositions = append(ch.PutPositions, p)
		ch.DelPositions = append(ch.DelPositions, surplus(all, p)...)
		return nil
	})
	return err
}

// surplus are the positions of a session that give way to another one.
func surplus(all []*Position, next *Position) (gone []*Position) {
	kept := all[:0:0]
	for _, p := range all {
		if p.Name != next.Name {
			kept = append(kept, p)
		}
	}
	for len(kept) >= maxPositions {
		oldest := 0
		for i, p := range kept {
			if p.UpdatedAt.Before(kept[oldest].UpdatedAt) {
				oldest = i
			}
		}
		gone = append(gone, kept[oldest])
		kept = append(kept[:oldest], kept[oldest+1:]...)
	}
	return gone
}

// PositionsIn gives the positions of a session that are in a workspace.
func (c *Catalog) PositionsIn(ctx context.Context, session, workspace string) (in []*Position, err error) {
	all, err := c.positions(ctx, session)
	for _, p := range all {
		if p.Workspace == workspace {
			in = append(in, p)
		}
	}
	return in, err
}

// positions gives those of a session.
func (c *Catalog) positions(ctx context.Context, session string) (all []*Position, err error) {
	err = c.store.View(ctx, func(tx *chunkstore.Tx) error {
		all = nil
		return tx.Scan(bucketPositions, session+"/", func(key string, value []byte) (bool, error) {
			if !strings.HasPrefix(key, session+"/") {
				return false, nil
			}
			p, err := decodePosition(key, value)
			all = append(all, p)
			return err == nil, err
		})
	})
	return all, errclass.Mark(err)
}

func decodePosition(key string, value []byte) (*Position, error) {
	p := new(Position)
	if err := json.Unmarshal(value, p); err != nil {
		return nil, fmt.Errorf("%w: record %s/%s: %w", api.ErrCorrupt, bucketPositions, api.Quoted(key), err)
	}
	return p, nil
}
