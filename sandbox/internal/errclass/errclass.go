// Package errclass puts errors of the store and of images into the classes of package api.
package errclass

import (
	"errors"
	"fmt"
	"slices"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
	"snapfs/squashfs"
)

// classes are those of package api, without the ends of contexts.
var classes = []error{
	api.ErrInvalid, api.ErrNotFound, api.ErrConflict, api.ErrRefused, api.ErrCorrupt, api.ErrUnavailable,
}

// Missing reports whether an error is in no class, as those of contexts and of the system are.
func Missing(err error) bool {
	return err != nil && !slices.ContainsFunc(classes, func(class error) bool { return errors.Is(err, class) })
}

// Mark wraps an error of chunkstore or squashfs with its class. All others pass unchanged.
func Mark(err error) error {
	switch {
	case !Missing(err):
		return err
	case errors.Is(err, chunkstore.ErrCorrupt), errors.Is(err, squashfs.ErrCorrupt):
		return fmt.Errorf("%w: %w", api.ErrCorrupt, err)
	case errors.Is(err, chunkstore.ErrNotFound):
		return fmt.Errorf("%w: a record names what is gone: %w", api.ErrCorrupt, err)
	case errors.Is(err, chunkstore.ErrVersion), errors.Is(err, squashfs.ErrLimit):
		return fmt.Errorf("%w: %w", api.ErrInvalid, err)
	case errors.Is(err, chunkstore.ErrLocked):
		return fmt.Errorf("%w: %w", api.ErrConflict, err)
	}
	return err
}
