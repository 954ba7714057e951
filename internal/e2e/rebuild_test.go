package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRebuildIndex damages the index of a stopped home: every verb names the command that mends it, which does, and
// nothing is lost.
func TestRebuildIndex(t *testing.T) {
	h := newHome(t)
	h.ok("up", "one", h.path("ws"))
	tree(t, h.path("ws"))
	h.ok("snapshot", "one", "--name", "s", "--wait", "stored")
	shell(t, soon, h.path("ws"), `echo more >more`)
	h.ok("snapshot", "one", "--name", "gone", "--wait", "stored")
	h.ok("delete", "one:gone")
	h.ok("snapshot", "one", "--name", "last", "--wait", "stored")
	sum := `find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum`
	want := shell(t, soon, h.path("ws"), sum)
	before := h.ok("snapshots")
	if r := h.run("check", "--rebuild-index"); r.code != 4 {
		t.Fatalf("beside a daemon: code %d: %s%s", r.code, r.out, r.err)
	}
	h.ok("stop")
	for i, damage := range []string{
		`rm -r home/store/index`, `truncate -s 0 home/store/index/*`, `for f in home/store/index/*.sst; do truncate -s 1000 "$f"; done`,
	} {
		shell(t, soon, h.tmp, damage)
		if r := h.run("list"); r.code != 6 || !strings.Contains(r.err, "check --rebuild-index") {
			t.Fatalf("%s: code %d: %s", damage, r.code, r.err)
		}
		h.ok("check", "--rebuild-index")
		h.ok("check", "--read-data")
		require.Equal(t, before, h.ok("snapshots"))
		dir := h.path("again" + string(rune('a'+i)))
		name := strings.TrimSpace(h.ok("restore", "last", dir))
		require.Equal(t, want, shell(t, soon, dir, sum))
		h.ok("umount", name)
		h.ok("destroy", name)
		h.ok("stop")
	}
	_, err := os.Stat(h.path("home/store/index.old"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
