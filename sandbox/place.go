package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/layers"
	"snapfs/sandbox/api"
)

// usePlace finds what a request for files names: a snapshot or a workspace, and a path in it.
func (h *Home) usePlace(ctx context.Context, a Access, ref, path, what string) (subject, string, error) {
	if path == "" {
		if r, p, ok := api.SplitPlace(ref); ok {
			ref, path = r, p
		}
	}
	if path != "" || api.IsRef(ref) {
		w, s, err := h.useObject(ctx, a, ref, what)
		return subject{w, s}, path, err
	}
	who, err := newAsker(ctx, a)
	if err != nil {
		return subject{}, "", err
	}
	// Each way to read it that names something.
	ways := [][2]string{{ref, ""}}
	for i := range ref {
		if ref[i] == ':' {
			ways = append(ways, [2]string{ref[:i], ref[i+1:]})
		}
	}
	type found struct {
		subject
		path string
	}
	var all []found
	var first, refusal error
	for _, way := range ways {
		w, s, err := h.findObject(who, nil, way[0])
		switch {
		case err == nil:
		case errors.Is(err, ErrRefused): // it counts only if nothing else is meant
			if refusal == nil {
				refusal = err
			}
			continue
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrInvalid):
			if first == nil {
				first = err
			}
			continue
		default:
			return subject{}, "", err
		}
		found := found{subject{w, s}, way[1]}
		if len(ways) > 2 || way[1] != "" && len(all) > 0 {
			if there, err := h.hasPath(ctx, found.subject, found.path); err != nil {
				return subject{}, "", err
			} else if !there {
				if len(all) == 0 {
					refusal, first = nil, fmt.Errorf("%w: %s has no path %s", ErrNotFound, way[0], api.Quoted(way[1]))
				}
				continue
			}
		}
		all = append(all, found)
	}
	switch len(all) {
	case 0:
		return subject{}, "", cmp.Or(refusal, first)
	case 1:
		return all[0].subject, all[0].path, h.auditObject(ctx, who, all[0].workspace, all[0].snapshot, what)
	}
	return subject{}, "", fmt.Errorf("%w: %s can be read in several ways: write a path with a slash, as %s:/ or %s:/%s",
		ErrConflict, api.Quoted(ref), ref, strings.SplitN(ref, ":", 2)[0], strings.SplitN(ref, ":", 2)[1])
}

// hasPath reports whether there is something at a path.
func (h *Home) hasPath(ctx context.Context, s subject, path string) (there bool, err error) {
	err = h.inTree(ctx, s, func(t *layers.Tree) error {
		_, _, err := lookUp(t, path)
		there = err == nil
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrRefused) {
			err = nil
		}
		return err
	})
	return there, err
}

// inTree runs fn on the tree of a snapshot or workspace.
func (h *Home) inTree(ctx context.Context, s subject, fn func(t *layers.Tree) error) error {
	open, err := h.openTree(ctx, s.workspace, s.snapshot, "")
	if err != nil {
		return err
	}
	defer open.close()
	t, done, err := layers.OpenTree(open.lowers)
	if err != nil {
		return classify(err)
	}
	defer done()
	return classify(fn(t))
}

// lookUp follows a path in a tree, symbolic links included, and gives it without them.
func lookUp(t *layers.Tree, path string) (f *layers.TreeFile, at string, err error) {
	todo := strings.Split(path, "/")
	var way []string
	for links := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			if len(way) == 0 {
				return nil, "", fmt.Errorf("%w: %s leads out of the tree", ErrRefused, api.Quoted(path))
			}
			way = way[:len(way)-1]
			continue
		}
		next := strings.Join(append(way[:len(way):len(way)], name), "/")
		if f, err = t.Lstat(next); err != nil {
			return nil, "", err
		}
		switch {
		case f == nil:
			return nil, "", fmt.Errorf("%w: no path %s in the tree", ErrNotFound, api.Quoted(next))
		case f.Mode&unix.S_IFMT != unix.S_IFLNK:
			way = append(way, name)
			continue
		}
		if links++; links > maxLinks {
			return nil, "", fmt.Errorf("%w: %s: %w", ErrInvalid, api.Quoted(path), unix.ELOOP)
		}
		target, err := f.Target()
		if err != nil {
			return nil, "", err
		}
		if strings.HasPrefix(target, "/") {
			way = nil
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	at = strings.Join(way, "/")
	f, err = t.Lstat(at)
	if err == nil && f == nil {
		err = fmt.Errorf("%w: no path %s in the tree", ErrNotFound, api.Quoted(path))
	}
	return f, at, err
}
