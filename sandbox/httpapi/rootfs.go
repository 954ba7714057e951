package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"snapfs/sandbox/api"
)

type snapshotInput struct {
	ID   string `path:"id"`
	Body *RootfsSnapshotRequest
}

type restoreInput struct {
	ID   string `path:"id"`
	Body RestoreRootfsRequest
}

func (s *Server) addRootfs() {
	const tag = "rootfs"
	add(s, operation{
		method: http.MethodPost, path: "/sandboxes/{id}/snapshots", id: "create-rootfs-snapshot", tag: tag,
		scope: api.ScopeSnapshots, summary: "Take a snapshot of a sandbox, running or paused", status: http.StatusCreated,
	}, s.takeRootfs)
	add(s, operation{
		method: http.MethodGet, path: "/sandboxes/{id}/snapshots", id: "list-rootfs-snapshots", tag: tag,
		scope: api.ScopeRead, summary: "List the snapshots of a sandbox",
	}, s.listRootfs)
	add(s, operation{
		method: http.MethodGet, path: "/sandbox-rootfs-snapshots/{snapshot_id}", id: "get-rootfs-snapshot", tag: tag,
		scope: api.ScopeRead, summary: "Describe a snapshot",
	}, func(ctx context.Context, who api.Access, in *bySnapshot) (RootfsSnapshot, error) {
		snapshot, err := s.snapshot(ctx, who, in.Snapshot)
		return rootfsSnapshot(snapshot), err
	})
	add(s, operation{
		method: http.MethodDelete, path: "/sandbox-rootfs-snapshots/{snapshot_id}", id: "delete-rootfs-snapshot", tag: tag,
		scope: api.ScopeSnapshots, summary: "Delete a snapshot; what was made of it stays",
	}, func(ctx context.Context, who api.Access, in *bySnapshot) (Deleted, error) {
		snapshot, err := s.snapshot(ctx, who, in.Snapshot)
		if err != nil {
			return Deleted{}, err
		}
		return Deleted{Deleted: true}, s.service.Delete(ctx, api.RefRequest{Access: who, Ref: snapshot.ID})
	})
	add(s, operation{
		method: http.MethodPost, path: "/sandboxes/{id}/rootfs/restore", id: "restore-rootfs", tag: tag,
		scope: api.ScopeSnapshots, summary: "Move a paused sandbox to a snapshot, in place; it stays paused",
	}, s.restoreRootfs)
}

// snapshot looks a snapshot up by its id.
func (s *Server) snapshot(ctx context.Context, who api.Access, id string) (api.Snapshot, error) {
	if err := checkSnapshot(id); err != nil {
		return api.Snapshot{}, err
	}
	o, err := s.service.Show(ctx, api.RefRequest{Access: who, Ref: id})
	if err != nil {
		return api.Snapshot{}, err
	}
	if o.Snapshot == nil {
		return api.Snapshot{}, fmt.Errorf("%w: snapshot %s", api.ErrNotFound, id)
	}
	return *o.Snapshot, nil
}

func (s *Server) takeRootfs(ctx context.Context, who api.Access, in *snapshotInput) (RootfsSnapshot, error) {
	w, err := s.sandbox(ctx, who, in.ID)
	if err != nil {
		return RootfsSnapshot{}, err
	}
	r := api.SnapshotRequest{Access: who, Workspace: w.ID}
	if in.Body != nil {
		r.Name, r.Description = in.Body.Name, in.Body.Description
		if at := in.Body.ExpiresAt; at != nil && !isNever(*at) {
			r.ExpiresAt = at
		}
	}
	snapshot, err := s.service.Snapshot(ctx, r)
	return rootfsSnapshot(snapshot), err
}

// isNever reports whether a time stands for none: the zero time in any zone.
func isNever(at time.Time) bool { return at.UTC().Year() <= 1 }

func (s *Server) listRootfs(ctx context.Context, who api.Access, in *byID) (RootfsSnapshotList, error) {
	out := RootfsSnapshotList{Snapshots: []RootfsSnapshot{}}
	w, err := s.sandbox(ctx, who, in.ID)
	if err != nil {
		return out, err
	}
	err = s.snapshots(ctx, who, w.ID, func(snapshot api.Snapshot) {
		out.Snapshots = append(out.Snapshots, rootfsSnapshot(snapshot))
	})
	out.Count = len(out.Snapshots)
	return out, err
}

// maxListed bounds the snapshots of one list, which has no parts.
const maxListed = 10_000

// snapshots goes through the snapshots of a workspace, or with "" of all that somebody may see: those that were asked
// for.
func (s *Server) snapshots(ctx context.Context, who api.Access, workspace string, fn func(api.Snapshot)) error {
	r := api.ListRequest{Access: who, Workspace: workspace}
	for listed := 0; listed < maxListed; {
		page, err := s.service.Snapshots(ctx, r)
		if err != nil {
			return err
		}
		for _, snapshot := range page.Snapshots {
			r.After = snapshot.ID
			if !snapshot.Unsaved {
				listed++
				fn(snapshot)
			}
		}
		if !page.More || len(page.Snapshots) == 0 {
			return nil
		}
	}
	return nil
}

func (s *Server) restoreRootfs(ctx context.Context, who api.Access, in *restoreInput) (RestoredRootfs, error) {
	w, err := s.sandbox(ctx, who, in.ID)
	if err != nil {
		return RestoredRootfs{}, err
	}
	if state(w) != Paused {
		return RestoredRootfs{}, fmt.Errorf("%w: sandbox %s is running: pause it first", api.ErrConflict, w.ID)
	}
	if err := checkSnapshot(in.Body.SnapshotID); err != nil {
		return RestoredRootfs{}, err
	}
	// A mount of a paused workspace shows a rollback when it is resumed. One that nobody uses is made anew when it is read.
	if w.State == api.Mounted {
		_, err := s.service.Unmount(ctx, api.UnmountRequest{Access: who, Workspace: w.ID})
		if err != nil && !errors.Is(err, api.ErrConflict) {
			return RestoredRootfs{}, err
		}
	}
	// To one of another sandbox, too.
	_, err = s.service.Rollback(ctx, api.RollbackRequest{
		Access: who, Workspace: w.ID, Snapshot: in.Body.SnapshotID, Foreign: true,
	})
	return RestoredRootfs{SandboxID: w.ID, SnapshotID: in.Body.SnapshotID, Status: Paused}, err
}

func rootfsSnapshot(snapshot api.Snapshot) RootfsSnapshot {
	return RootfsSnapshot{
		ID: snapshot.ID, SandboxID: snapshot.Workspace, Name: snapshot.Name, Description: snapshot.Description,
		CreatedAt: snapshot.CreatedAt, ExpiresAt: snapshot.ExpiresAt,
	}
}
