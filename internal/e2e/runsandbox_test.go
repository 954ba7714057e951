package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/sandbox"
)

// TestRunSandboxWays holds the ways out of a sandbox closed: the socket of the daemon, the workspaces of other runs, what
// is mounted later, and descriptors.
func TestRunSandboxWays(t *testing.T) {
	h := newHome(t)
	h.makeDir("user/project")
	h.write("user/secret/key", "hidden\n")
	user, project := h.path("user"), h.path("user/project")
	env := append(append([]string{}, h.env...), "HOME="+user)
	h.ok("create", "other")

	// Another run is there before.
	sh := func(script string, args ...string) result {
		return process(t, soon, project, env, append([]string{"bash", "-euc", script, snapfs}, args...)...)
	}
	r := sh(`mkfifo ../started ../end
"$0" run --name other-run -- sh -c 'echo > ../started; read x < ../end' &
read x < ../started
exec 9<../secret
"$0" run --sandbox -- sh -c '
	! cat /proc/self/fd/9/key 2>/dev/null
	ls -A "$0"; ! snapfs list 2>/dev/null; for run in "$1"/snapfs-run-*; do ls -A $run; ! touch $run/hacked 2>/dev/null; done
	touch made' "$1" "$2"
echo > ../end
wait`, h.dir, h.tmp)
	require.Zero(t, r.code, r.err)
	require.Equal(t, "A made\n", strings.ReplaceAll(r.out, "made\nA", "A"), r.err) // root sees its own workspace there, too

	// What is mounted during the run does not get there.
	r = process(t, soon, h.tmp, env, "unshare", "--mount", "--propagation", "shared", "bash", "-euc", `mkdir shared; mount -t tmpfs none shared
mount --make-shared shared; mkdir shared/later; cd user/project
coproc "$0" run --sandbox -- sh -c 'echo ready; read x; ls -A "$0/later"' "$1"
exec 7<&${COPROC[0]} 8>&${COPROC[1]}; read x <&7
mount -t tmpfs none "$1/later"; touch "$1/later/file"; echo go >&8; cat <&7; wait; umount "$1/later" "$1"`, snapfs, h.path("shared"))
	require.Zero(t, r.code, r.err)
	require.Empty(t, r.out)

	r = process(t, soon, project, append(env, "HOME=/"), snapfs, "run", "--sandbox", "--", "true")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, "HOME is /")

	// Besides HOME, the home directory that the system knows is hidden as well.
	if fi, err := os.Stat("/root"); err == nil && fi.IsDir() && os.Geteuid() == 0 {
		r = process(t, soon, project, append(env, "PATH=/usr/bin:/bin"), snapfs, "run", "--sandbox", "--", "ls", "-A", "/root")
		require.Zero(t, r.code, r.err)
		require.Empty(t, r.out, r.err)
	}
	require.Len(t, decode[sandbox.WorkspacePage](h, "list").Workspaces, 1)
	require.Empty(t, mountsBelow(h.tmp))
}
