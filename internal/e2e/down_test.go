package e2e

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/sandbox"
)

// TestDown takes workspaces down, many at once, with and without what uses them.
func TestDown(t *testing.T) {
	h := newHome(t)
	for _, name := range []string{"a", "b", "c"} {
		h.ok("up", name, h.path(name))
	}
	user := start(t, h, h.path("b"), "bash", "-c", `trap '' TERM; echo > "$0"; while :; do sleep 1; done`, h.path("ready"))
	shell(t, soon, h.tmp, `until test -e ready; do sleep 0.02; done; rm ready`)

	r := h.run("down", "--json", "a", "b", "nobody", "c")
	require.Contains(t, []int{3, 4}, r.code, "that of one of them: %s", r.err)
	var got struct {
		Down []struct {
			Name, State string
			Processes   []struct{ PID int }
		}
		Failed []struct {
			Name, Kind string
			ExitCode   int `json:"exit_code"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(r.out), &got), r.out)
	require.Len(t, got.Down, 2)
	require.Equal(t, "b", got.Failed[0].Name)
	require.Equal(t, 4, got.Failed[0].ExitCode)
	require.Equal(t, "not_found", got.Failed[1].Kind)
	require.Equal(t, []string{"b", "home"}, names(t, h.tmp), "directories that were made are gone")
	h.ok("rename", "b", "d") // in the mount table it is b
	require.NoError(t, json.Unmarshal([]byte(h.ok("down", "d", "--force", "--json")), &got))
	require.Len(t, got.Down, 1)
	require.Equal(t, "unmounted", got.Down[0].State)
	require.NotEmpty(t, got.Down[0].Processes)
	h.ok("rename", "d", "b")
	user() // it has ended
	require.Equal(t, []string{"home"}, names(t, h.tmp))

	h.ok("create", "never")
	require.Equal(t, "a on "+h.path("a")+"\nb on "+h.path("b")+"\nc on "+h.path("c"), h.ok("mount", "--all"))
	require.Equal(t, "a is paused\nb is paused", h.ok("pause", "a", "b"))
	require.Equal(t, "a is running\nb is running", h.ok("resume", "a", "b"))
}

// TestProject brings up and takes down the workspaces of a snapfs.toml.
func TestProject(t *testing.T) {
	h := newHome(t)
	h.write("project/src/file", "source\n")
	h.write("project/snapfs.toml", `
[workspace.app]
from = "src"
mountpoint = "work"
options = "nosuid,noatime"
keep = { last = 1 }

[workspace.inner]
mountpoint = "work/inner"

[workspace.bad]
mountpoint = "no/such/parent"
`)
	in := func(args ...string) result {
		t.Helper()
		return process(t, soon, h.makeDir("project/src"), h.env, append([]string{snapfs}, args...)...)
	}
	r := in("up")
	require.Equal(t, 3, r.code, r.err)
	require.Contains(t, r.err, "no/such/parent")
	require.Equal(t, "app on "+h.path("project/work")+"\ninner on "+h.path("project/work/inner")+"\n", r.out)
	require.Equal(t, "source\n", h.read("project/work/file"))
	require.Contains(t, options(t, h.path("project/work")), "noatime")
	h.ok("snapshot", "app")
	h.ok("snapshot", "app")
	require.Equal(t, 3, in("up").code, "again")
	require.Len(t, decode[sandbox.SnapshotPage](h, "snapshots").Snapshots, 1, "keep")
	require.Equal(t, 3, in("down").code, "bad is not there")
	require.Equal(t, []string{"snapfs.toml", "src"}, names(t, h.path("project")))

	for text, want := range map[string]string{
		"[workspace.app]\nfrom = 'x'\nmount = 'y'\n":   "line 3: unknown key workspace.app.mount",
		"[workspace.app]\nfrom = [\n":                  "line 2",
		"[workspace.app]\noptions = 'ro,bogus'\n":      "bogus",
		"[workspace.app.keep]\n":                       "missing",
		"[workspace.App]\n":                            "App",
		"":                                             "no [workspace.NAME]",
		"[workspace.app]\nkeep = {older-than = 'x'}\n": "older-than",
	} {
		require.NoError(t, os.WriteFile(h.path("project/snapfs.toml"), []byte(text), 0o644))
		r := in("up")
		require.Equal(t, 2, r.code, r.err)
		require.Contains(t, r.err, want)
	}
	require.NoError(t, os.Remove(h.path("project/snapfs.toml")))
	require.Equal(t, 2, in("up").code)
	require.Equal(t, 3, in("up", "-f", "other.toml").code)
}

// TestStopTells holds that stop names the mounts that are in use.
func TestStopTells(t *testing.T) {
	h := newHome(t)
	h.ok("up", "used", h.path("used"))
	end := start(t, h, h.path("used"), "sh", "-c", `echo > "$0"; exec sleep 60`, h.path("ready"))
	shell(t, soon, h.tmp, `until test -e ready; do sleep 0.02; done; rm ready`)
	r := h.run("stop")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.err, "used is in use at "+h.path("used")+" by process ")
	require.Contains(t, r.err, "(sleep)")
	end()
}
