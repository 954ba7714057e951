package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/sandbox"
)

// broken is an image of testdata/broken.
func broken(name string) string {
	path, err := filepath.Abs(filepath.Join("../../testdata/broken", name+".sqsh"))
	if err != nil {
		panic(err)
	}
	return path
}

// TestBadInput tries what people get wrong: one clear line, the documented code, nothing half made.
func TestBadInput(t *testing.T) {
	h := newHome(t)
	h.ok("create", "taken")
	h.ok("up", "mounted", h.path("ws"))
	id := h.ok("snapshot", "mounted", "--name", "snap")
	h.ok("snapshot", "mounted", "--name", "twin")
	h.ok("create", "theirs", "--session", "theirs")
	h.ok("snapshot", "theirs", "--session", "theirs", "--name", "their-snap")
	file := h.write("file", "no directory")
	h.makeDir("full")
	text := h.write("text.sqsh", "this is no image")
	h.ok("export", "snap", "good.sqsh")
	shell(t, soon, h.tmp, `head -c 100 good.sqsh > short.sqsh; mkdir inside; mkfifo pipe`)
	before := names(t, h.tmp)

	for _, test := range []struct {
		code int
		text string
		args string
	}{
		{3, "/no/such/dir", "create x --from /no/such/dir"},
		{3, "/no/such/dir", "up x MNT/up --from /no/such/dir"},
		{2, "", "create x --from " + file},
		{2, "", "create x --from pipe"},
		{2, "not a squashfs image", "create x --from " + text},
		{6, "", "create x --from short.sqsh"},
		{6, "directory", "create x --from " + broken("dir-contains-itself")},
		{6, "directory", "create x --from " + broken("dir-contains-root")},
		{6, "directory", "create x --from " + broken("dir-listing-shared")},
		{3, "no-such-snapshot", "create x --from no-such-snapshot"},
		{4, "taken", "create taken"},
		{2, "", "create Upper"},
		{2, "", "create -- -dash"},
		{2, "", "create a/b"},
		{2, "", "create .."},
		{2, "", "create " + strings.Repeat("x", 64)},
		{2, "", "create " + strings.Repeat("x", 10000)},
		{2, "", "create x_y"},
		{2, "", "create é"},
		{2, "session", "create x --session ../x"},
		{3, "nobody", "mount nobody MNT/nobody"},
		{3, "parent", "mount taken /no/such/parent/dir"},
		{2, "directory", "mount taken " + file},
		{4, "", "mount taken MNT/ws"},
		{4, "", "mount mounted MNT/other"},
		{3, "nobody", "umount nobody"},
		{3, "nobody", "snapshot nobody"},
		{4, "snap", "snapshot mounted --name snap"},
		{2, "", "snapshot mounted --name a\x01b"},
		{3, "unknown", "restore unknown MNT/unknown"},
		{3, "unknown", "branch unknown MNT/unknown"},
		{3, "", "restore 00000000-0000-7000-8000-000000000000"},
		{3, "", "restore ../../etc"},
		{3, "", "restore a/b"},
		{3, "", "branch .."},
		{2, "", "restore " + strings.Repeat("x", 10000)},
		{2, "", "rollback mounted " + strings.Repeat("x", 10000)},
		{2, "", "show a\x01b"},
		{2, "ref", "restore {}"},
		{2, "of workspace", `restore {"providerId":"snapfs","ref":{"snapshot":"` + id + `","workspace":"taken"}}`},
		{2, "providerId", `branch {"providerId":"else","ref":{"snapshot":"` + id + `","workspace":"mounted"}}`},
		{2, "unknown field", `create x --from {"providerId":"snapfs","ref":{"snapshot":"` + id + `","workspace":"mounted"},"more":1}`},
		{3, "unknown", "rollback mounted unknown"},
		{4, "not paused", "resume mounted"},
		{4, "control group", "snapshot mounted --consistent"},
		{2, "exclude", "stats snap --of-session"},
		{2, "exclude", "diff snap mounted --stat --patch"},
		{5, "theirs", "rollback theirs snap"},
		{5, "theirs", "pause theirs"},
		{5, "theirs", "fork theirs"},
		{5, "theirs", "log theirs"},
		{4, "", "restore snap MNT/ws"},
		{2, "directory", "restore snap " + file},
		{3, "parent", "restore snap MNT/no/parent"},
		{4, "several", "show " + id[:8]},
		{3, "unknown", "show unknown"},
		{3, "unknown", "diff unknown"},
		{3, "unknown", "diff snap unknown"},
		{3, "unknown", "stats unknown"},
		{3, "unknown", "delete unknown"},
		{3, "nobody", "destroy nobody"},
		{4, "mounted", "destroy mounted"},
		{3, "unknown", "export unknown x.sqsh"},
		{3, "", "export snap /no/such/dir/x.sqsh"},
		{2, "", "export snap MNT/full"},
		{2, "", "export snap x.sqsh --compression zip"},
		{5, "theirs", "mount theirs MNT/theirs"},
		{5, "their-snap", "restore their-snap"},
		{5, "theirs", "destroy theirs"},
		{2, "", "snapshots --after nonsense"},
		// Paths inside a mount of the same daemon, which cannot wait for itself.
		{2, "inside the mount", "create x --from MNT/ws"},
		{2, "inside the mount", "export snap MNT/ws/x.sqsh"},
	} {
		args := strings.Split(strings.ReplaceAll(test.args, "MNT", h.tmp), " ")
		h.fails(test.code, test.text, args...)
	}
	require.Equal(t, before, names(t, h.tmp), "nothing was made")
	require.Len(t, decode[sandbox.WorkspacePage](h, "list").Workspaces, 2)
	require.Len(t, decode[sandbox.SnapshotPage](h, "snapshots").Snapshots, 2)
	require.Len(t, mountsBelow(h.tmp), 1)

	// Another session's, with the door opened.
	require.Regexp(t, `^theirs-restored-`, h.ok("restore", "their-snap", "--allow-cross-session"))
}

// names lists a directory, but for the home.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestBusy(t *testing.T) {
	h := newHome(t)
	h.ok("up", "busy", h.path("ws"))
	sleeper := start(t, h, h.path("ws"), "sleep", "60")
	h.fails(4, "", "umount", "busy")
	shell(t, soon, h.path("ws"), `echo still > here`)
	h.ok("umount", "busy", "--force")
	require.Empty(t, mountsBelow(h.tmp))
	sleeper()
	h.ok("up", "busy", h.path("ws"))
	require.Equal(t, "still\n", shell(t, soon, h.path("ws"), `cat here`))
}

// TestMountAgain holds what asking twice does, and that a mount covers what is in a directory, as mount(8) does.
func TestMountAgain(t *testing.T) {
	h := newHome(t)
	h.write("full/covered", "below\n")
	require.Equal(t, "twice on "+h.path("full"), h.ok("up", "twice", h.path("full")))
	require.Equal(t, "twice on "+h.path("full"), h.ok("up", "twice", h.path("full")))
	require.Equal(t, "twice on "+h.path("full"), h.ok("mount", "twice", h.path("full")))
	shell(t, soon, h.path("full"), `test ! -e covered; echo above > seen`)
	require.Equal(t, "twice is unmounted", h.ok("umount", "twice"))
	require.Equal(t, "twice is unmounted", h.ok("umount", "twice"))
	shell(t, soon, h.path("full"), `test ! -e seen; grep -q below covered`)
}

// TestDeadMount has the daemon killed: what it leaves at the mountpoint is in nobody's way.
func TestDeadMount(t *testing.T) {
	h := newHome(t)
	ws := h.path("ws")
	for _, verb := range [][]string{{"up", "dead", ws}, {"mount", "dead", ws}, {"mount", "dead"}, {"umount", "dead"}} {
		h.ok("up", "dead", ws)
		shell(t, soon, ws, `echo kept >> file`)
		pid := h.pid()
		require.NoError(t, unix.Kill(pid, unix.SIGKILL))
		gone(t, pid)
		h.ok(verb...)
	}
	require.Empty(t, mountsBelow(h.tmp))
	h.ok("up", "dead", ws)
	require.Equal(t, "4\n", shell(t, soon, ws, `grep -c kept file`))
	h.ok("snapshot", "dead", "--name", "s")
	h.ok("create", "other")
	pid := h.pid()
	require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	gone(t, pid)
	h.ok("restore", "s", h.path("back"))
	require.Equal(t, "4\n", shell(t, soon, h.path("back"), `grep -c kept file`))
	require.Equal(t, "4\n", shell(t, soon, ws, `grep -c kept file`), "mounted again by the verb before")
}

// TestDetached unmounts a workspace of which another mount namespace has a copy.
func TestDetached(t *testing.T) {
	h := newHome(t)
	h.ok("up", "ws", h.path("ws"))
	// Until the namespace is there, the unmount below would find no copy.
	holder := start(t, h, "/", "unshare", "--mount", "--propagation", "private", "sh", "-c", `echo > "$1"; exec sleep 60`, "sh", h.path("ready"))
	shell(t, soon, h.tmp, `until test -e ready; do sleep 0.05; done; rm ready`)
	r := h.run("umount", "ws")
	require.Zero(t, r.code, r.err)
	require.Equal(t, "ws is detached\n", r.out)
	require.Contains(t, r.err, "snapfs umount --force ws")
	require.Equal(t, sandbox.Detached, h.workspace("ws").State)
	h.fails(4, "sleep", "umount", "ws")
	require.Equal(t, "ws is unmounted", h.ok("umount", "ws", "--force"))
	holder()
	h.ok("destroy", "ws")
}

// TestKernelForced: what programs hold of a kernel mount is left to them by force, and not said to end by it.
func TestKernelForced(t *testing.T) {
	h := newHome(t)
	h.ok("up", "ws", h.path("ws"), "--engine", "kernel")
	h.ok("snapshot", "ws", "--name", "s")
	holder := start(t, h, h.path("ws"), "sh", "-c", `echo >"$1"; echo >kept; exec sleep 60`, "sh", h.path("ready"))
	shell(t, soon, h.tmp, `until test -e ready -a -e ws/kept; do sleep 0.05; done; rm ready`)
	h.fails(4, "(sleep) with its working directory", "rollback", "ws", "s")
	r := h.run("rollback", "ws", "s", "--force")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.err, "what was unsaved is snapshot")
	require.NoFileExists(t, h.path("ws/kept"))
	holder()
	holder = start(t, h, "/", "unshare", "--mount", "--propagation", "private", "sh", "-c", `echo > "$1"; exec sleep 60`, "sh", h.path("ready"))
	shell(t, soon, h.tmp, `until test -e ready; do sleep 0.05; done`)
	r = h.run("umount", "ws")
	require.Zero(t, r.code, r.err)
	require.Equal(t, "ws is detached\n", r.out)
	require.Contains(t, r.err, "it ends when these end")
	require.NotContains(t, r.err, "--force")
	h.fails(4, "nothing to undo", "undo", "ws", "--force")
	require.Equal(t, sandbox.Detached, h.workspace("ws").State)
	h.ok("rollback", "ws", "s", "--force")
	require.Equal(t, sandbox.Unmounted, h.workspace("ws").State)
	holder()
}

// TestForeignHome holds that a directory that is not ours is refused and not written to.
func TestForeignHome(t *testing.T) {
	h := newHome(t)
	shell(t, soon, h.tmp, `mkdir home && echo mine > home/precious && mkdir home/chunks`)
	before := walk(t, h.dir)
	for _, args := range [][]string{{"list"}, {"create", "x"}, {"serve"}} {
		r := h.run(args...)
		require.Contains(t, []int{2, 3, 4, 6}, r.code, "%q: %s", args, r.err)
		require.Equal(t, 1, strings.Count(r.err, "\n"), r.err)
	}
	same(t, "a foreign directory", before, walk(t, h.dir), treewalkAll)
}

// TestMissingHome holds that what only looks makes no home.
func TestMissingHome(t *testing.T) {
	h := newHome(t)
	for _, verb := range []string{
		"list", "snapshots", "stats", "check", "gc", "show x", "diff x", "umount x", "mount x MNT", "restore x", "delete x",
		"destroy x",
	} {
		h.fails(3, "does not exist", strings.Fields(strings.ReplaceAll(verb, "MNT", h.path("mnt")))...)
	}
	h.fails(7, "no daemon", "status")
	h.ok("stop")
	require.Empty(t, names(t, h.tmp))
}

// TestTruncatedHome cuts files of a stopped home short, one after the other. It may refuse or go on, but never hang,
// crash or give back wrong data.
func TestTruncatedHome(t *testing.T) {
	h := newHome(t)
	h.ok("up", "one", h.path("ws"))
	tree(t, h.path("ws"))
	h.ok("snapshot", "one", "--name", "s", "--wait", "stored")
	h.ok("stop")
	sum := `find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum`
	h.ok("restore", "s", h.path("good"))
	want := shell(t, soon, h.path("good"), sum)
	h.ok("umount", "one-restored-"+suffix(t, h))
	h.ok("stop")
	shell(t, soon, h.tmp, `cp -a home pristine`)
	var files []string
	require.NoError(t, filepath.WalkDir(h.path("pristine"), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.Contains(path, "/upper") && filepath.Base(path) != "daemon.log" {
			files = append(files, strings.TrimPrefix(path, h.path("pristine")+"/"))
		}
		return err
	}))
	require.NotEmpty(t, files)
	for _, f := range files {
		shell(t, soon, h.tmp, `rm -rf home && cp -a pristine home && truncate -s $(($(stat -c %s "home/$1") / 2)) "home/$1"`, f)
		r := h.run("restore", "s", h.path("cut"))
		switch r.code {
		case 0:
			got := process(t, soon, h.path("cut"), nil, "bash", "-c", "set -o pipefail; "+sum)
			if got.code == 0 && got.out != want {
				t.Errorf("%s cut short: wrong data without an error", f)
			}
			h.ok("umount", strings.TrimSpace(r.out))
		case 2, 3, 6, 7:
		default:
			t.Errorf("%s cut short: code %d: %s", f, r.code, r.err)
		}
		t.Logf("%s: %d %s", f, r.code, strings.TrimSpace(r.err))
		h.run("stop")
	}
}

// TestRepair damages a stored file: check names the snapshot, and after check --repair the same contents can be stored
// and read again.
func TestRepair(t *testing.T) {
	h := newHome(t)
	src := h.path("src")
	shell(t, soon, h.tmp, `mkdir src && head -c 3000000 /dev/urandom >src/noise && echo text >src/text`)
	h.ok("create", "one", "--from", src)
	h.ok("snapshot", "one", "--name", "s", "--wait", "stored")
	h.ok("stop")
	shell(t, soon, h.tmp, `p=$(ls -S home/store/packs/* | head -n 1) &&
		printf damaged | dd of="$p" bs=1 seek=$(($(stat -c %s "$p") / 2)) conv=notrunc status=none`)
	if r := h.run("check", "--read-data"); r.code != 6 || !strings.Contains(r.out, "hits") {
		t.Fatalf("check of a damaged store: code %d: %s%s", r.code, r.out, r.err)
	}
	if r := h.run("check", "--read-data", "--repair"); r.code != 6 {
		t.Fatalf("repair: code %d: %s%s", r.code, r.out, r.err)
	}
	h.ok("create", "two", "--from", src)
	h.ok("mount", "two", h.path("two"))
	shell(t, soon, h.tmp, `cmp src/noise two/noise && cmp src/text two/text`)
	h.ok("umount", "two")
}

// suffix is the short part of the only restored workspace's name.
func suffix(t *testing.T, h *home) string {
	t.Helper()
	for _, ws := range decode[sandbox.WorkspacePage](h, "list").Workspaces {
		if _, short, ok := strings.Cut(ws.ID, "-restored-"); ok {
			return short
		}
	}
	t.Fatal("no restored workspace")
	return ""
}
