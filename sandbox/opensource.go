package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/layerstore"
	"snapfs/sandbox/internal/peer"
)

// A directory that is being imported may come to lie in a mount whose server does not answer. Only what needs it fails
// then: nobody waits for ever, least of all the start of the daemon.
const (
	sourceWait  = 3 * time.Second // for a directory to answer
	mostSilent  = 4               // directories of one user that are waited for at a time, though they do not answer
	silentRetry = "it is tried again when it is needed"
)

// silent counts the directories that have not answered yet, by user.
type silent map[int64]int

// silentKey is the user whose rights a source is looked at with.
func silentKey(u *peer.User) int64 {
	if u == nil {
		return -1
	}
	return int64(u.UID)
}

// openSource opens a layer in state Importing. ErrUnavailable: its directory does not answer.
func (h *Home) openSource(ctx context.Context, r *catalog.Layer) (*layers.Lower, error) {
	var low *layers.Lower
	err := h.answered(ctx, r.Source, func() (err error) {
		low, err = h.openSourceNow(r)
		return err
	}, func() {
		_ = low.Close() // nobody waits for it any more
	})
	if err != nil {
		return nil, err
	}
	return low, nil
}

// answered runs fn, which looks at a source, for as long as that may take. If it takes longer, late is called when fn has
// returned without an error.
func (h *Home) answered(ctx context.Context, s *catalog.Source, fn func() error, late func()) error {
	errSilent := fmt.Errorf("%w: %s, which is being imported, does not answer: %s", ErrUnavailable, api.Quoted(s.Path), silentRetry)
	if h.manySilent(s.By) {
		return errSilent
	}
	return h.answeredWithin(ctx, sourceWait, s.By, errSilent, fn, late)
}

// manySilent reports whether nothing more is to be waited for that a user has named.
func (h *Home) manySilent(by *peer.User) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.silent[silentKey(by)] >= mostSilent
}

// answeredWithin is answered for so long, and with this error after that; late may be nil.
func (h *Home) answeredWithin(
	ctx context.Context, wait time.Duration, by *peer.User, errSilent error, fn func() error, late func(),
) error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var err error
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = errSilent
	}
	user := silentKey(by)
	h.mu.Lock()
	h.silent[user]++
	h.mu.Unlock()
	go func() {
		if err := <-done; err == nil && late != nil {
			late()
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.silent[user]--; h.silent[user] == 0 {
			delete(h.silent, user)
		}
	}()
	return err
}

// openSourceNow opens a layer in state Importing, however long that takes.
func (h *Home) openSourceNow(r *catalog.Layer) (*layers.Lower, error) {
	s := *r.Source
	err := h.sourceIsThere(&s)
	var absent *layerstore.Absent
	if err != nil && !errors.As(err, &absent) {
		return nil, err
	}
	var threads *peer.Threads
	if s.By != nil {
		threads = s.By.Threads()
	}
	// A file that is being read when the image comes is read to its end from the copy.
	release := h.uppers.Hold(r.Upper)
	closed := func() {
		threads.Close()
		release()
	}
	low, err := layers.OpenSource(r.ID, s.Path, layers.SourceOptions{
		Copies: h.uppers.Path(r.Upper), Do: doBy(threads), Closed: closed, Absent: err,
		Changed: func(path string) { h.sources.note(r.ID, path) },
		Rough: func(path string) {
			h.sources.note(r.ID, path+" (while it was read: parts of it may be older than others)")
		},
	})
	if err != nil {
		closed()
		return nil, fmt.Errorf("%w; what was read of it is in %s, and what was changed in the workspace in the directories "+
			"beside that", classify(userError(s.By, err)), h.uppers.Path(r.Upper))
	}
	return low, nil
}

// reopenSource has a layer go on whose directory was not there when it was opened. *layerstore.Absent: it still is not.
func (h *Home) reopenSource(ctx context.Context, r *catalog.Layer, low *layers.Lower) error {
	if !low.SourceAbsent() {
		return nil
	}
	s := *r.Source
	return h.answered(ctx, &s, func() error {
		if err := h.sourceIsThere(&s); err != nil {
			return err
		}
		return userError(s.By, low.ReopenSource())
	}, func() {})
}

// sourceIsThere looks whether the directory of a source is there. *layerstore.Absent: it is not, or is another one.
func (h *Home) sourceIsThere(s *catalog.Source) error {
	id := s.ID
	err := h.identify(s)
	if err == nil && s.ID != id {
		err = fmt.Errorf("%w: %s is another directory than the one that is being imported: put that back, or destroy "+
			"what was made from it", ErrConflict, s.Path)
	}
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict) {
		return &layerstore.Absent{Err: err}
	}
	return err
}

// identify finds out which directory is at the path of a source.
func (h *Home) identify(s *catalog.Source) error {
	err := s.By.Do(func() error {
		const how = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
		var sx unix.Statx_t
		err := unix.Statx(unix.AT_FDCWD, s.Path, how, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &sx)
		if err == nil {
			s.ID = fmt.Sprintf("%d %d.%09d", sx.Ino, sx.Btime.Sec, sx.Btime.Nsec)
		}
		return err
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		err = fmt.Errorf("%w: %s, which is being imported, is not there any more: put it back, or destroy what was made "+
			"from it", ErrNotFound, s.Path)
	}
	return userError(s.By, err)
}
