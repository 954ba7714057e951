package api

import (
	"context"
	"errors"
	"slices"
)

// Classes of error; test with errors.Is.
var (
	ErrInvalid     = errors.New("invalid")     // malformed name, id or option
	ErrNotFound    = errors.New("not found")   // no such object
	ErrConflict    = errors.New("conflict")    // wrong state, id taken, in use
	ErrRefused     = errors.New("refused")     // another session's
	ErrCorrupt     = errors.New("corrupt")     // damaged data, or a record that names what is missing
	ErrUnavailable = errors.New("unavailable") // no FUSE device, no daemon
)

// Class is how one class of error appears outside of Go.
type Class struct {
	Err     error
	Word    string // on the wire, and with --json
	Exit    int    // code of a process
	Status  int    // of an HTTP answer; 499 is what proxies say of a client that went away
	Meaning string // for manuals
}

// Codes of a process that no class has: all is well, and an error without a class.
const (
	ExitDone   = 0
	ExitFailed = 1
)

// Codes of a process by class.
const (
	ExitInvalid = iota + 2
	ExitNotFound
	ExitConflict
	ExitRefused
	ExitCorrupt
	ExitUnavailable
)

// Classes gives all classes, in the order in which ClassOf tries them.
func Classes() []Class { return slices.Clone(classes) }

var classes = []Class{
	{ErrInvalid, "invalid", ExitInvalid, 400, "usage: unknown verb or flag, malformed name, id or value"},
	{ErrNotFound, "not_found", ExitNotFound, 404, "not found"},
	{ErrConflict, "conflict", ExitConflict, 409, "conflict: wrong state, name taken, in use"},
	{ErrRefused, "refused", ExitRefused, 403, "refused: it belongs to another session (see --allow-cross-session)"},
	{ErrCorrupt, "corrupt", ExitCorrupt, 500, "corrupt data"},
	{
		ErrUnavailable, "unavailable", ExitUnavailable, 503,
		"unavailable: no FUSE device, no daemon, no access to the home",
	},
	{context.Canceled, "canceled", ExitFailed, 499, "canceled"},
	{context.DeadlineExceeded, "deadline", ExitFailed, 504, "not done in time"},
}

// failed is the class of errors that are in none.
var failed = Class{Word: "failed", Exit: ExitFailed, Status: 500, Meaning: "failed"}

// ClassOf gives the class of an error; one in no class is "failed".
func ClassOf(err error) Class {
	for _, c := range classes {
		if errors.Is(err, c.Err) {
			return c
		}
	}
	return failed
}
