package scoped

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

const (
	// watched is what is asked of inotify(7) about a directory.
	watched = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
		unix.IN_DELETE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK | unix.IN_MASK_ADD
	// pairWait is how long the second half of a rename is waited for.
	pairWait = 50 * time.Millisecond
)

// Watch calls fn for what happens in a directory, or to a file, until ctx ends. open gives the root for a short time: a
// descriptor would keep the file system from being unmounted. ErrConflict when that is, ErrNotFound when the directory
// is gone. Changes that come from elsewhere than through this mount are not noticed.
func Watch(
	ctx context.Context, open func() (*Root, error), q api.WatchFilesRequest,
	ready func() error, fn func(api.FileEvent) error,
) error {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("%w: too many watches: %w", api.ErrUnavailable, err)
	}
	w := &watch{
		open: open, recursive: q.Recursive, queue: os.NewFile(uintptr(fd), "inotify"), fn: fn,
		dirs: map[int32]string{}, fresh: map[string]bool{},
	}
	defer w.close()
	stop := context.AfterFunc(ctx, func() { _ = w.queue.Close() }) // ends a read
	defer stop()
	err = w.begin(ctx, q)
	if err == nil {
		err = ready()
	}
	for err == nil {
		err = w.next(ctx)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return Fault(q.Path, err)
}

// watch is one call of Watch. One goroutine uses it.
type watch struct {
	open      func() (*Root, error)
	recursive bool
	queue     *os.File // of inotify
	fn        func(api.FileEvent) error

	root int32            // the watch of the root of the tree
	base int32            // that of the directory that is watched
	at   string           // its path
	only string           // the one name in it that is asked for; "" for all
	dirs map[int32]string // paths of the directories that are watched, the root only if it is asked for

	moves []move          // names that were moved away, to where is not known yet
	fresh map[string]bool // what was told as created and may be told again by what is in the queue
	last  api.FileEvent   // that was told last
	full  bool            // that there are too many directories was told
}

// move is the first half of a rename.
type move struct {
	cookie uint32
	path   string
	dir    bool
}

// begin watches what a request names.
func (w *watch) begin(ctx context.Context, q api.WatchFilesRequest) error {
	r, err := w.open()
	if err != nil {
		return err
	}
	defer r.Close()
	if w.root, err = w.add(r.fd, "", unix.IN_DELETE_SELF|unix.IN_ONLYDIR|unix.IN_MASK_ADD); err != nil {
		return err
	}
	fd, err := r.look(q.Path, q.NoFollow)
	if err != nil {
		return err
	}
	defer func() { closing(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	w.at = shown(q.Path)
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		t, err := r.target(q.Path, q.NoFollow, false)
		if err != nil {
			return err
		}
		defer t.close()
		w.only, w.recursive = t.name, false
		w.base, err = w.add(t.dir, path.Dir(w.at), watched)
		return err
	}
	if w.base, err = w.add(fd, w.at, watched); err != nil || !w.recursive {
		return err
	}
	return w.enter(ctx, fd, w.at, nil)
}

// add watches a directory; with a path, as being there.
func (w *watch) add(dir int, at string, mask uint32) (wd int32, err error) {
	conn, err := w.queue.SyscallConn()
	if err != nil {
		return 0, err
	}
	var added int
	e := conn.Control(func(fd uintptr) { added, err = unix.InotifyAddWatch(int(fd), procFD(dir), mask) })
	if err = errors.Join(e, err); err != nil {
		return 0, err
	}
	if at != "" {
		w.dirs[int32(added)] = at
	}
	return int32(added), nil
}

// enter watches all directories below one, and calls found for all that is in them.
func (w *watch) enter(ctx context.Context, dir int, at string, found func(path string, isDir bool) error) error {
	in := &walk{dir: dir, hidden: true}
	in.visit = func(p, _ string, kind uint8) (bool, error) {
		full := path.Join(at, p)
		if kind == unix.DT_DIR {
			if err := w.addBelow(in, p, full); err != nil {
				return false, err
			}
		}
		if found == nil {
			return true, nil
		}
		return true, found(full, kind == unix.DT_DIR)
	}
	err := in.run(ctx, "")
	if in.cut {
		err = errors.Join(w.overflow(), err)
	}
	if errors.Is(err, errEnough) || passed(err) {
		return nil
	}
	return err
}

// addBelow watches a directory that a walk has come to, unless there are too many.
func (w *watch) addBelow(in *walk, p, full string) error {
	if len(w.dirs) >= maxWatches {
		return w.overflow()
	}
	fd, err := in.open(p, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		if passed(err) {
			return nil
		}
		return err
	}
	defer closing(fd)
	_, err = w.add(fd, full, watched)
	switch {
	case errors.Is(err, unix.ENOSPC):
		return w.overflow()
	case err != nil && passed(err):
		return nil
	}
	return err
}

// overflow tells, once, that there are too many directories.
func (w *watch) overflow() error {
	if w.full {
		return nil
	}
	w.full = true
	return w.tell(api.FileOverflow, w.at, "", true)
}

// again gives the root once more. ErrConflict if that is not the one that is watched.
func (w *watch) again() (*Root, error) {
	r, err := w.open()
	if err != nil {
		return nil, err
	}
	wd, err := w.add(r.fd, "", unix.IN_DELETE_SELF|unix.IN_ONLYDIR|unix.IN_MASK_ADD)
	if err == nil && wd != w.root {
		err = unix.ENOTCONN
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// next waits for events and tells them.
func (w *watch) next(ctx context.Context) error {
	deadline := time.Time{}
	if len(w.moves) > 0 || len(w.fresh) > 0 {
		deadline = time.Now().Add(pairWait)
	}
	if err := w.queue.SetReadDeadline(deadline); err != nil {
		return err
	}
	var room [16 << 10]byte
	n, err := w.queue.Read(room[:])
	if errors.Is(err, os.ErrDeadlineExceeded) { // the queue is empty
		clear(w.fresh)
		return w.movedAway()
	}
	if err != nil {
		if errors.Is(err, fs.ErrClosed) {
			return context.Canceled
		}
		return err
	}
	w.last = api.FileEvent{}
	for in := room[:n]; len(in) >= unix.SizeofInotifyEvent; {
		var e event
		e, in = parseEvent(in)
		if err := w.handle(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// movedAway tells of what was moved out of what is watched.
func (w *watch) movedAway() error {
	moves := w.moves
	w.moves = nil
	for _, m := range moves {
		if m.dir {
			w.forget(m.path)
		}
		if isTemp(path.Base(m.path)) {
			continue
		}
		if err := w.tell(api.FileDeleted, m.path, "", m.dir); err != nil {
			return err
		}
	}
	return nil
}

// forget ends the watches of a directory and of all below it.
func (w *watch) forget(at string) {
	for wd, p := range w.dirs {
		if p != at && !strings.HasPrefix(p, at+"/") {
			continue
		}
		delete(w.dirs, wd)
		if conn, err := w.queue.SyscallConn(); err == nil && wd != w.root {
			_ = conn.Control(func(fd uintptr) { _, _ = unix.InotifyRmWatch(int(fd), uint32(wd)) }) // it may be gone
		}
	}
}

// tell passes an event on, unless it is the same as the one before.
func (w *watch) tell(kind api.FileEventKind, at, old string, dir bool) error {
	e := api.FileEvent{
		Kind: kind, Path: at, RawPath: api.RawPath(at), OldPath: old, RawOldPath: api.RawPath(old), Dir: dir,
	}
	if kind == api.FileModified && w.last.Kind == kind && w.last.Path == at {
		return nil
	}
	w.last = e
	e.At = time.Now().UTC()
	return w.fn(e)
}

func (w *watch) close() { _ = w.queue.Close() } // nothing was written
