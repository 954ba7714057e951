package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"snapfs/internal/hosttree"
	"snapfs/layers"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/dirapply"
	"snapfs/sandbox/internal/peer"
	"snapfs/sandbox/internal/threeway"
)

// applyingDir has the journals of applies to directories that are under way.
const applyingDir = "applying"

// journalVersion is that of journals: others are refused.
const journalVersion = 1

// applyJournal tells what is being done to a directory of the host. It is written before anything is changed there, and
// removed after the records say what was done. Its name is the id of the snapshot of the state after.
type applyJournal struct {
	Version   int    `json:"version"`
	Directory string `json:"directory"`
	dirID
	By      *peer.User      `json:"by,omitempty"` // with whose rights; nil: those of the daemon
	Session string          `json:"session"`
	Name    string          `json:"name"` // of what is applied
	Before  string          `json:"before"`
	After   string          `json:"after"`
	FromTop string          `json:"from_top,omitempty"`
	Undone  string          `json:"undone,omitempty"` // snapshot of the apply that is taken back
	Back    bool            `json:"back,omitempty"`   // it was given up: what was done is to be undone
	Stage   dirapply.Stage  `json:"stage"`
	Steps   []dirapply.Step `json:"steps"`

	old, now threeway.Tree
	plan     dirPlan
}

func (h *Home) journalPath(id string) string { return filepath.Join(h.dir, applyingDir, id+".json") }

// dirID tells a directory from others, after a restart, too.
type dirID struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	// Born is when it was made, since file systems have the same numbers; the zero time if that is not known.
	Born layers.Time `json:"born"`
}

// is reports whether both are one directory, at the same path or not.
func (d dirID) is(other dirID, samePath bool) bool {
	switch unknown := (layers.Time{}); {
	case d.Inode != other.Inode:
		return false
	case d.Born != unknown && other.Born != unknown:
		return d.Born == other.Born
	}
	return samePath || d.Device == other.Device // the number of a file system may be another one after a restart
}

// directoryID gives that of the directory at a path.
func directoryID(ctx context.Context, path string) (id dirID, err error) {
	err = asUser(ctx, func() error {
		fd, err := hosttree.Open(path, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		defer fd.Close() //nolint:errcheck // nothing is written
		id, err = fileID(fd)
		return err
	})
	return id, err
}

// fileID gives that of an open directory.
func fileID(f *os.File) (id dirID, err error) {
	var sx unix.Statx_t
	err = unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &sx)
	if err != nil {
		return id, err
	}
	id.Device, id.Inode = unix.Mkdev(sx.Dev_major, sx.Dev_minor), sx.Ino
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return id, err
	}
	if sx.Mask&unix.STATX_BTIME != 0 && fs.Type != unix.OVERLAYFS_SUPER_MAGIC { // there it changes with the first change
		id.Born = layers.Time{Sec: sx.Btime.Sec, Nsec: sx.Btime.Nsec}
	}
	return id, nil
}

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
	err = hosttree.WriteFile(h.journalPath(j.After), text)
	h.points.At("journal of an apply written")
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
	} else if len(got.Skips) > 0 {
		*drop = nil
		cause = fmt.Errorf("%w; %s is as it was, but for what could not be set again: %s; what was there before is in snapshot %s",
			cause, j.Directory, fewSkips(got.Skips), j.Before)
	} else {
		cause = fmt.Errorf("%w; %s is as it was", cause, j.Directory)
	}
	if err := j.remove(h); err != nil { // it may be there again after a crash
		*drop = nil
		return errors.Join(cause, err)
	}
	return cause
}

// fewSkips names some of what could not be set.
func fewSkips(skips []dirapply.Skip) string {
	var all []string
	for _, s := range skips {
		all = append(all, s.Path+" ("+s.What+")")
	}
	return few(all)
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

// undoneBy records that an apply to a directory was taken back.
func undoneBy(ch *catalog.Change, s *catalog.Snapshot) error {
	if s != nil && s.Applied != nil {
		next, applied := *s, *s.Applied
		applied.Undone = true
		next.Applied = &applied
		ch.PutSnapshots = append(ch.PutSnapshots, &next)
	}
	return nil
}

// remove removes the journal. Nothing needs its snapshots any more then.
func (j *applyJournal) remove(h *Home) error {
	err := os.Remove(h.journalPath(j.After))
	h.points.At("journal of an apply removed")
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	} else {
		err = errors.Join(err, hosttree.SyncDir(filepath.Join(h.dir, applyingDir)))
	}
	if err == nil {
		h.unpin(j.Before, j.After)
		h.stuck.Delete(j.After)
	}
	return err
}
