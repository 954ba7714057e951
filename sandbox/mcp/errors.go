package mcp

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"snapfs/sandbox/api"
)

// told is an error in words that a model can act on, which are sent as they are.
type told struct {
	text string
	err  error // class, or nil
}

func (t told) Error() string { return t.text }

func (t told) Unwrap() error { return t.err }

// tell words an error of a class.
func tell(class error, format string, args ...any) error {
	return told{fmt.Sprintf(format, args...), class}
}

// words gives the error that a model reads. It names no path of the host, and nothing of other sessions.
func (c *call) words(err error) error {
	if err == nil {
		return nil
	}
	if t := (told{}); errors.As(err, &t) {
		return t
	}
	text := c.scrub(err.Error())
	switch {
	case errors.Is(err, context.Canceled):
		return told{"canceled", err}
	case errors.Is(err, context.DeadlineExceeded):
		return told{"not done in time: ask for less, or try again", err}
	case errors.Is(err, api.ErrRefused) && strings.Contains(text, "session"):
		return told{"not found in this session", api.ErrNotFound}
	case errors.Is(err, api.ErrConflict) && strings.Contains(text, "another session"):
		return told{"conflict: the name is taken: choose another one", err}
	case errors.Is(err, api.ErrUnavailable):
		return told{text + "; try again in some seconds", err}
	case errors.Is(err, api.ErrCorrupt):
		return told{text + "; data of the store is damaged, which 'snapfs check' tells more of: tell the user", err}
	}
	return told{text, err}
}

// hostPath is an absolute path in a message.
var hostPath = regexp.MustCompile(`/[^\s"':;,()]+`)

// scrub takes paths out of a message that the caller has not named.
func (c *call) scrub(text string) string {
	asked := string(c.request.Params.Arguments)
	return hostPath.ReplaceAllStringFunc(text, func(found string) string {
		if inner := strings.Trim(path.Clean(found), "/"); inner != "" && strings.Contains(asked, inner) {
			return found
		}
		return "(a path of the server)"
	})
}

// about words an error of a call about a file: name is its path, and what is in its place is described.
func about(err error, name string) error {
	name = display(name)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, api.ErrNotFound):
		return tell(api.ErrNotFound, "there is no %s in the workspace; workspace_ls and workspace_glob show what is there", name)
	case errors.Is(err, api.ErrRefused):
		return tell(api.ErrRefused, "%s is refused: it leads out of the workspace, or to something that is mounted in it", name)
	}
	return err
}

// display is a path as messages have it.
func display(name string) string { return path.Join("/", name) }
