package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/sandbox"
)

// reads gives what 'snapfs reads' lists, as lines "content,attributes path".
func (h *home) reads(name string) []string {
	h.t.Helper()
	return strings.Split(h.ok("reads", name), "\n")
}

// readsSource makes a directory whose programs are of interest.
func readsSource(h *home) string {
	shell(h.t, soon, h.makeDir("src"), `mkdir -p dir/sub old; for f in a b c t dir/x dir/sub/y old/z; do seq 9 > $f; done; ln -s a link`)
	return h.path("src")
}

// branch makes a workspace of a snapshot, mounted, that tracks reads.
func (h *home) track(snapshot, name string, more ...string) string {
	at := h.path(name)
	h.ok(append([]string{"branch", snapshot, at, "--name", name, "--track-reads"}, more...)...)
	return at
}

// TestReads compares what programs do with what is recorded, and goes through the life of the record.
func TestReads(t *testing.T) {
	h := newHome(t)
	h.ok("create", "app", "--from", readsSource(h))
	h.ok("snapshot", "app", "--name", "base")
	for _, transport := range []string{"dev", "auto"} {
		name := "one-" + transport
		at := h.track("base", name, "--transport", transport)
		require.Equal(t, []string{""}, h.reads(name))
		shell(t, soon, at, `cat a > /dev/null; ls dir > /dev/null; test ! -e nothing; readlink link > /dev/null
			cp dir/x "$1"/copied; grep -rq 5 dir/sub
			echo own > own; cat own > /dev/null; mkdir mine; echo x > mine/f; cat mine/f mine/none > /dev/null 2>&1 || :
			mv b moved; cat moved > /dev/null
			mv old mine/old; cat mine/old/z > /dev/null
			echo new > c.tmp; mv c.tmp c; cat c > /dev/null
			echo new > t; cat t > /dev/null`, h.tmp)
		want := []string{
			"content,attributes a", "content,attributes b", "attributes c", "missing c.tmp", "listing,attributes dir",
			"listing dir/sub", "content dir/sub/y", "content dir/x", "content,attributes link", "missing mine",
			"missing moved", "missing nothing", "attributes old", "content,attributes old/z", "missing own", "attributes t",
		}
		got := h.reads(name)
		require.Equal(t, want, settled(got), "%s", strings.Join(got, "\n"))
		// It lasts over an unmount, and a mount that does not ask for it goes on.
		h.ok("umount", name)
		require.Equal(t, got, h.reads(name))
		h.ok("mount", name, at)
		shell(t, soon, at, `cat dir/x > /dev/null; cat moved`)
		h.ok("rename", name, name+"-2")
		require.Equal(t, want, settled(h.reads(name+"-2")))
		h.ok("down", name+"-2")
	}
	var doc struct {
		sandbox.ReadsResult
		Reads []sandbox.Read
	}
	require.NoError(t, json.Unmarshal([]byte(h.ok("--json", "reads", "one-dev-2")), &doc))
	require.True(t, doc.Tracked)
	require.Empty(t, doc.Gaps)
	require.NotNil(t, doc.Since)
	require.Contains(t, doc.Reads, sandbox.Read{Path: "dir/x", Kinds: []string{"content", "attributes"}})
	h.fails(2, "track", "mount", "base", h.path("view"), "--read-only", "--track-reads")
	h.ok("mount", "app", h.path("app"))
	h.fails(4, "track_reads", "mount", "app", h.path("app"), "-o", "remount,track_reads")
	require.Contains(t, h.run("reads", "app").err, "does not track")
}

// settled leaves out of a list of reads what depends on the kernel: that the root was looked at, and attributes of what
// a listing had told.
func settled(lines []string) []string {
	var out []string
	for _, l := range lines {
		if strings.HasSuffix(l, " .") {
			continue
		}
		if kinds, path, _ := strings.Cut(l, " "); strings.HasPrefix(path, "dir/") {
			l = strings.TrimSuffix(kinds, ",attributes") + " " + path
		}
		out = append(out, l)
	}
	return out
}

// stale is what an apply tells of stale reads, as "content,listing path M".
func stale(r sandbox.ApplyResult) []string {
	lines := []string{}
	for _, x := range r.StaleReads {
		lines = append(lines, fmt.Sprintf("%s %s %s", strings.Join(x.Kinds, ","), x.Path, x.Change))
	}
	return lines
}

// refused is the result of an apply that --serializable refuses.
func (h *home) refused(args ...string) sandbox.ApplyResult {
	h.t.Helper()
	r := h.run(append([]string{"--json", "apply", "--serializable"}, args...)...)
	require.Equal(h.t, 4, r.code, "%s%s", r.out, r.err)
	require.Contains(h.t, r.err, "nothing was changed")
	var got sandbox.ApplyResult
	require.NoError(h.t, json.Unmarshal([]byte(r.out), &got))
	require.False(h.t, got.Applied)
	return got
}

// TestApplyReads lets attempts read what others change.
func TestApplyReads(t *testing.T) {
	h := newHome(t)
	h.ok("create", "app", "--from", readsSource(h))
	h.ok("snapshot", "app", "--name", "base")

	// Write skew: each reads what the other writes. Texts would merge.
	one, two := h.track("base", "one"), h.track("base", "two")
	shell(t, soon, one, `wc -l < a > b`)
	shell(t, soon, two, `wc -l < b > a`)
	got := decode[sandbox.ApplyResult](h, "apply", "one", "--serializable")
	require.True(t, got.Applied)
	require.Empty(t, got.StaleReads)
	require.Equal(t, []string{"content b M"}, stale(h.refused("two")))
	text := h.run("apply", "two", "--serializable")
	require.Equal(t, 4, text.code)
	require.Equal(t, "S b (content; modified)\n", text.out)
	require.Empty(t, h.ok("diff", got.After, "app"), "nothing was changed")
	again := h.run("apply", "two")
	require.Zero(t, again.code, again.err)
	require.Contains(t, again.err, "warning: app changed what programs in two have read: b (content; modified)")

	// One that read nothing of it, and one of which it is not known.
	h.ok("snapshot", "app", "--name", "next")
	quiet := h.track("next", "quiet")
	shell(t, soon, quiet, `cat c > /dev/null; echo q > q`)
	h.ok("branch", "next", h.path("untracked"), "--name", "untracked")
	shell(t, soon, h.path("untracked"), `echo u > u`)
	late := h.path("late")
	h.ok("branch", "next", late, "--name", "late")
	shell(t, soon, late, `echo l > l`)
	h.ok("umount", "late")
	h.ok("mount", "late", late, "--track-reads")
	h.ok("apply", "untracked", "--serializable") // the target has not changed
	require.Contains(t, strings.Join(h.refused("late").ReadGaps, ""), "was in use before")
	got = decode[sandbox.ApplyResult](h, "apply", "quiet", "--serializable")
	require.True(t, got.Applied)
	require.Contains(t, strings.Join(h.refused("untracked").ReadGaps, ""), "does not track")

	// All kinds, and names that the attempt itself has moved.
	h.ok("snapshot", "app", "--name", "third")
	kinds := h.track("third", "kinds")
	shell(t, soon, kinds, `ls dir > /dev/null; test ! -e gone; test -e t; mv old older; cat older/z > /dev/null; cat link > /dev/null`)
	change := h.path("change")
	h.ok("branch", "third", change, "--name", "change")
	shell(t, soon, change, `touch dir/new gone; rm t; echo z >> old/z; chmod 600 dir/x; rm link; ln -s b link; echo more >> dir/x; echo more >> dir/sub/y`)
	h.ok("apply", "change")
	require.Equal(t, []string{
		"listing dir A", "missing gone A", "content link M", "content old/z M", "attributes t D",
	}, stale(h.refused("kinds")))
	require.Equal(t, []string{"applied"}, []string{appliedWord(decode[sandbox.ApplyResult](h, "apply", "kinds"))})

	// What was applied before is no read that is stale, and what a workspace was branched from counts.
	shell(t, soon, kinds, `echo again > again`)
	require.NotContains(t, strings.Join(stale(decode[sandbox.ApplyResult](h, "apply", "kinds", "--dry-run")), " "), "older")
	h.ok("snapshot", "app", "--name", "deep")
	parent := h.track("deep", "parent")
	shell(t, soon, parent, `cat a > /dev/null; mv c c2; echo p > p`)
	h.ok("snapshot", "parent", "--name", "turned")
	child := h.track("turned", "child")
	shell(t, soon, child, `cat c2 > /dev/null; echo c > child`)
	h.ok("branch", "deep", h.path("other"), "--name", "other")
	shell(t, soon, h.path("other"), `echo a >> a; echo c >> c`)
	h.ok("apply", "other", "--to", "app")
	require.Equal(t, []string{"content c2 M", "content a M"}, stale(h.refused("child", "--to", "app")))
	h.ok("destroy", "parent", "--now", "--force")
	require.Contains(t, strings.Join(h.refused("child", "--to", "app").ReadGaps, ""), "is gone")
}

// TestApplyReadsHome lets what a workspace was made from change meanwhile: a directory of the host.
func TestApplyReadsHome(t *testing.T) {
	h := newHome(t)
	src := readsSource(h)
	at := h.path("one")
	h.ok("up", "one", at, "--from", src, "--track-reads")
	shell(t, soon, at, `cat a > /dev/null; ls dir > /dev/null; echo n > n`)
	got := decode[sandbox.ApplyResult](h, "apply", "one", "--dry-run", "--serializable")
	require.Empty(t, got.StaleReads)
	shell(t, soon, src, `echo more >> a; touch dir/new; echo more >> b`)
	require.Equal(t, []string{"content a M", "listing dir A"}, stale(h.refused("one")))
	require.NoFileExists(t, src+"/n")
	r := h.run("apply", "one")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.err, "warning: "+src+" changed what programs in one have read: a (content; modified)")
	require.FileExists(t, src+"/n")
	h.ok("apply", "--undo", src)
	require.NoFileExists(t, src+"/n")
}

func appliedWord(r sandbox.ApplyResult) string {
	if r.Applied {
		return "applied"
	}
	return "refused"
}

// TestReadsLost undoes turns, kills the daemon and damages the record: what was read stays known, or that it is not.
func TestReadsLost(t *testing.T) {
	h := newHome(t)
	h.ok("create", "app", "--from", readsSource(h))
	h.ok("snapshot", "app", "--name", "base")
	at := h.track("base", "one")
	shell(t, soon, at, `mv a moved; echo x > b; rm c`)
	h.ok("turn", "one")
	shell(t, soon, at, `mv moved again`)
	h.ok("turn", "one")
	h.ok("undo", "one")
	shell(t, soon, at, `cat moved > /dev/null`)
	require.Contains(t, h.reads("one"), "content,attributes a")
	h.ok("umount", "one")
	h.ok("undo", "one")
	h.ok("mount", "one")
	shell(t, soon, at, `cat b c > /dev/null`)
	got := h.reads("one")
	require.Contains(t, got, "content,attributes b")
	require.Contains(t, got, "content,attributes c")
	require.NotContains(t, h.run("reads", "one").err, "missing")

	require.NoError(t, unix.Kill(h.pid(), unix.SIGKILL))
	shell(t, soon, h.tmp, `echo t >> t`) // not of the workspace
	h.ok("list")
	r := h.run("reads", "one")
	require.Zero(t, r.code)
	require.Contains(t, r.err, "reads may be missing: workspace one: the process that served the workspace ended")
	h.ok("branch", "base", h.path("other"), "--name", "other")
	shell(t, soon, h.path("other"), `echo t >> t`)
	shell(t, soon, at, `echo n > n`)
	h.ok("apply", "other", "--to", "app")
	require.Contains(t, strings.Join(h.refused("one", "--to", "app").ReadGaps, ""), "ended before")
	h.ok("stop")
	files, err := os.ReadDir(h.dir + "/reads")
	require.NoError(t, err)
	require.Len(t, files, 1)
	h.ok("destroy", "one", "--now", "--force")
	h.ok("stop")
	files, err = os.ReadDir(h.dir + "/reads")
	require.NoError(t, err)
	require.Empty(t, files)
}
