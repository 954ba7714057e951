package chunkstore

import (
	"errors"
	"fmt"

	"snapfs/chunkstore/internal/corrupt"
)

// Classes of error; test with errors.Is.
var (
	ErrCorrupt  = corrupt.Err                                    // data on disk is not what was written
	ErrNotFound = errors.New("not in the store")                 // no such manifest or value
	ErrLocked   = errors.New("store is held by another process") // one process owns a store
	ErrVersion  = errors.New("store of an unknown kind or version")
	ErrClosed   = errors.New("store is closed")
	ErrReadOnly = errors.New("store is open for reading only")
	ErrTooMuch  = errors.New("more than may be stored of it") // see IngestOptions.Most

	// ErrUnwritable: a transaction failed in such a way that it is unknown whether the disk has it. Nothing is written
	// until the store is opened again.
	ErrUnwritable = errors.New("index is not writable any more")

	// ErrIndex is of class ErrCorrupt: the index is damaged. RebuildIndex repairs it.
	ErrIndex = fmt.Errorf("%w: the index is damaged", ErrCorrupt)

	// ErrFormat is of class ErrCorrupt: the file FORMAT is damaged. RebuildIndex writes it anew.
	ErrFormat = fmt.Errorf("%w: the file FORMAT is damaged", ErrCorrupt)
)

// LockedError says who holds a store; its class is ErrLocked.
type LockedError struct {
	Dir string
	PID int // 0 if unknown
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s: %v", e.Dir, ErrLocked)
	}
	return fmt.Sprintf("%s: %v (pid %d)", e.Dir, ErrLocked, e.PID)
}

// Unwrap gives the class.
func (e *LockedError) Unwrap() error { return ErrLocked }

// DamageError is a failed read of stored data, with the manifest that was read; its class is ErrCorrupt, or that of the
// failed read.
type DamageError struct {
	Manifest ID
	Off      int64 // in the manifest's stream
	Err      error
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("manifest %d at byte %d: %v", e.Manifest, e.Off, e.Err)
}

// Unwrap gives the cause.
func (e *DamageError) Unwrap() error { return e.Err }
