package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tinyHistory is three states with an edit, a new file, a removal, a type change and a link.
func tinyHistory(t *testing.T) history {
	t.Helper()
	dir := t.TempDir()
	b := &builder{name: "tiny", ws: filepath.Join(dir, "ws"), dir: dir, bar: newProgress(os.Stderr), since: time.Now().Add(-time.Minute)}
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "states"), 0o755))
	h := history{name: "tiny"}
	freeze := func() {
		require.NoError(t, b.freeze(t.Context()))
		h.states = append(h.states, b.prev)
	}
	require.NoError(t, b.write("a/one", strings.Repeat("one\n", 2000)))
	require.NoError(t, b.write("a/two", "two"))
	require.NoError(t, b.write("b/three", "three"))
	require.NoError(t, os.Symlink("a/one", filepath.Join(b.ws, "link")))
	freeze()
	require.NoError(t, b.edit("a/one", "one\none\n", "one\nuno\n"))
	require.NoError(t, os.RemoveAll(filepath.Join(b.ws, "b")))
	require.NoError(t, b.write("c/d/four", "four"))
	freeze()
	require.NoError(t, os.Remove(filepath.Join(b.ws, "link")))
	require.NoError(t, os.RemoveAll(filepath.Join(b.ws, "c/d")))
	require.NoError(t, b.write("c/d", "no directory now"))
	require.NoError(t, b.write("link", "a file now"))
	require.NoError(t, os.Chmod(filepath.Join(b.ws, "a/two"), 0o755))
	freeze()
	return h
}

func TestFreeze(t *testing.T) {
	h := tinyHistory(t)
	added, gone, err := changed(t.Context(), h.states[0], h.states[1])
	require.NoError(t, err)
	require.Equal(t, []string{"a/one", "c", "c/d", "c/d/four"}, added)
	require.Equal(t, []string{"b"}, gone)
	fi, err := os.Stat(filepath.Join(h.states[1], "a/one"))
	require.NoError(t, err)
	require.Equal(t, int64(1_700_003_600), fi.ModTime().Unix(), "the step's time, wherever it is built")
	a, err := os.Stat(filepath.Join(h.states[0], "a/two"))
	require.NoError(t, err)
	b, err := os.Stat(filepath.Join(h.states[1], "a/two"))
	require.NoError(t, err)
	require.True(t, os.SameFile(a, b), "unchanged files are links")
	infos, err := inspectAll(t.Context(), &env{bar: newProgress(os.Stderr)}, h)
	require.NoError(t, err)
	require.NotEqual(t, infos[0].contents, infos[1].contents)
	require.NotEqual(t, infos[1].contents, infos[2].contents)
	require.Equal(t, 4, infos[1].files)
}

// TestPeers: every peer that is installed restores every state, before and after deleting some.
func TestPeers(t *testing.T) {
	h := tinyHistory(t)
	e := &env{work: t.TempDir(), bar: newProgress(os.Stderr)}
	infos, err := inspectAll(t.Context(), e, h)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	for _, p := range allPeers() {
		if p.name == "snapfs" || p.name == "borg zstd" || p.name == "btrfs zstd" {
			continue // covered by the suite itself; they need a mount or a minute
		}
		if gone := missing(p.programs); len(gone) > 0 {
			t.Logf("%s: missing %v", p.name, gone)
			continue
		}
		r := &report{}
		require.NoError(t, measurePeer(ctx, e, r, h, infos, 1, p), p.name)
		require.NotEmpty(t, r.Metrics)
	}
	left, err := os.ReadDir(e.work)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestVerifyFindsLoss(t *testing.T) {
	h := tinyHistory(t)
	want, err := inspect(t.Context(), h.states[1])
	require.NoError(t, err)
	for name, spoil := range map[string]func(dest string) error{
		"contents": func(d string) error { return os.WriteFile(filepath.Join(d, "a/two"), []byte("twx"), 0o644) },
		"time":     func(d string) error { return os.Chtimes(filepath.Join(d, "a/two"), time.Unix(1, 1), time.Unix(1, 1)) },
		"lost":     func(d string) error { return os.Remove(filepath.Join(d, "link")) },
	} {
		k := breaking{state: h.states[1], spoil: spoil}
		_, err := verifyRestore(t.Context(), k, 1, filepath.Join(t.TempDir(), "out"), want, true)
		require.ErrorContains(t, err, "differ", name)
	}
}

// breaking restores with a flaw.
type breaking struct {
	keeper
	state string
	spoil func(dest string) error
}

func (b breaking) restore(ctx context.Context, _ int, dest string) error {
	if err := (tool{}).run(ctx, "cp", "-a", b.state+"/.", dest); err != nil {
		return err
	}
	return b.spoil(dest)
}

func TestReport(t *testing.T) {
	dir := t.TempDir()
	r := &report{Suite: "s", About: map[string]string{"c": "a case"}, charts: []string{"stored"}, Machine: machine{CPU: "x"}}
	r.add(metric{Case: "c", Subject: "snapfs", Name: "stored", Unit: "MB", Value: 4})
	r.add(metric{Case: "c", Subject: "git", Name: "stored", Unit: "MB", Value: 5})
	r.add(metric{Case: "c", Subject: "git", Name: "speed", Unit: "MB/s", Value: 100, More: true})
	r.note("restic: missing")
	require.NoError(t, r.save(dir))
	for _, f := range []string{"s.json", "s-c-stored-light.svg", "s-c-stored-dark.svg"} {
		require.FileExists(t, filepath.Join(dir, f))
	}
	var out bytes.Buffer
	r.print(&out)
	require.Contains(t, out.String(), "restic: missing")
	require.Contains(t, out.String(), "stored MB")

	r.Metrics[0].Value, r.Metrics[2].Value = 3, 80
	newer := filepath.Join(dir, "new")
	require.NoError(t, r.save(newer))
	out.Reset()
	require.NoError(t, compareReports(&out, filepath.Join(dir, "s.json"), filepath.Join(newer, "s.json")))
	require.Regexp(t, `(?s)WORSE\s+c\s+git\s+speed.*better\s+c\s+snapfs\s+stored`, out.String())
}

func TestGitHistory(t *testing.T) {
	repo := t.TempDir()
	g := tool{dir: repo, env: []string{
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@t", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@t", "GIT_CONFIG_GLOBAL=/dev/null",
	}}
	require.NoError(t, g.run(t.Context(), "git", "init", "--quiet"))
	for i := range 7 {
		require.NoError(t, os.WriteFile(filepath.Join(repo, "f"), bytes.Repeat([]byte{'x'}, i+1), 0o644))
		require.NoError(t, g.run(t.Context(), "git", "add", "f"))
		require.NoError(t, g.run(t.Context(), "git", "commit", "--quiet", "-m", "c"))
	}
	e := &env{work: t.TempDir(), bar: newProgress(os.Stderr), repo: repo, every: 3, limit: 2}
	h, err := e.commits(t.Context())
	require.NoError(t, err)
	require.Len(t, h.states, 2)
	for i, want := range []string{"xxxx", "xxxxxxx"} {
		got, err := os.ReadFile(filepath.Join(h.states[i], "f"))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
}

func TestCommandCancelled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := tool{}.run(ctx, "sh", "-c", "sleep 60 & sleep 60")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(start), 20*time.Second, "children of children end as well")
}
