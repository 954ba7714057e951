package usage

import "fmt"

// Error is a mistake on the command line.
type Error struct{ err error }

func (u Error) Error() string { return u.err.Error() }

func (u Error) Unwrap() error { return u.err }

// Errorf makes an error of a mistake on the command line.
func Errorf(format string, args ...any) error { return Error{fmt.Errorf(format, args...)} }

// Wrap says that an error is a mistake on the command line.
func Wrap(err error) error { return Error{err} }
