package subject

import "context"

// Store keeps the states of a history, which are numbered in order.
type Store interface {
	System
	// Store takes the next state; prev is the state before it, "" at first.
	Store(ctx context.Context, i int, prev, state string) error
	// Settle does what belongs to storing and is done once, at the end.
	Settle(ctx context.Context) error
	// Size is the allocated bytes of everything kept.
	Size(ctx context.Context) (int64, error)
	// Restore writes state i into dest, an empty directory.
	Restore(ctx context.Context, i int, dest string) error
	// Drop deletes the states from one to another, of which none older is left, and collects what they alone needed.
	Drop(ctx context.Context, from, to int) error
}

// Optimizer is a store that can pack what it keeps anew, with nobody waiting.
type Optimizer interface {
	Optimize(ctx context.Context) error
}

// Extractor is a store whose Restore goes through a mount, and that also restores without one.
type Extractor interface {
	Extract(ctx context.Context, i int, dest string) error
}
