package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/sandbox"
)

// TestCareful holds that verbs that take something away take only what was named.
func TestCareful(t *testing.T) {
	h := newHome(t)
	h.ok("up", "a1", h.path("a1"))
	h.ok("up", "a2", h.path("a2"))
	for _, name := range []string{"a1", "a2"} {
		h.write(name+"/sub/f", name)
		h.ok("snapshot", name, "--name", "built")
	}
	deleted := func(dir string, args ...string) {
		t.Helper()
		r := h.in(dir, append([]string{"delete"}, args...)...)
		require.Zero(t, r.code, r.err)
		require.Contains(t, r.err, "deleted a1:built")
	}
	h.fails(4, "several", "delete", "built")
	deleted(h.path("a1/sub"), "built")
	h.fails(4, "a2:built", "delete", "built") // the only one of its name now, and not meant
	require.Equal(t, 4, h.in(h.path("a1"), "delete", "built").code)
	h.snapshot("a2:built")
	id := decode[sandbox.Snapshot](h, "snapshot", "a1", "--name", "built").ID
	deleted(h.tmp, id[:len(id)-1])
	require.Equal(t, `{"deleted":["`+id+`"]}`, strings.Join(strings.Fields(h.ok("delete", "--json", id)), ""))

	// Whole workspaces.
	h.fails(4, "a part of workspace a1", "destroy", "a1/sub", "--force")
	h.fails(4, "a part of workspace a1", "destroy", h.path("a1/sub"))
	h.fails(4, "a part of workspace a1", "down", "./a1/sub")
	require.Equal(t, 4, h.in(h.path("a1/sub"), "down", ".").code)
	require.Equal(t, sandbox.Mounted, h.workspace("a1").State)
	out := strings.Join(strings.Fields(h.ok("down", "--json", "./a1")), "")
	require.Equal(t, `{"down":[{"name":"a1","state":"unmounted"}],"failed":[]}`, out)
	require.Equal(t, "a1 on "+h.path("a1"), h.ok("up", "a1"))
	r := h.run("destroy", "--force", "./a1/.")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.err, "destroyed a1")
	h.fails(3, "", "prune", "--keep-last", "1", "--workspace", "nope")

	// Names and places.
	for _, verb := range [][]string{{"fork", "a2"}, {"branch", "a2:built"}, {"restore", "a2:built"}} {
		h.fails(2, "--name f1", append(verb, "f1")...)
		r := h.run(append(verb, "./"+verb[0])...)
		require.Zero(t, r.code, r.err)
		require.Contains(t, r.err, strings.TrimSpace(r.out)+" on "+h.path(verb[0]))
	}
	h.ok("create", "new")
	h.fails(2, "missing MOUNTPOINT", "up", "new")
	h.write("snapfs.toml", "[workspace.new]\nmountpoint = 'from-file'\n[workspace.other]\n")
	require.Equal(t, "new on "+h.path("from-file"), h.ok("up", "new"))
	require.Equal(t, "a2 on "+h.path("a2"), h.ok("up", "a2"))
	h.fails(2, "has no [workspace.a2]", "up", "a2", "--file", "snapfs.toml")
}

// TestKeep holds that keep of a snapfs.toml deletes neither what a workspace is at nor what a rollback has kept.
func TestKeep(t *testing.T) {
	h := newHome(t)
	h.write("snapfs.toml", "[workspace.q]\nkeep = { last = 2 }\n")
	h.ok("up")
	h.ok("snapshot", "q", "--name", "release")
	var kept []string
	for range 2 {
		h.write("q/f", "x")
		kept = append(kept, decode[sandbox.RollbackResult](h, "rollback", "q", "release").Kept.ID)
	}
	h.ok("up")
	for _, ref := range append(kept, "q:release") {
		h.snapshot(ref)
	}
	for _, name := range []string{"a", "b", "c"} {
		h.write("q/f", name)
		h.ok("snapshot", "q", "--name", name)
	}
	r := h.run("up")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.err, "deleted 2")
	var page sandbox.SnapshotPage
	require.NoError(t, json.Unmarshal([]byte(h.ok("--json", "snapshots")), &page))
	var names []string
	for _, s := range page.Snapshots {
		names = append(names, s.Name)
	}
	require.Equal(t, []string{"", "", "b", "c"}, names)
}

// TestNestedMounts holds that what is mounted inside a workspace does not go with it in silence.
func TestNestedMounts(t *testing.T) {
	h := newHome(t)
	h.ok("up", "app", h.path("app"))
	h.ok("snapshot", "app", "--name", "bare")
	h.ok("up", "w2", h.path("app/inner"))
	h.write("app/inner/deep/f", "")
	h.ok("up", "w3", h.path("app/inner/deep"))
	h.ok("snapshot", "app", "--name", "with")
	h.write("app/f", "changed")
	h.ok("rollback", "app", "with") // it has the directory
	h.fails(4, "workspace w2 is mounted", "rollback", "app", "bare")
	require.Equal(t, sandbox.Mounted, h.workspace("w2").State)
	shell(t, soon, h.path("app"), `mountpoint -q inner && test -e inner/deep`)
	require.Equal(t, "w3 is unmounted\nw2 is unmounted\napp is unmounted", h.ok("down", "app", "--force"))
	h.ok("rollback", "app", "bare")
}

// TestMovedParent unmounts what is mounted below a directory that was renamed.
func TestMovedParent(t *testing.T) {
	h := newHome(t)
	h.makeDir("pp")
	moved := func(verb ...string) {
		t.Helper()
		h.ok("up", "w9", h.path("pp/w"))
		shell(t, soon, h.tmp, `mv pp pq`)
		require.Equal(t, h.path("pq/w"), h.workspace("w9").Mountpoint)
		h.ok("mount", "w9", "-o", "remount,noexec")
		h.ok(verb...)
		shell(t, soon, h.tmp, `rm -rf pq/w; test ! -e pq/w; mv pq pp`)
	}
	moved("umount", "w9")
	moved("down", "w9", "--force")
	h.ok("up", "w9", h.path("pp/w"))
	r := process(t, soon, h.tmp, h.env, "unshare", "--mount", "--propagation", "private", "bash", "-c",
		`"$0" umount w9; code=$?; mountpoint -q pp/w && exit $code`, snapfs)
	require.Equal(t, 4, r.code, r.err)
	require.Contains(t, r.err, "umount(8)")
	require.Equal(t, sandbox.Mounted, h.workspace("w9").State)
}

// TestProjectInside has workspaces that are made from the directory of their project, with its file.
func TestProjectInside(t *testing.T) {
	h := newHome(t)
	h.write("project/snapfs.toml", "[workspace.pa]\nfrom = '.'\nmountpoint = 'work'\n[workspace.pb]\nfrom = '.'\n")
	r := h.in(h.path("project"), "up")
	require.Zero(t, r.code, r.err)
	r = h.in(h.path("project/work"), "up")
	require.Zero(t, r.code, r.err)
	require.Equal(t, "pb on "+h.path("project/pb")+"\npa on "+h.path("project/work")+"\n", r.out)
	shell(t, soon, h.tmp, `rm project/snapfs.toml`)
	r = h.in(h.path("project/work"), "up")
	require.Equal(t, 2, r.code, r.err)
	require.Contains(t, r.err, "name it with --file")
	// What is created and cannot be mounted is not left.
	h.write("bad.toml", "[workspace.good]\n[workspace.bad]\nmountpoint = 'no/such/parent'\n")
	require.Equal(t, 3, h.run("up", "--file", "bad.toml").code)
	h.workspace("good")
	h.fails(3, "bad", "show", "bad")
}
