package sandbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	"snapfs/sandbox/internal/catalog"
)

// Prune deletes the snapshots of the session (of all, if cross-session access is allowed) that the rules do not keep.
// Two kinds stay in any case: what a workspace is at, and what a rollback has kept, which goes at its time and does not
// count. ErrNotFound for a workspace that neither exists nor has left
// snapshots.
func (h *Home) Prune(ctx context.Context, r PruneRequest) (PruneResult, error) {
	result := PruneResult{Deleted: []Snapshot{}, WouldDelete: []Snapshot{}, DryRun: r.DryRun}
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return result, err
	}
	defer end()
	who, err := newAsker(ctx, r.Access)
	if err != nil {
		return result, err
	}
	session := who.session
	if r.Workspace, err = h.workspaceName(who, r.Workspace); err != nil {
		return result, err
	}
	if err := checkPrune(r); err != nil {
		return result, err
	}
	byWorkspace := map[string][]*catalog.Snapshot{}
	var all []*catalog.Snapshot
	for s := range h.catalog.ListSnapshots(query(r.Access, session, r.Workspace, "")) {
		byWorkspace[s.Workspace] = append(byWorkspace[s.Workspace], s)
		all = append(all, s)
	}
	if len(all) == 0 {
		if err := h.mayName(r.Access, session, r.Workspace); err != nil {
			return result, err
		}
	}
	heads := map[string]bool{}
	for _, w := range h.catalog.Workspaces() {
		heads[w.Head], heads[w.Redo] = true, true
	}
	goes := map[string]bool{}
	for _, snapshots := range byWorkspace {
		for _, s := range surplus(r, snapshots, heads, h.now()) {
			if !h.isApplying(s) {
				goes[s.ID] = true
			}
		}
	}
	result.Kept = len(all) - len(goes)
	for _, s := range all {
		if !goes[s.ID] {
			continue
		}
		d, err := h.describeSnapshot(s, maxPage)
		if h.catalog.Snapshot(s.ID) == nil {
			continue // deleted meanwhile
		}
		if err == nil && !r.DryRun {
			if err = h.audit(ctx, session, s.Session, s.Workspace, s.ID, "prune"); err == nil {
				err = h.deleteSnapshot(ctx, s, h.event(EventSnapshotDeleted, s.Workspace, session, s.ID, "pruned"))
			}
		}
		if err != nil {
			return result, err
		}
		if r.DryRun {
			result.WouldDelete = append(result.WouldDelete, d)
		} else {
			result.Deleted = append(result.Deleted, d)
		}
	}
	return result, nil
}

// checkPrune validates a request.
func checkPrune(r PruneRequest) error {
	switch {
	case r.KeepLast < 0 || r.KeepDaily < 0 || r.OlderThan < 0:
		return fmt.Errorf("%w: a rule of prune is negative", ErrInvalid)
	case r.KeepLast == 0 && r.KeepDaily == 0 && r.OlderThan == 0:
		return fmt.Errorf("%w: prune needs a rule: keep last, keep daily or older than", ErrInvalid)
	}
	return nil
}

// surplus picks what the rules do not keep of one workspace's snapshots, which are in order of time. Heads
// are what workspaces are at.
func surplus(r PruneRequest, snapshots []*catalog.Snapshot, heads map[string]bool, now time.Time) []*catalog.Snapshot {
	var goes []*catalog.Snapshot
	days := map[string]bool{}
	count := 0
	for _, s := range slices.Backward(snapshots) {
		if s.Unsaved {
			continue
		}
		count++
		keep := count <= r.KeepLast || r.OlderThan > 0 && now.Sub(s.CreatedAt) < r.OlderThan
		if day := s.CreatedAt.UTC().Format(time.DateOnly); !days[day] && len(days) < r.KeepDaily {
			days[day] = true
			keep = true
		}
		if !keep && !heads[s.ID] {
			goes = append(goes, s)
		}
	}
	return goes
}
