package scoped

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

// event is one of inotify(7).
type event struct {
	wd     int32
	mask   uint32
	cookie uint32
	name   string
}

// parseEvent reads one event, and gives what follows it.
//
//	struct inotify_event: wd i32, mask u32, cookie u32, len u32, name padded with zeros
func parseEvent(in []byte) (e event, rest []byte) {
	e.wd = int32(binary.NativeEndian.Uint32(in))
	e.mask = binary.NativeEndian.Uint32(in[4:])
	e.cookie = binary.NativeEndian.Uint32(in[8:])
	end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(in[12:]))
	name, _, _ := strings.Cut(string(in[unix.SizeofInotifyEvent:end]), "\x00")
	e.name = name
	return e, in[end:]
}

// isTemp reports whether a name is that of a file that Put is about to publish.
func isTemp(name string) bool { return strings.HasPrefix(name, TempPrefix) }

// handle tells what an event means.
func (w *watch) handle(ctx context.Context, e event) error {
	at, known := w.dirs[e.wd]
	dir := e.mask&unix.IN_ISDIR != 0
	switch {
	case e.mask&unix.IN_Q_OVERFLOW != 0:
		return w.lost(ctx)
	case e.mask&unix.IN_UNMOUNT != 0:
		return fmt.Errorf("%w: the workspace was unmounted", api.ErrConflict)
	case e.mask&unix.IN_IGNORED != 0:
		delete(w.dirs, e.wd)
		if e.wd == w.base {
			return fmt.Errorf("%w: %s was removed", api.ErrNotFound, api.Quoted(w.at))
		}
		return nil
	case !known, e.mask&unix.IN_DELETE_SELF != 0, e.name == "", w.only != "" && !w.concerns(e):
		return nil
	}
	full := path.Join(at, e.name)
	if w.only != "" && e.name == w.only {
		full = w.at
	}
	switch {
	case e.mask&unix.IN_MOVED_FROM != 0:
		w.moves = append(w.moves, move{e.cookie, full, dir})
		return nil
	case e.mask&unix.IN_MOVED_TO != 0:
		return w.movedTo(ctx, e, full, dir)
	case isTemp(e.name):
		return nil
	case e.mask&unix.IN_CREATE != 0:
		return w.created(ctx, full, dir)
	case e.mask&unix.IN_DELETE != 0:
		return w.tell(api.FileDeleted, full, "", dir)
	}
	return w.tell(api.FileModified, full, "", dir)
}

// concerns reports whether an event is about the one name that is asked for.
func (w *watch) concerns(e event) bool {
	return e.name == w.only || isTemp(e.name) ||
		e.mask&unix.IN_MOVED_TO != 0 && slices.ContainsFunc(w.moves, func(m move) bool { return m.cookie == e.cookie })
}

// movedTo is the second half of a rename, or its only one.
func (w *watch) movedTo(ctx context.Context, e event, full string, dir bool) error {
	i := slices.IndexFunc(w.moves, func(m move) bool { return m.cookie == e.cookie })
	if i < 0 {
		return w.created(ctx, full, dir)
	}
	from := w.moves[i]
	w.moves = slices.Delete(w.moves, i, i+1)
	if isTemp(path.Base(from.path)) { // Put has replaced a file
		return w.tell(api.FileModified, full, "", false)
	}
	if dir {
		for wd, p := range w.dirs {
			if p == from.path || strings.HasPrefix(p, from.path+"/") {
				w.dirs[wd] = full + p[len(from.path):]
			}
		}
	}
	return w.tell(api.FileRenamed, full, from.path, dir)
}

// created tells of something new. A directory is watched, and all that is in it already is new, too.
func (w *watch) created(ctx context.Context, full string, dir bool) error {
	if w.fresh[full] {
		delete(w.fresh, full)
	} else if err := w.tell(api.FileCreated, full, "", dir); err != nil {
		return err
	}
	if !dir || !w.recursive {
		return nil
	}
	return w.enterPath(ctx, full, func(p string, isDir bool) error {
		if w.fresh[p] || isTemp(path.Base(p)) {
			return nil
		}
		w.fresh[p] = true
		return w.tell(api.FileCreated, p, "", isDir)
	})
}

// enterPath watches a directory and those below it.
func (w *watch) enterPath(ctx context.Context, at string, found func(path string, isDir bool) error) error {
	r, err := w.again()
	if err != nil {
		return err
	}
	defer r.Close()
	fd, err := r.open(at, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		if passed(err) { // it is gone
			return nil
		}
		return err
	}
	defer closing(fd)
	if len(w.dirs) >= maxWatches {
		return w.overflow()
	}
	if _, err := w.add(fd, at, watched); err != nil {
		if errors.Is(err, unix.ENOSPC) {
			return w.overflow()
		}
		return nil // it is gone, or not to be read
	}
	return w.enter(ctx, fd, at, found)
}

// lost tells that events are missing, and watches directories of which nothing was told.
func (w *watch) lost(ctx context.Context) error {
	w.moves = nil
	if err := w.tell(api.FileOverflow, w.at, "", true); err != nil || !w.recursive {
		return err
	}
	return w.enterPath(ctx, w.at, nil)
}
