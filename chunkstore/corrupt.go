// Package corrupt has the class of error that says that stored data is not what was written.
package chunkstore

import (
	"errors"
	"fmt"
)

// errCorrupt is the class; test with errors.Is.
var errCorrupt = errors.New("corrupt store")

// corruptf makes an error of the class, formatted as fmt.Errorf does; what it wraps is wrapped as well.
func corruptf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errCorrupt, fmt.Errorf(format, args...))
}
