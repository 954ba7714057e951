package sandbox

import (
	"errors"
	"fmt"

	snapfuse "snapfs/fs"
	"snapfs/internal/treefilter"
	"snapfs/sandbox/internal/errclass"
)

// classify puts an error of a package below into one of the classes of this package; context and system errors pass.
func classify(err error) error {
	err = errclass.Mark(err)
	if errclass.Missing(err) && errors.Is(err, treefilter.ErrTooMany) {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if errclass.Missing(err) && (errors.Is(err, snapfuse.ErrNoFUSE) || errors.Is(err, snapfuse.ErrNoTransport)) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}
