package workfiles

import (
	"context"

	"snapfs/internal/fairshare"
	"snapfs/internal/lockorder"
)

// gates bound what is done for workspaces at a time: each may have so many, and as many as it leaves free, but one in
// any case. Safe for concurrent use.
type gates struct {
	pool *fairshare.Pool
	each int

	mu lockorder.Mutex[lockorder.WorkFileGates]
	of map[uint64]*gate // guarded by mu: by device
}

// gate is that of one workspace. Safe for concurrent use.
type gate struct {
	member *fairshare.Member
	slots  chan struct{}
	users  int // guarded by gates.mu
}

func newGates(all int64, each int) *gates {
	return &gates{pool: fairshare.New(all), each: each, of: map[uint64]*gate{}}
}

// join gives the gate of a workspace; leave it.
func (g *gates) join(device uint64) *gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	own := g.of[device]
	if own == nil {
		own = &gate{member: g.pool.Join(1), slots: make(chan struct{}, g.each)}
		g.of[device] = own
	}
	own.users++
	return own
}

func (g *gates) leave(device uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if own := g.of[device]; own != nil {
		if own.users--; own.users == 0 {
			delete(g.of, device)
		}
	}
}

// enter waits for a place; exit gives it back.
func (g *gate) enter(ctx context.Context) error {
	select {
	case g.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := g.member.Take(ctx, 1); err != nil {
		<-g.slots
		return err
	}
	return nil
}

func (g *gate) exit() {
	g.member.Give(1)
	<-g.slots
}
