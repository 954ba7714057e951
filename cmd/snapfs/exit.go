package main

import (
	"errors"
	"fmt"

	"snapfs/sandbox"
)

// Exit codes, the same for all verbs. `run` ends with the code of its command instead.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitRefused     = 5
	exitCorrupt     = 6
	exitUnavailable = 7
	exitInterrupted = 130
)

// classes are the error classes of the API in the order in which they are looked for, with the name that --json shows.
var classes = []struct {
	err     error
	code    int
	kind    string
	meaning string
}{
	{sandbox.ErrInvalid, exitUsage, "invalid", "usage: unknown verb or flag, malformed name, id or value"},
	{sandbox.ErrNotFound, exitNotFound, "not_found", "not found"},
	{sandbox.ErrConflict, exitConflict, "conflict", "conflict: wrong state, name taken, in use"},
	{sandbox.ErrRefused, exitRefused, "refused", "refused: it belongs to another session (see --allow-cross-session)"},
	{sandbox.ErrCorrupt, exitCorrupt, "corrupt", "corrupt data"},
	{sandbox.ErrUnavailable, exitUnavailable, "unavailable", "unavailable: no FUSE device, no daemon, no access to the home"},
}

// classError is an error of our own in a class of the API, in words that need not repeat the class.
type classError struct {
	error
	class error
}

func (c classError) Unwrap() error { return c.error }

// Is gives the error its class.
func (c classError) Is(target error) bool { return target == c.class }

func failure(class error, format string, args ...any) error {
	return classError{fmt.Errorf(format, args...), class}
}

// usagef is an error of the command line itself.
func usagef(format string, args ...any) error { return failure(sandbox.ErrInvalid, format, args...) }

// codeError is an error with a code of its own: what a command under `run` ended with, or what a starting daemon reported.
type codeError struct {
	error
	code int
}

func (c codeError) Unwrap() error { return c.error }

// exitCode maps an error to the code of the process.
func exitCode(err error) int {
	var own codeError
	var signal interrupted
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &own):
		return own.code
	case errors.As(err, &signal):
		return exitInterrupted
	}
	for _, c := range classes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return exitFailed
}

// errorKind is the class of an exit code as --json shows it.
func errorKind(code int) string {
	if code == exitInterrupted {
		return "interrupted"
	}
	for _, c := range classes {
		if c.code == code {
			return c.kind
		}
	}
	return "failed"
}

// exitHelp is the section of a verb's help that lists its codes.
func exitHelp(codes ...int) string {
	text := fmt.Sprintf("Exit codes:\n  %3d  done\n  %3d  failed\n", exitDone, exitFailed)
	for _, code := range append([]int{exitUsage}, codes...) {
		for _, c := range classes {
			if c.code == code {
				text += fmt.Sprintf("  %3d  %s\n", code, c.meaning)
			}
		}
	}
	return text + fmt.Sprintf("  %3d  interrupted; nothing was changed", exitInterrupted)
}
