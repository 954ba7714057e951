package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/testseed"
	"snapfs/internal/treewalk"
	"snapfs/sandbox"
)

// TestExtractKilled kills the daemon in the middle of restores into a directory. The same command continues each time,
// and the tree is the snapshot's in the end.
func TestExtractKilled(t *testing.T) {
	rng := newRand(testseed.Of(t))
	h := newHome(t)
	ws := h.path("ws")
	h.ok("up", "one", ws)
	shell(t, soon, ws, `for d in $(seq 60); do
			mkdir -p d$d/sub; for f in $(seq 80); do echo $d $f > d$d/f$f; done; chmod 500 d$d/sub; done
		head -c 30000000 /dev/urandom > noise; ln noise d1/linked; ln -s nowhere d2/link; mkfifo d3/pipe; truncate -s 1G sparse
		setfattr -n user.x -v y d4; chown -R 5:6 d5; touch -d 2001-02-03 d6; chmod 751 .`)
	id := h.ok("snapshot", "one", "--wait", "stored")
	want := walk(t, ws)
	h.ok("umount", "one")
	got, met := h.path("got"), 0
	for try := 0; met < 3 && try < 40; try++ {
		if interrupt(h, id, got, time.Duration(rng.IntN(60))*time.Millisecond) {
			met++
		} else {
			require.NoError(t, os.RemoveAll(got))
		}
	}
	t.Logf("%d interrupted restores", met)
	r := decode[sandbox.ExtractResult](h, "restore", id, "--to", got)
	require.Zero(t, r.Skipped)
	same(t, "restored", want, walk(t, got), treewalk.Options{})
	again := decode[sandbox.ExtractResult](h, "restore", id, "--to", got)
	require.Equal(t, r.Files, again.Kept)
	same(t, "repeated", want, walk(t, got), treewalk.Options{})
}

// interrupt kills the daemon some time after a restore has begun, and reports whether that was in its middle.
func interrupt(h *home, id, got string, after time.Duration) bool {
	h.t.Helper()
	h.ok("list") // which starts a daemon
	pid := h.pid()
	end := start(h.t, h, h.tmp, snapfs, "restore", id, "--to", got)
	defer end()
	begun := func() bool {
		marks, err := filepath.Glob(got + "/.snapfs-restore*")
		return err == nil && len(marks) > 0
	}
	for deadline := time.Now().Add(soon); !begun(); time.Sleep(time.Millisecond) {
		if names, err := os.ReadDir(got); err == nil && len(names) > 0 && !begun() || time.Now().After(deadline) {
			break // it is over already
		}
	}
	time.Sleep(after)
	require.NoError(h.t, unix.Kill(pid, unix.SIGKILL))
	gone(h.t, pid)
	return begun()
}

// TestExtractHostile gives images that are made to do harm to import and to export --to: they are refused in a line,
// and nothing is written outside the directory.
func TestExtractHostile(t *testing.T) {
	h := newHome(t)
	h.write("outside/f", "precious")
	before := walk(t, h.path("outside"))
	for name, says := range map[string]string{
		"dir-contains-itself": "parent inode", "dir-contains-root": "parent inode", "dir-twice": "more than one name",
		"dir-listing-shared": "parent inode", "dir-name-twice": "there twice", "name-slash": "slash", "name-nul": "nul",
		"name-dot": "reserved name", "name-dotdot": "reserved name", "name-256": "too long",
		"file-size-negative": "bytes", "file-size-exabytes": "", "symlink-claims-gigabytes": "symlink", "file-bomb": "unpack",
	} {
		h.fails(6, says, "create", name, "--from", broken(name))
	}
	images, err := filepath.Glob(filepath.Dir(broken("sound")) + "/*.sqsh")
	require.NoError(t, err)
	require.NotEmpty(t, images)
	pid := h.pid()
	for _, image := range images {
		name := "t-" + strings.TrimSuffix(filepath.Base(image), ".sqsh")
		if h.run("create", name, "--from", image).code != 0 {
			continue
		}
		id := h.ok("snapshot", name, "--wait", "stored")
		to := h.path("to-" + name)
		r := h.runFor(time.Minute, "export", id, "--to", to)
		if r.code != 0 && (r.code > 7 || strings.Count(r.err, "\n") != 1) {
			t.Errorf("%s: export --to ended with %d: %s", name, r.code, tail(r.err))
		}
		require.NoError(t, exec.Command("rm", "-rf", to).Run())
		h.ok("destroy", name)
		h.ok("delete", id)
	}
	require.Equal(t, pid, h.pid(), "the daemon is the same")
	same(t, "outside", before, walk(t, h.path("outside")), treewalk.Options{})
}
