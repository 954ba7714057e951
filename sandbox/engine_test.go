package sandbox

import (
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

func TestEngineFor(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ has, asked, want string }{
		{"", "", ""},
		{"", "fuse", ""},
		{"", "auto", ""},
		{"", "kernel", "kernel"},
		{"kernel", "", "kernel"},
		{"kernel", "kernel", "kernel"},
		{"kernel", "fuse", ""},
		{"kernel", "auto", ""},
	} {
		if got := engineFor(&catalog.Workspace{Engine: test.has}, MountOptions{Engine: test.asked}); got != test.want {
			t.Errorf("asked for %q where the workspace has %q: %q, want %q", test.asked, test.has, got, test.want)
		}
	}
	require.Equal(t, "rw,nodev,engine=kernel", optionList(MountOptions{NoDev: true, Engine: "kernel"}))
	require.Equal(t, "ro", optionList(MountOptions{ReadOnly: true}))
}

// TestEngineOfWorkspace: the engine that is named is kept with the workspace, past the daemon, until another one is.
func TestEngineOfWorkspace(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	h := openTest(t, dir)
	engine := func(name, want string) {
		t.Helper()
		o, err := h.Show(ctx, RefRequest{Ref: name})
		require.NoError(t, err)
		require.Equal(t, want, o.Workspace.Engine, name)
		require.Equal(t, want, h.catalog.Workspace(name).Engine, name)
	}
	up := func(name, engine string) error {
		_, err := h.Up(ctx, UpRequest{CreateRequest: CreateRequest{Name: name, Engine: engine}})
		return err
	}
	_, err := h.Create(ctx, CreateRequest{Name: "created", Engine: "kernel"})
	require.NoError(t, err)
	engine("created", "kernel")
	_, err = h.Create(ctx, CreateRequest{Name: "plain"})
	require.NoError(t, err)
	engine("plain", "")
	require.NoError(t, up("new", "kernel"))
	engine("new", "kernel")
	require.NoError(t, up("new", ""))
	engine("new", "kernel")
	require.NoError(t, up("new", "auto"))
	engine("new", "")
	require.NoError(t, up("new", "kernel"))

	_, err = h.Fork(ctx, ForkRequest{Workspace: "plain", Name: "forked", MountOptions: MountOptions{Engine: "kernel"}})
	require.NoError(t, err)
	engine("forked", "kernel")
	_, err = h.Fork(ctx, ForkRequest{Workspace: "created", Name: "forked-plain"})
	require.NoError(t, err)
	engine("forked-plain", "")
	s, err := h.Snapshot(ctx, SnapshotRequest{Workspace: "plain"})
	require.NoError(t, err)
	_, err = h.Branch(ctx, RestoreRequest{Snapshot: s.ID, Name: "branched", MountOptions: MountOptions{Engine: "kernel"}})
	require.NoError(t, err)
	engine("branched", "kernel")
	_, err = h.Rename(ctx, RenameRequest{Ref: "branched", Name: "renamed"})
	require.NoError(t, err)
	engine("renamed", "kernel")

	for name, err := range map[string]error{
		"create": func() error { _, err := h.Create(ctx, CreateRequest{Name: "bad", Engine: "steam"}); return err }(),
		"up":     up("bad", "steam"), "up again": up("plain", "steam"),
		"mount": func() error {
			_, err := h.Mount(ctx, MountRequest{Workspace: "plain", MountOptions: MountOptions{Engine: "steam"}})
			return err
		}(),
	} {
		require.ErrorIs(t, err, ErrInvalid, name)
		require.ErrorContains(t, err, "steam", name)
	}
	require.Nil(t, h.catalog.Workspace("bad"))

	require.NoError(t, h.Close())
	h = openTest(t, dir)
	engine("created", "kernel")
	engine("plain", "")

	// Mounted with the other one, it has that from then on.
	at := t.TempDir()
	w, err := h.Mount(ctx, MountRequest{Workspace: "created", Mountpoint: at, MountOptions: MountOptions{Engine: api.EngineFUSE}})
	require.NoError(t, err)
	require.Empty(t, w.Engine)
	engine("created", "")
	_, err = h.Mount(ctx, MountRequest{Workspace: "created", Mountpoint: at})
	require.NoError(t, err)
	_, err = h.Mount(ctx, MountRequest{Workspace: "created", Mountpoint: at, MountOptions: MountOptions{Engine: "kernel"}})
	require.ErrorIs(t, err, ErrConflict)
	_, err = h.Mount(ctx, MountRequest{Workspace: "created", Remount: []string{"engine=kernel"}})
	require.ErrorIs(t, err, ErrConflict)
	require.ErrorContains(t, err, "engine")
	_, err = h.Mount(ctx, MountRequest{Workspace: "created", Remount: []string{"engine=fuse", "nodev"}})
	require.NoError(t, err)
	err = up("created", "kernel")
	require.ErrorIs(t, err, ErrConflict)
	require.ErrorContains(t, err, at)
	engine("created", "")
	_, err = h.Unmount(ctx, UnmountRequest{Workspace: "created"})
	require.NoError(t, err)
	require.NoError(t, up("created", "kernel"))
	engine("created", "kernel")
	require.Equal(t, "kernel", h.catalog.Workspace("created").Mount.Options.Engine)
	require.NoError(t, h.Events(ctx, EventsRequest{Workspace: "created"}, func(e Event) error {
		require.NotContains(t, e.Detail, "engine", "of fuse nothing is said")
		return nil
	}))
}
