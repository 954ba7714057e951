package cli

import (
	"errors"
	"fmt"

	"snapfs/sandbox/api"
)

// exitInterrupted is the only code without a class: the codes of classes are in package api, the same for all verbs.
// `run` exits with the code of its command instead.
const exitInterrupted = 130

// classError is an error of this package in a class of the API. Its text does not repeat the class.
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
func usagef(format string, args ...any) error { return failure(api.ErrInvalid, format, args...) }

// codeError is an error with its own exit code: that of a command under `run`, or what a starting daemon reported.
type codeError struct {
	error
	code int
}

func (c codeError) Unwrap() error { return c.error }

// exitCode maps an error to the exit code of the process.
func exitCode(err error) int {
	var own codeError
	var signal interrupted
	switch {
	case err == nil:
		return api.ExitDone
	case errors.As(err, &own):
		return own.code
	case errors.As(err, &signal):
		return exitInterrupted
	}
	return api.ClassOf(err).Exit
}

// errorKind is the class of an exit code, as --json prints it.
func errorKind(code int) string {
	if code == exitInterrupted {
		return "interrupted"
	}
	if code == api.ExitFailed { // of several classes
		return "failed"
	}
	for _, c := range api.Classes() {
		if c.Exit == code {
			return c.Word
		}
	}
	return "failed"
}

// exits is the annotation of a verb that lists its exit codes.
func exits(codes ...int) map[string]string { return map[string]string{"exits": exitHelp(codes...)} }

// exitHelp is the section of a verb's help that lists its exit codes.
func exitHelp(codes ...int) string {
	text := fmt.Sprintf("Exit codes:\n  %3d  done\n  %3d  failed\n", api.ExitDone, api.ExitFailed)
	for _, code := range append([]int{api.ExitInvalid}, codes...) {
		for _, c := range api.Classes() {
			if c.Exit == code {
				text += fmt.Sprintf("  %3d  %s\n", code, c.Meaning)
			}
		}
	}
	return text + fmt.Sprintf("  %3d  interrupted; the message says what remains of it", exitInterrupted)
}
