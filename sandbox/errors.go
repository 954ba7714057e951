package sandbox

import (
	"errors"
	"fmt"

	"snapfs/chunkstore"
	snapfuse "snapfs/fs"
	"snapfs/squashfs"
)

// classify puts an error of a package below into one of the classes of this package; context and system errors pass.
func classify(err error) error {
	switch {
	case err == nil, errors.Is(err, ErrInvalid), errors.Is(err, ErrNotFound), errors.Is(err, ErrConflict),
		errors.Is(err, ErrRefused), errors.Is(err, ErrCorrupt), errors.Is(err, ErrUnavailable):
		return err
	case errors.Is(err, chunkstore.ErrCorrupt), errors.Is(err, squashfs.ErrCorrupt):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	case errors.Is(err, chunkstore.ErrNotFound):
		return fmt.Errorf("%w: a record names what is gone: %w", ErrCorrupt, err)
	case errors.Is(err, chunkstore.ErrVersion), errors.Is(err, squashfs.ErrLimit):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case errors.Is(err, chunkstore.ErrLocked):
		return fmt.Errorf("%w: %w", ErrConflict, err)
	case errors.Is(err, snapfuse.ErrNoFUSE), errors.Is(err, snapfuse.ErrNoTransport):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}
