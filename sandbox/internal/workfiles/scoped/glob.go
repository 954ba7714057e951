package scoped

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

// validPattern refuses a pattern that is none, or that takes too long to match.
func validPattern(pattern string) error {
	if len(pattern) > maxPattern {
		return fmt.Errorf("%w: a pattern of %d bytes: at most %d", api.ErrInvalid, len(pattern), maxPattern)
	}
	if pattern == "" || !doublestar.ValidatePattern(pattern) || slices.Contains(strings.Split(pattern, "/"), "..") {
		return fmt.Errorf("%w: pattern %s", api.ErrInvalid, api.Quoted(pattern))
	}
	choices, here := 1, []int{}
	for _, c := range pattern { // those that are escaped count, too
		switch {
		case c == '{':
			here = append(here, 1)
		case c == ',' && len(here) > 0:
			here[len(here)-1]++
		case c == '}' && len(here) > 0:
			choices *= here[len(here)-1]
			here = here[:len(here)-1]
		}
		if choices > maxChoices {
			return fmt.Errorf("%w: pattern %s has more than %d choices", api.ErrInvalid, api.Quoted(pattern), maxChoices)
		}
	}
	return nil
}

// depth is how many names the paths have at most that match a pattern; 0 for any number.
func depth(pattern string) int {
	if strings.Contains(pattern, "**") || strings.Contains(pattern, "{") {
		return 0
	}
	return strings.Count(pattern, "/") + 1
}

// Glob calls fn for the paths that match a pattern. It enters no symbolic links below the directory.
func (r *Root) Glob(ctx context.Context, q api.GlobRequest, fn func(api.File) error) (api.SearchResult, error) {
	pattern := strings.TrimLeft(q.Pattern, "/")
	if err := validPattern(pattern); err != nil {
		return api.SearchResult{}, err
	}
	most, told := limit(q.Limit, globDefault, globMost), 0
	w, err := r.walk(q.WorkFileRequest, q.Hidden)
	if err != nil {
		return api.SearchResult{}, err
	}
	defer closing(w.dir)
	deep := depth(pattern)
	w.visit = func(at, _ string, _ uint8) (bool, error) {
		enter := deep == 0 || strings.Count(at, "/")+1 < deep
		if match, err := doublestar.Match(pattern, at); err != nil || !match {
			return enter, err
		}
		if told == most {
			w.cut = true
			return false, errEnough
		}
		fd, err := w.open(at, unix.O_PATH|unix.O_NOFOLLOW)
		if err != nil {
			if passed(err) {
				return false, nil
			}
			return false, Fault(at, err)
		}
		defer closing(fd)
		f, err := describe(fd, path.Join(shown(q.Path), at))
		if err != nil {
			return false, Fault(at, err)
		}
		told++
		return enter, fn(f)
	}
	err = w.run(ctx, "")
	if errors.Is(err, errEnough) {
		err = nil
	}
	return api.SearchResult{Truncated: w.cut, Files: int64(w.visited)}, Fault(q.Path, err)
}

// walk begins a walk in the directory that a request names.
func (r *Root) walk(q api.WorkFileRequest, hidden bool) (*walk, error) {
	if err := valid(q.Path); err != nil {
		return nil, err
	}
	flags := uint64(unix.O_PATH | unix.O_DIRECTORY)
	if q.NoFollow {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := r.open(q.Path, flags, 0)
	return &walk{dir: fd, hidden: hidden}, Fault(q.Path, err)
}
