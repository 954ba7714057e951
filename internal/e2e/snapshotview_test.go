package e2e

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/sandbox"
)

// workspaces are the names of what a list has.
func workspaces(h *home, args ...string) []string {
	h.t.Helper()
	var found []string
	for _, w := range decode[sandbox.WorkspacePage](h, append([]string{"list", "--by-name"}, args...)...).Workspaces {
		found = append(found, w.ID)
	}
	return found
}

// TestSnapshotView mounts snapshots read-only, and finds nothing left when they are unmounted, by whatever.
func TestSnapshotView(t *testing.T) {
	h := newHome(t)
	at, dir := h.path("at"), h.path("view")
	h.ok("up", "app", at)
	shell(t, soon, at, `echo one > file; mkdir sub; echo deep > sub/cold; chmod u+s file`)
	built := decode[sandbox.Snapshot](h, "snapshot", "app", "--name", "built")
	shell(t, soon, at, `echo two > file`)
	left := func(why string) {
		t.Helper()
		for len(workspaces(h, "--all")) > 1 { // what another than snapfs unmounts is noticed soon
			require.NoError(t, t.Context().Err())
		}
		require.NoDirExists(t, dir, why)
		require.Equal(t, []string{"app"}, workspaces(h, "--all"), why)
		require.Len(t, mountsBelow(h.tmp), 1, why)
	}

	h.fails(2, "branch", "mount", "app:built", dir)
	h.fails(2, "mountpoint", "mount", "built", "--read-only")
	h.fails(3, "no workspace and no snapshot", "mount", "nothing", dir, "--read-only")
	require.NoDirExists(t, dir)
	w := decode[sandbox.Workspace](h, "mount", "--read-only", "built", dir, "-o", "nosuid,nodev,noexec,noatime")
	require.True(t, w.View && w.ReadOnly && w.Origin == built.ID && w.Mountpoint == dir, "%+v", w)
	require.Regexp(t, `^app-view-[0-9a-f]{4}$`, w.ID)
	require.Equal(t, "one\n", shell(t, soon, dir, `cat file`))
	require.NotZero(t, process(t, soon, dir, nil, "touch", "file").code)
	for _, option := range []string{"ro", "nosuid", "nodev", "noexec", "noatime"} {
		require.Contains(t, options(t, dir), option)
	}
	require.Equal(t, []string{"app"}, workspaces(h))
	require.Equal(t, []string{"app", w.ID}, workspaces(h, "--all"))
	require.Contains(t, h.ok("list", "--all"), "mounted,view")

	// The same again is that, and other options are a conflict.
	same := decode[sandbox.Workspace](h, "mount", built.ID[:13], dir, "-o", "ro,nosuid,nodev,noexec,noatime")
	require.Equal(t, w.ID, same.ID)
	h.fails(4, "other options", "mount", "built", dir, "--read-only")
	h.ok("mount", dir, "-o", "remount,exec")
	require.NotContains(t, options(t, dir), "noexec")

	// What changes a workspace is refused, what reads one is not.
	for _, line := range [][]string{
		{"snapshot", dir},
		{"fork", dir},
		{"rollback", dir, "built"},
		{"pause", dir},
		{"turn", dir},
		{"undo", dir},
		{"rename", w.ID, "mine"},
		{"up", w.ID, dir},
		{"mount", dir, "-o", "remount,rw"},
		{"mount", w.ID, dir, "-o", "rw"},
	} {
		h.fails(4, "view of snapshot app:built", line...)
	}
	h.fails(4, "unmount", "destroy", w.ID)
	h.fails(3, "view of snapshot", "branch", dir)
	require.Equal(t, "cold", h.ok("ls", w.ID+":/sub"))
	require.Equal(t, "one", h.ok("cat", dir+":/file"))
	require.Empty(t, h.ok("diff", dir))
	require.Contains(t, h.ok("diff", dir, "app"), "M file")

	// The snapshot may go.
	h.ok("delete", "app:built")
	h.ok("gc")
	h.fails(4, "view of snapshot "+built.ID, "snapshot", dir)
	require.Equal(t, "deep\n", shell(t, soon, dir, `cat sub/cold`))
	require.Equal(t, w.ID+" is unmounted", h.ok("umount", dir))
	left("umount")
	require.Regexp(t, `(?s)created .*mounted .*unmounted .*destroyed `, h.ok("log", w.ID))

	h.ok("snapshot", "app", "--name", "two")
	h.ok("mount", "two", dir, "--read-only")
	h.ok("down", dir)
	left("down")
	h.ok("mount", "two", dir, "--read-only")
	h.ok("down", dir, "--destroy")
	left("down --destroy")
	h.ok("mount", "two", dir, "--read-only")
	shell(t, soon, h.tmp, `umount view`)
	left("umount(8)")
	h.ok("mount", "two", dir, "--read-only")
	holder := start(t, h, dir, "sleep", "60")
	h.fails(4, "in use", "umount", dir)
	shell(t, soon, h.tmp, `umount -l view`)
	require.Len(t, workspaces(h, "--all"), 2, "a process is in it")
	holder()
	left("umount -l")
	h.ok("mount", "two", dir, "--read-only", "--session", "other", "--allow-cross-session")
	require.Equal(t, []string{"app"}, workspaces(h, "--all"), "it is of the session that looks")
	h.fails(5, "another session", "umount", dir)
	h.ok("umount", "--all", "--session", "other")
	left("of another session")
	h.ok("stop")
}

// TestSnapshotViewsKilled mounts one snapshot at many places at once, and kills the daemon: they are mounted again, and
// what cannot be is gone.
func TestSnapshotViewsKilled(t *testing.T) {
	h := newHome(t)
	h.keepsNothing()
	at := h.path("at")
	h.ok("up", "app", at)
	shell(t, soon, at, `echo kept > file`)
	h.ok("snapshot", "app", "--name", "s")
	const views = 20
	dir := func(i int) string { return h.path(fmt.Sprintf("view-%d", i)) }
	var all sync.WaitGroup
	for i := range views {
		all.Go(func() {
			if r := h.run("mount", "--read-only", "s", dir(i)); r.code != 0 {
				t.Errorf("view %d: %s", i, r.err)
			}
		})
	}
	all.Wait()
	kill := func() {
		t.Helper()
		pid := h.pid()
		require.NoError(t, unix.Kill(pid, unix.SIGKILL))
		gone(t, pid)
	}
	shown := func(want int) {
		t.Helper()
		require.Len(t, workspaces(h, "--all"), want+1)
		require.Len(t, mountsBelow(h.tmp), want+1)
		require.Equal(t, []string{"app"}, workspaces(h))
	}
	shown(views)
	kill()
	shown(views)
	require.Equal(t, "kept\n", shell(t, soon, dir(7), `cat file`))
	require.NotZero(t, process(t, soon, dir(7), nil, "touch", "file").code)

	// A place that has gone, or is taken.
	kill()
	shell(t, soon, h.tmp, `umount -l view-3 view-4; mount -t tmpfs none view-3`)
	require.Len(t, workspaces(h, "--all"), views, "one is given up")
	require.Len(t, mountsBelow(h.tmp), views+1, "with the tmpfs in its place")
	shell(t, soon, h.tmp, `umount view-3; rmdir view-3`)
	h.ok("down", "--all")
	require.Empty(t, mountsBelow(h.tmp))
	require.Equal(t, []string{"app"}, workspaces(h, "--all"))

	h.ok("mount", "--read-only", "s", dir(0))
	kill()
	serve := start(t, h, "/", snapfs, "serve", "--no-remount")
	for h.run("status").code != 0 {
		require.NoError(t, t.Context().Err())
	}
	require.Equal(t, []string{"app"}, workspaces(h, "--all"), "with --no-remount nothing is left")
	h.ok("stop")
	serve()
	require.NoDirExists(t, dir(0))
}
