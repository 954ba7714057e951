package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"snapfs/internal/hosttree"
	"snapfs/layers"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/dirapply"
	"snapfs/sandbox/internal/peer"
	"snapfs/sandbox/internal/threeway"
)

// applyingDir has the journals of applications to directories that are under way.
const applyingDir = "applying"

// journalVersion is that of journals: others are refused.
const journalVersion = 1

// applyJournal tells what is being done to a directory of the host. It is written before anything is changed there, and
// removed after the records say what was done. Its name is the id of the snapshot of the state after.
type applyJournal struct {
	Version   int             `json:"version"`
	Directory string          `json:"directory"`
	Device    uint64          `json:"device"`
	Inode     uint64          `json:"inode"`
	By        *peer.User      `json:"by,omitempty"` // with whose rights; nil: those of the daemon
	Session   string          `json:"session"`
	Name      string          `json:"name"` // of what is applied
	Before    string          `json:"before"`
	After     string          `json:"after"`
	FromTop   string          `json:"from_top,omitempty"`
	Undone    string          `json:"undone,omitempty"` // snapshot of the application that is taken back
	Back      bool            `json:"back,omitempty"`   // it was given up: what was done is to be undone
	Stage     dirapply.Stage  `json:"stage"`
	Steps     []dirapply.Step `json:"steps"`

	old, now threeway.Tree
	plan     dirPlan
}

func (h *Home) journalPath(id string) string { return filepath.Join(h.dir, applyingDir, id+".json") }

// open opens the trees that the steps are about, and compares them.
func (j *applyJournal) open(ctx context.Context, h *Home) ([]layers.Change, error) {
	before, after := h.catalog.Snapshot(j.Before), h.catalog.Snapshot(j.After)
	if before == nil || after == nil {
		return nil, fmt.Errorf("%w: what was kept of %s is deleted", ErrNotFound, j.Directory)
	}
	var changes []layers.Change
	c, err := j.plan.open(ctx, h, subject{snapshot: before}, subject{snapshot: after}, &changes)
	if err != nil {
		j.close()
		return nil, err
	}
	j.old, j.now = layerTree{c.Old()}, layerTree{c.New()}
	return changes, nil
}

func (j *applyJournal) close() { j.plan.close() }

// write makes the journal durable.
func (j *applyJournal) write(h *Home) error {
	j.Version = journalVersion
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	dir := filepath.Join(h.dir, applyingDir)
	if err := os.Mkdir(dir, 0o700); err == nil {
		err = hosttree.SyncDir(h.dir)
		if err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	err = writeFileDurably(h.journalPath(j.After), text)
	h.points.At("journal of an application written")
	return classify(err)
}

// run is the run of the journal's steps.
func (j *applyJournal) run(h *Home, resume bool) dirapply.Run {
	return dirapply.Run{
		Steps: j.Steps, Old: j.old, New: j.now, Back: j.Back, Lenient: j.Back, Resume: resume, Name: j.After, Points: h.points,
		Stage: j.Stage, Made: func(is dirapply.Stage) error {
			j.Stage = is
			return j.write(h)
		},
	}
}

// giveUp takes back what was done before a run ended with an error. If that is impossible, too, the journal stays, and
// drop becomes empty.
func (j *applyJournal) giveUp(
	ctx context.Context, root *dirapply.Root, h *Home, cause error, drop *[]*catalog.Snapshot,
) error {
	ctx = context.WithoutCancel(ctx)
	cause = dirError(ctx, cause)
	j.Back = true
	written := j.write(h)
	got, err := root.Run(ctx, j.run(h, true))
	if err != nil {
		*drop = nil
		return errors.Join(cause, written, fmt.Errorf("what was done in %s is taken back when the daemon is started next, or "+
			"something is applied there: %w", j.Directory, err))
	}
	if len(got.Left) > 0 {
		*drop = nil
		cause = fmt.Errorf("%w; as it was changed meanwhile, this was left as it is: %s; what was there before is in snapshot %s",
			cause, few(got.Left), j.Before)
	} else {
		cause = fmt.Errorf("%w; %s is as it was", cause, j.Directory)
	}
	return errors.Join(cause, j.remove(h))
}

// finish records what was done, and removes the journal.
func (j *applyJournal) finish(ctx context.Context, h *Home, partly bool) error {
	err := h.catalog.Put(ctx, true, func(ch *catalog.Change) error {
		after := h.catalog.Snapshot(j.After)
		if after == nil {
			return nil // deleted
		}
		e := h.event(EventApplied, after.Workspace, j.Session, j.After, j.Name+" to "+j.Directory)
		if j.Undone != "" {
			e.Detail = "what was applied to " + j.Directory + " was taken back"
			ch.Events = append(ch.Events, e)
			return undoneBy(ch, h.catalog.Snapshot(j.Undone))
		}
		next := *after
		next.Applied = &catalog.Applied{FromTop: j.FromTop, Before: j.Before, Directory: j.Directory, Partly: partly}
		ch.PutSnapshots = append(ch.PutSnapshots, &next)
		ch.Events = append(ch.Events, e)
		return nil
	})
	if err != nil {
		return err
	}
	return j.remove(h)
}

// undoneBy records that an application to a directory was taken back.
func undoneBy(ch *catalog.Change, s *catalog.Snapshot) error {
	if s != nil && s.Applied != nil {
		next, applied := *s, *s.Applied
		applied.Undone = true
		next.Applied = &applied
		ch.PutSnapshots = append(ch.PutSnapshots, &next)
	}
	return nil
}

func (j *applyJournal) remove(h *Home) error {
	err := os.Remove(h.journalPath(j.After))
	h.points.At("journal of an application removed")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, hosttree.SyncDir(filepath.Join(h.dir, applyingDir)))
}

// journals reads those of applications that were interrupted.
func (h *Home) journals() ([]*applyJournal, error) {
	dir := filepath.Join(h.dir, applyingDir)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []*applyJournal
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue // one that was not completely written
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		j := &applyJournal{}
		if err := json.Unmarshal(text, j); err != nil || j.Version != journalVersion {
			return nil, fmt.Errorf("%w: journal %s of an application says nothing that this version understands: %w",
				ErrCorrupt, filepath.Join(dir, e.Name()), errors.Join(err))
		}
		all = append(all, j)
	}
	return all, nil
}

// resumeApplied brings what was interrupted in a directory to an end; "" for all directories. The caller holds the
// directory's lock, unless it is for all.
func (h *Home) resumeApplied(ctx context.Context, dir string) error {
	all, err := h.journals()
	if err != nil {
		return err
	}
	for _, j := range all {
		if dir != "" && j.Directory != dir {
			continue
		}
		err := h.resumeOne(ctx, j)
		if err == nil {
			continue
		}
		err = fmt.Errorf("what was interrupted in %s cannot be brought to an end: %w", j.Directory, err)
		if dir != "" {
			return err
		}
		h.log.Warn("an application to a directory stays interrupted", "error", err)
	}
	return nil
}

// resumeOne goes on with one application.
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
	if dev, ino, err := root.ID(); err != nil || ino != j.Inode {
		return errors.Join(err, fmt.Errorf("%w: it is another directory now (device %d)", ErrConflict, dev))
	}
	got, err := root.Run(ctx, j.run(h, true))
	if err == nil && !j.Back {
		h.log.Info("an interrupted application was completed", "directory", j.Directory)
		return j.finish(ctx, h, len(got.Skips) > 0)
	}
	if err != nil && !j.Back && ctx.Err() == nil {
		h.log.Warn("an interrupted application is taken back", "directory", j.Directory, "error", err)
		j.Back = true
		got, err = root.Run(ctx, j.run(h, true))
	}
	if err != nil {
		return dirError(ctx, err)
	}
	if len(got.Left) > 0 {
		h.log.Warn("changed meanwhile, and left as it is", "directory", j.Directory, "paths", got.Left, "before", j.Before)
	}
	return j.remove(h)
}

// resumeAllApplied is what a start does about applications that a crash has interrupted. Where the directory's file system
// does not answer, the start does not wait for long.
func (h *Home) resumeAllApplied() {
	if _, err := os.Lstat(filepath.Join(h.dir, applyingDir)); err != nil {
		return
	}
	done := make(chan struct{})
	h.work.Go(func() {
		defer close(done)
		if err := h.resumeApplied(h.ctx, ""); err != nil {
			h.log.Warn("applications to directories that were interrupted", "error", err)
		}
	})
	select {
	case <-done:
	case <-time.After(hostWait):
		h.log.Warn("an application that was interrupted is still being completed")
	}
}
