package scoped

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// errEnough ends a walk.
var errEnough = errors.New("enough")

// walk visits what is below a directory, in the order of names. It has one descriptor, however deep it is, and looks
// each path up from there without following a link.
type walk struct {
	dir    int  // where it begins
	hidden bool // it visits directories named .git, too
	// visit is called with a path from dir, and what it is of as far as the directory tells. It tells whether a directory
	// is to be entered.
	visit func(path, name string, kind uint8) (enter bool, err error)

	visited int
	cut     bool // something was passed over because of a bound
}

type entry struct {
	name string
	kind uint8
}

// run visits what is in a directory, "" for the one where the walk begins.
func (w *walk) run(ctx context.Context, at string) error {
	list, err := w.list(at)
	if err != nil {
		if at != "" && passed(err) {
			return nil
		}
		return err
	}
	for _, e := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		if w.visited == maxVisited {
			w.cut = true
			return errEnough
		}
		w.visited++
		path := e.name
		if at != "" {
			path = at + "/" + e.name
		}
		if len(path) > maxPath {
			continue // no program can name it
		}
		if e.kind == unix.DT_UNKNOWN {
			e.kind = w.kind(path)
		}
		enter, err := w.visit(path, e.name, e.kind)
		if err != nil {
			return err
		}
		if !enter || e.kind != unix.DT_DIR || e.name == ".git" && !w.hidden {
			continue
		}
		if err := w.run(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

// open opens a path below where the walk begins.
func (w *walk) open(path string, flags uint64) (int, error) { return openIn(w.dir, path, flags, below) }

// list gives the names in a directory, sorted.
func (w *walk) list(at string) ([]entry, error) {
	fd, err := w.open(at, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer closing(fd)
	var all []entry
	err = names(fd, func(name string, kind uint8) error {
		if len(all) == maxNames {
			w.cut = true
			return errEnough
		}
		all = append(all, entry{name, kind})
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	slices.SortFunc(all, func(a, b entry) int {
		switch {
		case a.name < b.name:
			return -1
		case a.name > b.name:
			return 1
		}
		return 0
	})
	return all, nil
}

// kind finds out what the directory does not tell.
func (w *walk) kind(path string) uint8 {
	fd, err := w.open(path, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return unix.DT_UNKNOWN
	}
	defer closing(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return unix.DT_UNKNOWN
	}
	return uint8(st.Mode & unix.S_IFMT >> 12)
}
