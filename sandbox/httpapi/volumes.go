package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"snapfs/sandbox/api"
)

// What a volume is if its maker does not say.
const (
	backendSnapfs = "s0fs" // what clients call volumes that the service keeps
	modeDefault   = "RWO"
)

type volumeInput struct {
	Body *VolumeRequest
}

type forkVolumeInput struct {
	ID   string `path:"id"`
	Body *ForkVolumeRequest
}

type deleteVolumeInput struct {
	ID    string `path:"id"`
	Force bool   `query:"force" doc:"also while programs use it"`
}

type volumeSnapshotInput struct {
	ID   string `path:"id"`
	Body VolumeSnapshotRequest
}

type volumeSnapshotID struct {
	ID       string `path:"id"`
	Snapshot string `path:"snapshot_id"`
}

func (s *Server) addVolumes() {
	const tag = "volumes"
	at := func(method, path, id string, scope api.Scope, summary string) operation {
		o := operation{method: method, path: "/sandboxvolumes" + path, id: id, tag: tag, scope: scope, summary: summary}
		return o
	}
	made := func(o operation) operation { o.status = http.StatusCreated; return o }
	add(s, made(at(http.MethodPost, "", "create-volume", api.ScopeWorkspaces, "Make a volume")), s.makeVolume)
	add(s, at(http.MethodGet, "", "list-volumes", api.ScopeRead, "List volumes"),
		func(ctx context.Context, who api.Access, _ *struct{}) ([]Volume, error) {
			out := []Volume{}
			err := s.workspaces(ctx, who, func(w api.Workspace) {
				if isVolume(w) {
					out = append(out, volume(w))
				}
			})
			return out, err
		})
	add(s, at(http.MethodGet, "/{id}", "get-volume", api.ScopeRead, "Describe a volume"),
		func(ctx context.Context, who api.Access, in *byID) (Volume, error) {
			w, err := s.volume(ctx, who, in.ID)
			return volume(w), err
		})
	add(s, at(http.MethodDelete, "/{id}", "delete-volume", api.ScopeWorkspaces, "Destroy a volume"),
		func(ctx context.Context, who api.Access, in *deleteVolumeInput) (Deleted, error) {
			w, err := s.volume(ctx, who, in.ID)
			if err != nil {
				return Deleted{}, err
			}
			return Deleted{Deleted: true}, s.destroy(ctx, who, w, in.Force)
		})
	add(s, made(at(http.MethodPost, "/{id}/fork", "fork-volume", api.ScopeWorkspaces,
		"Make a volume of the present state of another")), s.forkVolume)
	add(s, made(at(http.MethodPost, "/{id}/snapshots", "create-volume-snapshot", api.ScopeSnapshots,
		"Take a snapshot of a volume")), s.takeVolume)
	add(s, at(http.MethodGet, "/{id}/snapshots", "list-volume-snapshots", api.ScopeRead, "List the snapshots of a volume"),
		func(ctx context.Context, who api.Access, in *byID) ([]VolumeSnapshot, error) {
			out := []VolumeSnapshot{}
			w, err := s.volume(ctx, who, in.ID)
			if err != nil {
				return out, err
			}
			return out, s.snapshots(ctx, who, w.ID, func(snapshot api.Snapshot) {
				out = append(out, volumeSnapshot(snapshot))
			})
		})
	add(s, at(http.MethodGet, "/{id}/snapshots/{snapshot_id}", "get-volume-snapshot", api.ScopeRead,
		"Describe a snapshot of a volume"),
		func(ctx context.Context, who api.Access, in *volumeSnapshotID) (VolumeSnapshot, error) {
			snapshot, err := s.snapshotOf(ctx, who, in)
			return volumeSnapshot(snapshot), err
		})
	add(s, at(http.MethodDelete, "/{id}/snapshots/{snapshot_id}", "delete-volume-snapshot", api.ScopeSnapshots,
		"Delete a snapshot of a volume"),
		func(ctx context.Context, who api.Access, in *volumeSnapshotID) (Deleted, error) {
			snapshot, err := s.snapshotOf(ctx, who, in)
			if err != nil {
				return Deleted{}, err
			}
			return Deleted{Deleted: true}, s.service.Delete(ctx, api.RefRequest{Access: who, Ref: snapshot.ID})
		})
	add(s, at(http.MethodPost, "/{id}/snapshots/{snapshot_id}/restore", "restore-volume-snapshot", api.ScopeSnapshots,
		"Move a volume back to a snapshot of it, in place"), s.restoreVolume)
}

// volume looks a volume up.
func (s *Server) volume(ctx context.Context, who api.Access, id string) (api.Workspace, error) {
	w, err := s.workspace(ctx, who, "volume", id)
	if err == nil && !isVolume(w) {
		err = fmt.Errorf("%w: volume %s: it is a sandbox", api.ErrNotFound, id)
	}
	return w, err
}

func (s *Server) makeVolume(ctx context.Context, who api.Access, in *volumeInput) (Volume, error) {
	r := VolumeRequest{}
	if in.Body != nil {
		r = *in.Body
	}
	if len(r.S3) > 0 || r.Backend != "" && r.Backend != backendSnapfs {
		return Volume{}, absent("volumes in other stores")
	}
	if r.SnapshotID != "" {
		if err := checkSnapshot(r.SnapshotID); err != nil {
			return Volume{}, err
		}
	}
	labels := api.Labels{labelKind: kindVolume}
	volumeLabels(labels, r.AccessMode, r.DefaultPosixUID, r.DefaultPosixGID)
	w, err := s.begin(ctx, who, newName("vol"), r.SnapshotID, labels)
	return volume(w), err
}

func volumeLabels(l api.Labels, mode string, uid, gid *int64) {
	if mode != "" {
		l[labelAccessMode] = mode
	}
	for key, id := range map[string]*int64{labelUID: uid, labelGID: gid} {
		if id != nil {
			l[key] = strconv.FormatInt(*id, 10)
		}
	}
}

func (s *Server) forkVolume(ctx context.Context, who api.Access, in *forkVolumeInput) (Volume, error) {
	w, err := s.volume(ctx, who, in.ID)
	if err != nil {
		return Volume{}, err
	}
	labels := api.Labels{}
	for _, key := range []string{labelKind, labelAccessMode, labelUID, labelGID} {
		if value, ok := w.Labels[key]; ok {
			labels[key] = value
		}
	}
	labels[labelSource] = w.ID
	if in.Body != nil {
		volumeLabels(labels, in.Body.AccessMode, in.Body.DefaultPosixUID, in.Body.DefaultPosixGID)
	}
	name := newName("vol")
	made, err := s.service.Fork(ctx, api.ForkRequest{Access: who, Workspace: w.ID, Name: name, Labels: labels})
	if err != nil {
		return Volume{}, err
	}
	if made, err = s.mount(ctx, who, made); err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return Volume{}, errors.Join(err, s.undo(ctx, who, name))
	}
	return volume(made), nil
}

func (s *Server) takeVolume(ctx context.Context, who api.Access, in *volumeSnapshotInput) (VolumeSnapshot, error) {
	w, err := s.volume(ctx, who, in.ID)
	if err != nil {
		return VolumeSnapshot{}, err
	}
	snapshot, err := s.service.Snapshot(ctx, api.SnapshotRequest{
		Access: who, Workspace: w.ID, Name: in.Body.Name, Description: in.Body.Description,
	})
	return volumeSnapshot(snapshot), err
}

// snapshotOf looks up a snapshot of a volume. One of another volume is not there.
func (s *Server) snapshotOf(ctx context.Context, who api.Access, in *volumeSnapshotID) (api.Snapshot, error) {
	w, err := s.volume(ctx, who, in.ID)
	if err != nil {
		return api.Snapshot{}, err
	}
	snapshot, err := s.snapshot(ctx, who, in.Snapshot)
	if err == nil && snapshot.Workspace != w.ID {
		err = fmt.Errorf("%w: snapshot %s of volume %s", api.ErrNotFound, in.Snapshot, w.ID)
	}
	return snapshot, err
}

func (s *Server) restoreVolume(ctx context.Context, who api.Access, in *volumeSnapshotID) (Ready, error) {
	snapshot, err := s.snapshotOf(ctx, who, in)
	if err != nil {
		return Ready{}, err
	}
	_, err = s.service.Rollback(ctx, api.RollbackRequest{
		Access: who, Workspace: in.ID, Snapshot: snapshot.ID, Foreign: true,
	})
	return Ready{Status: "ready"}, err
}

func volume(w api.Workspace) Volume {
	f := factsOf(w)
	number := func(key string) int64 {
		n, _ := strconv.ParseInt(w.Labels[key], 10, 64) // 0 for what is no number
		return n
	}
	return Volume{
		ID: w.ID, TeamID: w.Session, UserID: w.Session, SourceVolumeID: w.Labels[labelSource],
		DefaultPosixUID: number(labelUID), DefaultPosixGID: number(labelGID),
		AccessMode: cmp.Or(w.Labels[labelAccessMode], modeDefault), Backend: backendSnapfs,
		CreatedAt: w.CreatedAt, UpdatedAt: f.updated, Mountpoint: w.Mountpoint,
	}
}

func volumeSnapshot(snapshot api.Snapshot) VolumeSnapshot {
	v := VolumeSnapshot{
		ID: snapshot.ID, VolumeID: snapshot.Workspace, Name: snapshot.Name, Description: snapshot.Description,
		CreatedAt: snapshot.CreatedAt, ExpiresAt: snapshot.ExpiresAt,
	}
	for _, l := range snapshot.Layers {
		v.SizeBytes += l.Size
	}
	return v
}
