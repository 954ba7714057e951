package layers

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// mostUnread is how many paths an Unreadable names.
const mostUnread = 5

// Unreadable is the error of an import that has read all that it may. Safe for concurrent use.
type Unreadable struct {
	Paths []string // the first, relative to the directory
	Count int      // of all
	Cause error    // of the first
}

// Error implements error.
func (u *Unreadable) Error() string {
	quoted := make([]string, len(u.Paths))
	for i, p := range u.Paths {
		quoted[i] = fmt.Sprintf("%q", p)
	}
	text := strings.Join(quoted, ", ")
	if n := u.Count - len(u.Paths); n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%s cannot be read: %v", text, u.Cause)
}

// Unwrap is for errors.Is.
func (u *Unreadable) Unwrap() error { return u.Cause }

// passOver has the import go on with what comes next when a name in dir, or with "" dir itself, may not be read, or was
// something else right then: the pass fails at its end.
func (t *sourceTree) passOver(dir *part, name string, err error) error {
	again := errors.Is(err, errAgain)
	if !again && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) && !errors.Is(err, errCovered) {
		return err
	}
	path := "."
	if name != "" {
		dir = dir.child(name, found{})
	}
	if dir.parent != nil {
		path = dir.path()[1:]
	}
	w := &t.s.walk
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if again {
		w.repeat = path
		return nil
	}
	u := &w.unread
	if u.Count++; u.Cause == nil {
		u.Cause = err
	}
	if len(u.Paths) < mostUnread {
		u.Paths = append(u.Paths, path)
	}
	return nil
}

// leave leaves a file that changes all the time for the next pass.
func (s *sourceStore) leave(o *part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &s.walk
	if w.unset == nil {
		w.unset = map[uint64]int{}
	}
	w.unset[o.ino]++
	w.againLocked(o.ino, w.pass)
	w.repeat = o.path()[1:]
}

// unsettled is the error of an import that was begun anew too often.
func (s *sourceStore) unsettled() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.walk.repeat == "" {
		return errUnsettled
	}
	return fmt.Errorf("%q: %w", s.walk.repeat, errUnsettled)
}

var errUnsettled = fmt.Errorf("what is in the directory changes all the time: %w", unix.EIO)
