package corrupt

import (
	"errors"
	"fmt"
)

// Err is the class; test with errors.Is.
var Err = errors.New("corrupt store")

// Errorf makes an error of the class, formatted as fmt.Errorf does; what it wraps is wrapped as well.
func Errorf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", Err, fmt.Errorf(format, args...))
}
