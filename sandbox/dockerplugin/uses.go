package dockerplugin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"snapfs/internal/processes"
	"snapfs/sandbox"
	"snapfs/sandbox/api"
)

// use is a container that uses a volume, or what else an engine mounts it for.
type use struct {
	ID string `json:"id"` // as the engine calls it
	// PID and Began are those of the process that asked for it; 0 if that is not known here.
	PID   int    `json:"pid,omitempty"`
	Began uint32 `json:"began,omitempty"`
	// More counts how often it was mounted beside the first time, and not unmounted: Docker mounts the volumes of a
	// container that runs once more, as the same use, while it copies files.
	More  int       `json:"more,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Orphan is the use of the same id that an engine had which has ended. Its container may go on.
	Orphan *use `json:"orphan,omitempty"`

	earlier bool // an earlier daemon has written it down, and may have ended before the engine had its answer
}

// retries is how long after a request an engine sends it again to the next daemon. Docker does for 30 seconds.
const retries = time.Minute

// orphaned reports whether the process that asked for a use is known to have ended. Its container may run all the same.
func (u use) orphaned() bool {
	if u.PID == 0 {
		return false
	}
	began, alive := processes.Life(u.PID)
	return !alive || began != u.Began
}

// find is the index of the use of an id; -1 for none.
func (r *record) find(id string) int {
	return slices.IndexFunc(r.Uses, func(u use) bool { return u.ID == id })
}

// newUse is a use that a call asks for.
func newUse(ctx context.Context, id string) use {
	u := use{ID: id, Since: time.Now().UTC()}
	pid := sandbox.ProcessOf(ctx)
	if began, alive := processes.Life(pid); alive {
		u.PID, u.Began = pid, began
	}
	return u
}

// begun gives the uses of a volume when that of an id has begun.
func (p *Plugin) begun(ctx context.Context, r *record, id string) ([]use, error) {
	uses, i := slices.Clone(r.Uses), r.find(id)
	if i < 0 {
		if len(uses) >= maxUses {
			return nil, fmt.Errorf("%w: volume %s has %d uses, which is the limit", api.ErrConflict, r.Name, len(uses))
		}
		return append(uses, newUse(ctx, id)), nil
	}
	u := &uses[i]
	switch {
	case u.orphaned(): // Docker calls a use of a container as before when it has been restarted
		before := *u
		before.Orphan = nil
		*u = newUse(ctx, id)
		u.Orphan = &before
	case u.earlier && time.Since(u.Since) < retries:
		u.earlier = false // the same request again
	case u.More >= maxUses:
		return nil, fmt.Errorf("%w: volume %s is mounted %d times as the same use, which is the limit", api.ErrConflict, r.Name, u.More)
	default:
		u.More++
	}
	return uses, nil
}

// ended gives the uses of a volume when one is unmounted.
func (p *Plugin) ended(ctx context.Context, r *record, i int) []use {
	uses := slices.Clone(r.Uses)
	u := &uses[i]
	switch {
	case u.More > 0:
		u.More--
	case u.Orphan != nil && !p.unused(ctx, r):
		*u = *u.Orphan
	default:
		return slices.Delete(uses, i, i+1)
	}
	return uses
}

// forgotten reports whether all uses of a volume are those of engines that have ended, and have left nothing that uses it.
func (p *Plugin) forgotten(ctx context.Context, r *record) bool {
	if len(r.Uses) == 0 || slices.ContainsFunc(r.Uses, func(u use) bool { return !u.orphaned() }) {
		return false
	}
	return p.unused(ctx, r)
}

// unused reports whether nothing is known to use the mount of a volume.
func (p *Plugin) unused(ctx context.Context, r *record) bool {
	w, err := p.workspace(ctx, r)
	if err != nil {
		return false
	}
	by, err := p.service.UsedBy(ctx, w.ID)
	return err == nil && by == ""
}
