package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/sandbox"
)

// in runs a verb in a directory.
func (h *home) in(dir string, args ...string) result {
	h.t.Helper()
	return process(h.t, soon, dir, h.env, append([]string{snapfs}, args...)...)
}

// TestPlaces names workspaces by where programs are.
func TestPlaces(t *testing.T) {
	h := newHome(t)
	h.ok("up", "app", h.makeDir("work"))
	h.ok("up", "other", h.path("other")) // the directory is made, and goes with the mount
	shell(t, soon, h.path("work"), `mkdir -p a/b; echo one > a/b/f; ln -s "$PWD/a" ../link`)
	out := shell(t, soon, h.path("work"), `cd a
		SNAPFS_HOME=$1 "$2" -q snapshot . --name built > /dev/null
		echo two > b/f
		export SNAPFS_HOME=$1
		"$2" diff .
		"$2" diff ./b .:built
		"$2" show ../../link | grep ^workspace
		"$2" rollback -q "$PWD" built --discard > /dev/null
		cat b/f`, h.dir, snapfs)
	require.Equal(t, "M a/b/f\nM a/b/f\nworkspace   app\none\n", out)

	// Relative ones, of several, from elsewhere, and of what is not mounted any more.
	r := h.in(h.tmp, "snapshot", "./other", "--name", "built")
	require.Zero(t, r.code, r.err)
	h.fails(4, "app:built, other:built", "show", "built")
	require.Equal(t, "app", h.snapshot("./work:built").Workspace)
	h.ok("create", "copy", "--from", "./work:built")
	h.ok("umount", "./work")
	h.ok("mount", h.path("work"))
	h.ok("umount", "work/")
	require.Equal(t, "app", h.workspace("work/.").ID)
	h.ok("umount", "other")
	h.ok("mount", "./other")
	h.fails(3, "in no workspace", "snapshot", h.tmp)
	h.fails(2, "", "snapshot", "./missing")
	h.fails(3, "write ./work", "snapshot", "work")

	// Where the same path is another workspace: it is the mount that counts, not its name.
	h.ok("mount", "app")
	r = process(t, soon, h.tmp, h.env, "unshare", "--mount", "bash", "-ec",
		`mount --move work other; mkdir -p elsewhere; mount --bind other/a elsewhere
		for dir in other elsewhere/b; do (cd $dir; "$0" show . | grep ^workspace); done`, snapfs)
	require.Zero(t, r.code, r.err)
	require.Equal(t, "workspace   app\nworkspace   app\n", r.out)
	// What is not mounted is not known by a path that means another directory there.
	h.ok("umount", "app")
	r = process(t, soon, h.tmp, h.env, "unshare", "--mount", "bash", "-ec",
		`mount -t tmpfs none work; cd work; "$0" show .`, snapfs)
	require.Equal(t, 3, r.code, r.out+r.err)
}

// TestNamesAcrossWorkspaces takes the road on which a rollback once took another workspace's snapshot.
func TestNamesAcrossWorkspaces(t *testing.T) {
	h := newHome(t)
	h.ok("up", "app", h.path("app"))
	h.ok("up", "lib", h.path("lib"))
	shell(t, soon, h.tmp, `echo app > app/f; echo lib > lib/f`)
	h.ok("snapshot", "lib", "--name", "good")
	h.fails(4, "lib:good", "rollback", "app", "good")
	h.fails(4, "history of app", "rollback", "app", "lib:good")
	h.ok("snapshot", "app", "--name", "good")
	shell(t, soon, h.tmp, `echo changed > app/f`)
	r := h.run("rollback", "app", "good")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.err, "what was unsaved is snapshot")
	require.Equal(t, "app\n", h.read("app/f"))
	// The printed command brings it back.
	line := r.err[strings.Index(r.err, "'snapfs ")+len("'snapfs "):]
	h.ok(strings.Fields(line[:strings.IndexByte(line, '\'')])...)
	require.Equal(t, "changed\n", h.read("app/f"))
	shell(t, soon, h.tmp, `echo again > app/f`)
	kept := decode[sandbox.RollbackResult](h, "rollback", "app", "good").Kept
	require.NotNil(t, kept)
	require.NotNil(t, kept.ExpiresAt)
	require.Equal(t, "rolled back\n", shell(t, soon, h.tmp, `grep -q app app/f && echo rolled back`))
	h.ok("rollback", "app", "lib:good", "--foreign")
	require.Equal(t, "lib\n", h.read("app/f"))

	require.Equal(t, "try", h.ok("-q", "branch", "app:good", h.path("try"), "--name", "try"))
	require.Equal(t, "try2", h.ok("-q", "fork", "try", "--name", "try2"))
	h.fails(4, "try", "restore", "app:good", "--name", "try")
	h.fails(2, "empty --name", "restore", "app:good", "--name", "")
	h.fails(3, "destroy", "delete", "app")
	h.fails(3, "did you mean app:good", "show", "app:goood")
	h.fails(3, "did you mean try, try2", "umount", "tryy")
	h.fails(4, "several", "create", "x", "--from", "good")

	require.Equal(t, "try3", h.ok("rename", "try", "try3"))
	require.Equal(t, "lib:better", h.ok("rename", "lib:good", "better"))
	require.Equal(t, h.path("try"), h.workspace("try3").Mountpoint)
	require.Equal(t, "try3", h.workspace(h.path("try")).ID)
	// The mount table has the earlier name. What is mounted stays, and is known after a crash.
	h.ok("mount", "try3", "-o", "remount,noexec")
	h.ok("mount", "try3", "-o", "noexec")
	h.ok("up", "try3", h.path("try"), "-o", "noexec")
	h.fails(4, "not at", "mount", "try3", h.path("app"), "-o", "remount,exec")
	h.ok("up", "try", h.path("another")) // which the table calls as it calls try3
	require.Zero(t, process(t, soon, h.tmp, h.env, "unshare", "--mount", "--propagation", "private", "bash", "-ec",
		`umount try; "$0" mount try3 -o remount,nosuid`, snapfs).code)
	pid := h.pid()
	require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	gone(t, pid)
	require.Equal(t, sandbox.Mounted, h.workspace("try3").State)
	h.ok("destroy", "try", "--force")
	h.ok("umount", "./try")
	h.ok("mount", "try3")
	h.fails(4, "exists already", "rename", "try3", "app")
	h.ok("rename", "try3", "try")

	// A directory here, and a snapshot.
	h.write("only/f", "a directory\n")
	h.ok("snapshot", "try", "--name", "only")
	h.fails(4, "try:only", "create", "x", "--from", "only")
	h.ok("create", "x", "--from", "./only")
	require.Equal(t, filepath.Join(h.tmp, "only"), h.workspace("x").Source)
}

// TestListNewest lists what was made last first, with what is paused and where the unmounted were.
func TestListNewest(t *testing.T) {
	h := newHome(t)
	h.ok("up", "zz", h.makeDir("zz"))
	h.ok("create", "mm")
	h.ok("up", "aa", h.makeDir("aa"))
	h.ok("umount", "zz")
	h.ok("pause", "aa")
	lines := strings.Split(h.ok("list"), "\n")
	require.Len(t, lines, 4)
	for i, want := range []string{"aa mounted,paused " + h.path("aa"), "mm unmounted -", "zz unmounted (" + h.path("zz") + ")"} {
		require.Equal(t, want, strings.Join(strings.Fields(lines[i+1])[:3], " "))
	}
	h.ok("resume", "aa")
	require.Equal(t, h.path("zz"), h.workspace("zz").LastMountpoint)
	r := h.run("list", "--limit", "1")
	require.Regexp(t, `there are more: continue with --after [^ ]+/aa, or show --all`, r.err)
	after := strings.TrimSuffix(r.err[strings.Index(r.err, "--after ")+len("--after "):strings.Index(r.err, ", or")], "\n")
	page := decode[sandbox.WorkspacePage](h, "list", "--limit", "1", "--after", after)
	require.Equal(t, "mm", page.Workspaces[0].ID)
	require.Equal(t, "zz", decode[sandbox.WorkspacePage](h, "list", "--by-name", "--after", "mm").Workspaces[0].ID)
	require.Len(t, decode[sandbox.WorkspacePage](h, "list", "--all").Workspaces, 3)
	h.fails(2, "exclude", "list", "--all", "--limit", "3")

	require.Contains(t, h.ok("events", "--since", "1h"), "created")
	require.Empty(t, h.ok("events", "--since", "2100-01-01T00:00:00Z"))
	h.fails(2, "--since", "events", "--since", "yesterday")
	require.Contains(t, h.ok("log", h.path("aa"), "--since", "1h"), "resumed")
}
