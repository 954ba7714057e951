package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
)

// TestStandOn kills the daemon while it imports a directory on which a workspace stands: the workspace shows what it did,
// also where the directory has changed, and the import ends.
func TestStandOn(t *testing.T) {
	h := newHome(t)
	src, ws := h.makeDir("src"), h.path("ws")
	shell(t, soon, src, `for d in 1 2 3 4; do mkdir d$d; for i in $(seq 500); do echo $d $i > d$d/$i; done; done
		ln d1/1 d2/hard; ln -s d1/1 soft; mkfifo pipe; chmod 4750 d3/7; touch -d @1.123456789 d4/8`)
	h.ok("up", "app", ws, "--from", src)
	tree := walk(t, ws)
	same(t, "at once", walk(t, src), tree, treewalk.Options{})
	shell(t, soon, ws, `echo edited >> d1/1; rm -r d2; mv d3 moved`)
	id := h.ok("snapshot", "app")
	tree = walk(t, ws)
	for range 3 {
		pid := h.pid()
		require.NoError(t, unix.Kill(pid, unix.SIGKILL))
		gone(t, pid)
		shell(t, soon, src, `echo changed meanwhile > d4/1`)
		h.ok("up", "app", ws)
		same(t, "after a kill", tree, walk(t, ws), treewalk.Options{})
	}
	h.ok("export", id, h.path("image.sqsh"))
	require.Nil(t, h.workspace("app").Import)
	same(t, "imported", tree, walk(t, ws), treewalk.Options{Ino: true})
	h.ok("restore", id, h.path("back"))
	same(t, "restored", tree, walk(t, h.path("back")), treewalk.Options{Ino: true})
	require.Empty(t, decode[sandbox.CheckResult](h, "check", "--read-data").Problems)

	h.ok("create", "first", "--from", src, "--wait", "imported")
	require.Nil(t, h.workspace("first").Import)
	require.Contains(t, h.ok("run", "--from", src, "--discard", "--", "cat", "d4/1"), "changed meanwhile")
}
