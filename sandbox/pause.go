package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/cgroup"
	"snapfs/sandbox/internal/mountns"
)

const (
	// flushWait bounds how long what programs have stored through shared mappings may take to arrive.
	flushWait = 10 * time.Second
	// flushPoll is how often it is looked at meanwhile.
	flushPoll = time.Millisecond
)

// Pause holds every change of a workspace back until Resume, over restarts, too. The processes of the control group that
// is named, or else of those of the containers that have the workspace mounted, are frozen first; others wait at their
// next write. ErrConflict if it is paused.
func (h *Home) Pause(ctx context.Context, r PauseRequest) (Workspace, error) {
	return h.toggle(ctx, r.Access, r.Workspace, "pause", func(ctx context.Context, w *catalog.Workspace, session string) (err error) {
		if w.Paused {
			return fmt.Errorf("%w: workspace %s is paused already", ErrConflict, w.ID)
		}
		if h.liveOf(w.ID).kernel() != nil {
			return fmt.Errorf("%w: workspace %s is mounted by the kernel's overlayfs, which cannot hold writes back: freeze the "+
				"control group of its programs, or mount it with --engine fuse", ErrConflict, w.ID)
		}
		named, groups, err := h.groupsOf(ctx, w, r.Cgroup)
		if err != nil {
			return err
		}
		l := h.liveOf(w.ID)
		if err := h.recordFreezing(ctx, w.ID, groups); err != nil {
			return err
		}
		if err = h.stillness(ctx, l, groups); err == nil {
			h.points.At("processes frozen")
			l.hold()
			_, err = h.catalog.Update(ctx, true, func(ch *catalog.Change) error {
				next := *h.catalog.Workspace(w.ID) // its mount may have been recorded as gone meanwhile
				next.Paused, next.Cgroup, next.Freezing = true, named, groups.String()
				ch.PutWorkspaces = append(ch.PutWorkspaces, &next)
				ch.Events = append(ch.Events, h.event(EventPaused, w.ID, session, "", inOneLine(groups.String())))
				return nil
			})
		}
		if err == nil {
			return nil
		}
		if thaw := h.release(l, groups); thaw != nil {
			return errors.Join(err, thaw) // the record stays: the next process that opens the home tries again
		}
		return errors.Join(err, h.recordFreezing(context.WithoutCancel(ctx), w.ID, nil))
	})
}

// Resume lets a paused workspace, and the processes that were frozen, go on. ErrConflict if it is running.
func (h *Home) Resume(ctx context.Context, r RefRequest) (Workspace, error) {
	return h.toggle(ctx, r.Access, r.Ref, "resume", func(ctx context.Context, w *catalog.Workspace, session string) error {
		if !w.Paused {
			return fmt.Errorf("%w: workspace %s is not paused", ErrConflict, w.ID)
		}
		groups := frozenFor(w)
		_, err := h.catalog.Update(ctx, true, func(ch *catalog.Change) error {
			next := *h.catalog.Workspace(w.ID)
			next.Paused, next.Freezing = false, groups.String()
			ch.PutWorkspaces = append(ch.PutWorkspaces, &next)
			ch.Events = append(ch.Events, h.event(EventResumed, w.ID, session, "", inOneLine(next.Freezing)))
			return nil
		})
		if err != nil {
			return err
		}
		if err := h.release(h.liveOf(w.ID), groups); err != nil {
			return err
		}
		h.points.At("processes thawed")
		return h.recordFreezing(context.WithoutCancel(ctx), w.ID, nil)
	})
}

// toggle runs a change of state under the workspace's lock and describes what came of it.
func (h *Home) toggle(
	ctx context.Context, a Access, name, what string, fn func(context.Context, *catalog.Workspace, string) error,
) (Workspace, error) {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return Workspace{}, err
	}
	defer end()
	session, err := a.SessionID()
	if err != nil {
		return Workspace{}, err
	}
	w, err := h.useChangeable(ctx, a, name, what)
	if err != nil {
		return Workspace{}, err
	}
	unlock, err := h.ops.Lock(ctx, w.ID)
	if err != nil {
		return Workspace{}, err
	}
	defer unlock()
	if w = h.catalog.Workspace(w.ID); w == nil {
		return Workspace{}, fmt.Errorf("%w: workspace %s", ErrNotFound, api.Quoted(name))
	}
	if err := fn(ctx, w, session); err != nil {
		return Workspace{}, err
	}
	return h.describe(h.catalog.Workspace(w.ID))
}

// stillness freezes control groups and waits until everything that programs have stored in the mount has arrived. With
// an error they go on.
func (h *Home) stillness(ctx context.Context, l *live, groups cgroup.Groups) error {
	if err := groups.Freeze(ctx); err != nil {
		return err
	}
	if l == nil || l.frozen {
		return nil
	}
	if err := l.flush(ctx); err != nil {
		return errors.Join(err, groups.Thaw())
	}
	return nil
}

// flush makes the kernel write back what programs have stored through shared mappings, and waits for it. Another
// process asks for it, since this one must not touch its own mount; and since the kernel does not wait for the answers,
// the connection is watched until nothing is under way.
func (l *live) flush(ctx context.Context) error {
	at := l.at()
	mounts, err := at.view.mounts()
	if err != nil || !mounts.hasDevice(l.device) {
		return err // detached: nobody here can reach it
	}
	ctx, cancel := context.WithTimeout(ctx, flushWait)
	defer cancel()
	if at.apart {
		r := mountns.Request{Do: mountns.Sync, Path: at.path, Device: deviceNumber(l.device)}
		if _, err := at.view.run(ctx, r); err != nil {
			return fmt.Errorf("flushing %s: %w", at.path, err)
		}
		return l.waitFlushed(ctx)
	}
	cmd := exec.CommandContext(ctx, "sync", "-f", at.path)
	cmd.Dir = "/"
	if u := l.by; u != nil { // others have no access
		cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups},
		}
	}
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("flushing %s: %w: %s",
			at.path, errors.Join(ctx.Err(), err), strings.TrimSpace(string(out)))
	}
	return l.waitFlushed(ctx)
}

// waitFlushed waits until no request of the connection is under way.
func (l *live) waitFlushed(ctx context.Context) error {
	_, minor, _ := strings.Cut(l.device, ":")
	for {
		waiting, err := os.ReadFile("/sys/fs/fuse/connections/" + minor + "/waiting")
		if err != nil || strings.TrimSpace(string(waiting)) == "0" {
			return nil // without fusectl it cannot be told
		}
		if err := waitFor(ctx, flushPoll); err != nil {
			// Programs that are not frozen keep it busy: what they do now is theirs.
			return nil //nolint:nilerr // as much as can be had
		}
	}
}

// hold closes the gate of a mounted workspace; l may be nil.
func (l *live) hold() {
	if l == nil {
		return
	}
	if done, ok := l.use(); ok {
		defer done()
		l.overlay.Pause()
	}
}

// release opens the gate and thaws control groups; l may be nil.
func (h *Home) release(l *live, groups cgroup.Groups) error {
	var err error
	if l != nil {
		if done, ok := l.use(); ok {
			l.overlay.Resume()
			err = h.invalidateLater(l)
			done()
		}
	}
	return errors.Join(err, groups.Thaw())
}

// waitFor waits for a time or for ctx, whose error it gives.
func waitFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
