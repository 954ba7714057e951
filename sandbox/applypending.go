package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/dirapply"
	"snapfs/sandbox/internal/peer"
)

// An apply to a directory whose journal is there, and is not under way, was interrupted. A start goes on with it,
// and so does whoever applies something to the directory. What it needs can be deleted by nobody until then; what cannot
// be gone on with is reported by Check, and given up by ApplyRequest.Drop.

// isApplying reports whether an apply to a directory needs a snapshot.
func (h *Home) isApplying(s *catalog.Snapshot) bool {
	_, ok := h.applying.Load(s.ID)
	return ok
}

// notApplying refuses to delete a snapshot that an apply to a directory needs.
func (h *Home) notApplying(s *catalog.Snapshot) error {
	dir, ok := h.applying.Load(s.ID)
	if !ok {
		return nil
	}
	return fmt.Errorf("%w: snapshot %s is needed by an apply to %v that is not complete: apply something there, which "+
		"completes it; 'snapfs check' says why that cannot be, and how it is given up", ErrConflict, s.ID, dir)
}

// unpin lets snapshots be deleted.
func (h *Home) unpin(ids ...string) {
	for _, id := range ids {
		h.applying.Delete(id)
	}
}

// pinApplied keeps what interrupted applies need, and gives their ids.
func (h *Home) pinApplied() []string {
	ids, err := h.journalIDs()
	if err != nil {
		h.log.Warn("applies to directories that were interrupted", "error", err)
	}
	for _, id := range ids {
		j, err := h.readJournal(id)
		if j == nil {
			h.log.Warn("an apply to a directory stays interrupted", "error", err)
			continue
		}
		for _, s := range []string{j.Before, j.After} {
			h.applying.Store(s, j.Directory)
		}
	}
	return ids
}

// journalIDs lists the applies that have a journal.
func (h *Home) journalIDs() (ids []string, err error) {
	entries, err := os.ReadDir(filepath.Join(h.dir, applyingDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), ".json"); ok { // others were not completely written
			ids = append(ids, id)
		}
	}
	return ids, err
}

// readJournal reads the journal of an apply; nil if there is none. With an error it has what could be read.
func (h *Home) readJournal(id string) (*applyJournal, error) {
	path := h.journalPath(id)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	j := &applyJournal{}
	if err == nil {
		err = json.Unmarshal(text, j)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("%w: journal %s of an apply to a directory cannot be read: %w", ErrCorrupt, path, err)
	case j.Version != journalVersion:
		err = fmt.Errorf("%w: journal %s of an apply to %s has version %d: use a newer snapfs", ErrCorrupt, path, j.Directory,
			j.Version)
	case j.After != id:
		err = fmt.Errorf("%w: journal %s of an apply to %s is of %s", ErrCorrupt, path, j.Directory, j.After)
	}
	if err != nil { // its snapshots are known all the same
		j.After, j.Before = id, ""
		if s := h.catalog.Snapshot(id); s != nil {
			j.Before, j.Session = s.Parent, s.Session
		}
		if j.Directory == "" {
			j.Directory = "a directory"
		}
	}
	return j, err
}

// lockJournal keeps others from going on with an apply.
func (h *Home) lockJournal(ctx context.Context, id string) (unlock func(), err error) {
	return h.ops.Lock(ctx, "apply "+id) // no name of a workspace
}

// resumeIn brings what was interrupted in a directory to an end; dry, it refuses to. The caller holds the directory's
// lock.
func (h *Home) resumeIn(ctx context.Context, dir string, dry bool) error {
	ids, err := h.journalIDs()
	if len(ids) == 0 || err != nil {
		return err
	}
	at, err := directoryID(ctx, dir)
	if err != nil {
		return dirError(ctx, err)
	}
	for _, id := range ids {
		j, err := h.readJournal(id)
		if j == nil || j.Directory != dir && (j.Inode == 0 || !j.is(at, false)) {
			if err != nil {
				h.log.Warn("an apply to a directory stays interrupted", "error", err)
			}
			continue
		}
		if err := h.resume(ctx, id, dir, dry); err != nil {
			return err
		}
	}
	return nil
}

// resume brings an apply to an end, in the directory where it is now; "" is where it was.
func (h *Home) resume(ctx context.Context, id, dir string, dry bool) error {
	unlock, err := h.lockJournal(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	j, err := h.readJournal(id) // now nobody else goes on with it
	if j == nil {
		return err
	}
	if dir != "" {
		j.Directory = dir
	}
	if dry && err == nil {
		return fmt.Errorf("%w: apply %s to %s was interrupted, and a dry run changes nothing: apply without one, which "+
			"completes that first", ErrConflict, id, dir)
	}
	if err == nil {
		err = h.resumeOne(ctx, j)
	}
	if err == nil {
		return nil
	}
	h.stuck.Store(id, err.Error())
	return fmt.Errorf("apply %s to %s was interrupted, and cannot be brought to an end: %w; if that cannot be mended, "+
		"'snapfs apply --drop %s' (in Go: Drop) gives it up and says what it leaves", id, j.Directory, err, id)
}

// resumeOne goes on with one apply.
func (h *Home) resumeOne(ctx context.Context, j *applyJournal) error {
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	for point, ws := range h.mountpoints(mounts) {
		if below(point, j.Directory) || below(j.Directory, point) {
			return fmt.Errorf("%w: workspace %s is mounted at %s: unmount it first", ErrConflict, ws, point)
		}
	}
	if _, err := j.open(ctx, h); err != nil {
		return err
	}
	defer j.close()
	if j.By != nil {
		ctx = peer.With(ctx, j.By)
	}
	threads := userThreads(ctx)
	defer threads.Close()
	root, err := dirapply.Open(j.Directory, doBy(threads))
	if err != nil {
		return dirError(ctx, err)
	}
	defer func() { _ = root.Close() }() // nothing is written by it
	if at, err := rootID(ctx, root, j.Directory); err != nil || !j.is(at, true) {
		return errors.Join(err, fmt.Errorf("%w: another directory is at %s now: apply to the one that was there, where it is "+
			"now, or put it back", ErrConflict, j.Directory))
	}
	got, err := root.Run(ctx, j.run(h, true))
	if err == nil && !j.Back {
		h.log.Info("an interrupted apply was completed", "directory", j.Directory)
		return j.finish(ctx, h, len(got.Skips) > 0)
	}
	if err != nil && !j.Back && ctx.Err() == nil {
		h.log.Warn("an interrupted apply is taken back", "directory", j.Directory, "error", err)
		j.Back = true
		got, err = root.Run(ctx, j.run(h, true))
	}
	if err != nil {
		return dirError(ctx, err)
	}
	what := "the interrupted apply to " + j.Directory + " was taken back"
	if len(got.Left) > 0 {
		h.log.Warn("changed meanwhile, and left as it is", "directory", j.Directory, "paths", got.Left, "before", j.Before)
		what += "; as it was changed meanwhile, this was left as it is: " + few(got.Left)
	}
	if len(got.Skips) > 0 {
		what += "; this could not be set again: " + fewSkips(got.Skips)
	}
	return errors.Join(j.tell(context.WithoutCancel(ctx), h, what), j.remove(h))
}

// rootID gives that of an open directory.
func rootID(ctx context.Context, root *dirapply.Root, path string) (dirID, error) {
	dev, ino, err := root.ID()
	if err != nil {
		return dirID{}, err
	}
	id, err := directoryID(ctx, path)
	if err == nil && (id.Device != dev || id.Inode != ino) {
		err = fmt.Errorf("%w: %s was just replaced", ErrConflict, path)
	}
	return id, err
}

// tell records an event of the apply.
func (j *applyJournal) tell(ctx context.Context, h *Home, what string) error {
	return h.catalog.Put(ctx, true, func(ch *catalog.Change) error {
		workspace := ""
		if s := h.catalog.Snapshot(j.After); s != nil {
			workspace = s.Workspace
		}
		ch.Events = append(ch.Events, h.event(EventApplied, workspace, j.Session, j.After, what))
		return nil
	})
}

// resumeAllApplied is what a start does about applies that a crash has interrupted. Where the directory's file system
// does not answer, the start does not wait for long.
func (h *Home) resumeAllApplied(ids []string) {
	if len(ids) == 0 {
		return
	}
	done := make(chan struct{})
	h.work.Go(func() {
		defer close(done)
		for _, id := range ids {
			if err := h.resume(h.ctx, id, "", false); err != nil {
				h.log.Warn("an apply to a directory stays interrupted", "error", err)
			}
		}
	})
	select {
	case <-done:
	case <-time.After(hostWait):
		h.log.Warn("an apply that was interrupted is still being completed")
	}
}

// applications reports the applies to directories that were interrupted and are not under way.
func (c *checker) applications(_ context.Context, _ CheckRequest) error {
	ids, err := c.h.journalIDs()
	for _, id := range ids {
		unlock, ok := c.h.ops.TryLock("apply " + id)
		if !ok {
			continue // it is under way
		}
		j, err := c.h.readJournal(id)
		unlock()
		if j == nil {
			continue
		}
		why := "apply something there, which completes it"
		if err != nil {
			why = err.Error()
		} else if stuck, ok := c.h.stuck.Load(id); ok {
			why = fmt.Sprint(stuck)
		}
		var needed []string
		for _, s := range []string{j.Before, j.After} {
			if c.h.catalog.Snapshot(s) != nil {
				needed = append(needed, s)
			}
		}
		c.report("apply "+id+" to "+j.Directory, "it was interrupted: "+why+"; 'snapfs apply --drop "+id+"' gives it up",
			needed)
	}
	return err
}

// drop gives an interrupted apply up.
func (h *Home) drop(ctx context.Context, r ApplyRequest) (ApplyResult, error) {
	res := ApplyResult{Changes: []ApplyChange{}, Conflicts: []ApplyConflict{}}
	if r.From+r.To+r.Base+r.Conflicts != "" || r.Undo || r.DryRun || r.Serializable {
		return res, fmt.Errorf("%w: to drop an apply takes its id and nothing else", ErrInvalid)
	}
	who, err := newAsker(ctx, r.Access)
	if err != nil {
		return res, err
	}
	unlock, err := h.lockJournal(ctx, r.Drop)
	if err != nil {
		return res, err
	}
	defer unlock()
	none := fmt.Errorf("%w: no apply %s to a directory was interrupted; 'snapfs check' lists those that were", ErrNotFound,
		api.Quoted(r.Drop))
	if api.CompleteID(r.Drop) != r.Drop {
		return res, none
	}
	j, unread := h.readJournal(r.Drop)
	if j == nil || !who.may(j.Session) {
		return res, errors.Join(none, unread)
	}
	res.Directory, res.Before, res.After = j.Directory, j.Before, j.After
	if res.Left, err = j.left(ctx, h); err != nil {
		return res, err
	}
	workspace := ""
	if s := h.catalog.Snapshot(j.After); s != nil {
		workspace = s.Workspace
	}
	if err := h.audit(ctx, who.session, j.Session, workspace, j.After, "drop an apply"); err != nil {
		return res, err
	}
	if err := j.tell(ctx, h, "the interrupted apply to "+j.Directory+" was given up"); err != nil {
		return res, err
	}
	return res, j.remove(h)
}

// left says what an apply that is given up leaves on its way from one place to another.
func (j *applyJournal) left(ctx context.Context, h *Home) (all []ApplyLeft, err error) {
	stage := dirapply.StageName(j.After)
	if at, err := directoryID(ctx, j.Directory); err != nil || j.Inode == 0 || !j.is(at, true) {
		why := "the directory is not at " + j.Directory + ": where it is now, this may be in it, and hold files of yours"
		return []ApplyLeft{{Path: stage, Detail: why}}, nil
	}
	var entries []os.DirEntry
	err = asUser(ctx, func() (err error) {
		path := filepath.Join(j.Directory, stage)
		err = os.Remove(path)
		if err == nil || errors.Is(err, fs.ErrNotExist) { // nothing is in it
			return nil
		}
		entries, err = os.ReadDir(path)
		return err
	})
	if err != nil {
		return nil, classify(err)
	}
	for _, e := range entries {
		path := filepath.Join(stage, e.Name())
		left := ApplyLeft{Path: path, RawPath: api.RawPath(path), Detail: "unknown"}
		n, err := strconv.Atoi(e.Name()[1:])
		if err == nil && n >= 0 && n < len(j.Steps) {
			old, now := api.Quoted(string(j.Steps[n].Old)), api.Quoted(string(j.Steps[n].New))
			switch e.Name()[0] {
			case 'm':
				left.Detail = "was " + old + ", and was to become " + now
			case 'x':
				left.Detail = "was " + old
			case 'n':
				left.Detail = "what was to be at " + now + ", or was there before"
			}
		}
		all = append(all, left)
	}
	return all, nil
}
