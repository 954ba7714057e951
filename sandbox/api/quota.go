package api

import "fmt"

// Quota bounds what a workspace takes of the disk of its home: its upper, and what its snapshots keep that nothing else
// needs. At a limit, programs get ENOSPC. 0 is no limit. A limit below what is taken lets nothing grow.
type Quota struct {
	Size   int64 `json:"size,omitempty"`   // bytes that the host has allocated, and of the store
	Inodes int64 `json:"inodes,omitempty"` // files, directories and all others, however many names they have
}

// None reports whether there is no limit.
func (q Quota) None() bool { return q == Quota{} }

// Valid says what is wrong with limits; ErrInvalid.
func (q Quota) Valid() error {
	if q.Size < 0 || q.Inodes < 0 {
		return fmt.Errorf("%w: size %d, inodes %d: a limit is not negative", ErrInvalid, q.Size, q.Inodes)
	}
	return nil
}

// QuotaState is the quota of a workspace, and what counts against it.
type QuotaState struct {
	Quota
	Used       int64 `json:"used"`
	UsedInodes int64 `json:"used_inodes"`
	// Counting says that what is used is being counted: after a crash, or since there is a limit. Used is not exact then.
	Counting bool `json:"counting,omitempty"`
}

// QuotaRequest changes the limits of a workspace, mounted or not; nil leaves a limit as it is, 0 takes it away.
type QuotaRequest struct {
	Access
	Workspace string `json:"workspace"`
	Size      *int64 `json:"size,omitempty"`
	Inodes    *int64 `json:"inodes,omitempty"`
}
