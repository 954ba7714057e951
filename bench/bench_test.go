package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// tinyHistory is three states with an edit, a new file, a removal, a type change and a link.
func tinyHistory(t testing.TB) history {
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

// TestPeers: every peer stores and restores every state, before and after deleting some, each verified by digest.
func TestPeers(t *testing.T) {
	h := tinyHistory(t)
	for _, p := range allPeers() {
		t.Run(p.name, func(t *testing.T) {
			if !strings.HasPrefix(p.name, "snapfs") {
				oncePerRun(t)
			}
			e := &env{work: t.TempDir(), guard: &guard{}, bar: newProgress(os.Stderr), full: true}
			infos, err := inspectAll(t.Context(), e, h)
			require.NoError(t, err)
			require.Empty(t, missing(p.programs), ".ci/deps installs them")
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			r := &report{}
			require.NoError(t, measurePeer(ctx, e, r, h, infos, p))
			for _, name := range []string{"stored", "store cpu", "store wall", "restore cpu", "restore wall", "verified"} {
				_, ok := valueOf(r.Metrics, p.name, name)
				require.True(t, ok, name)
			}
			if _, ok := valueOf(r.Metrics, p.name, "only newest kept"); !ok {
				require.Contains(t, r.Notes[0], "deleting states is not offered")
			}
			left, err := os.ReadDir(e.work)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// TestOddTrees: trees of users have what the corpora lack. What git cannot keep is said and not looked for; everything else is.
func TestOddTrees(t *testing.T) {
	oncePerRun(t)
	dir := t.TempDir()
	h := history{name: "odd"}
	for i := range 2 {
		s := filepath.Join(dir, string(rune('a'+i)))
		for _, d := range []string{"empty/deeper", "sub/.git", "shut"} {
			require.NoError(t, os.MkdirAll(filepath.Join(s, d), 0o755))
		}
		for name, text := range map[string]string{
			"same size": string(rune('0' + i)), "latin-\xe9\xff": "bytes", "new\nline": "n", "-dash": "d", `quote"'$(x)\`: "q", "shut/secret": "s",
			".gitignore": "*\n", ".gitattributes": "* text eol=crlf\n", "crlf": "a\r\nb\n", strings.Repeat("n", 255): "long", "sub/.git/config": "[core]\n",
		} {
			p := filepath.Join(s, name)
			require.NoError(t, os.WriteFile(p, []byte(text), 0o644))
			require.NoError(t, os.Chtimes(p, time.Time{}, time.Unix(1_700_000_000, int64(i+1)*1000)), "within the same second")
		}
		sparse, err := os.Create(filepath.Join(s, "sparse"))
		require.NoError(t, err)
		require.NoError(t, errors.Join(sparse.Truncate(8<<20), sparse.Close()))
		require.NoError(t, os.Link(filepath.Join(s, "crlf"), filepath.Join(s, "linked")))
		require.NoError(t, os.Symlink("nowhere/at/all", filepath.Join(s, "dangling")))
		require.NoError(t, unix.Mkfifo(filepath.Join(s, "fifo"), 0o644))
		require.NoError(t, unix.Mknod(filepath.Join(s, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
		require.NoError(t, os.Chmod(filepath.Join(s, "shut"), 0))
		h.states = append(h.states, s)
	}
	for _, p := range allPeers() {
		t.Run(p.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			e := &env{work: t.TempDir(), guard: &guard{}, bar: newProgress(os.Stderr)}
			infos, err := inspectAll(ctx, e, h)
			require.NoError(t, err)
			require.Equal(t, 3, infos[0].special)
			r := &report{}
			require.NoError(t, measurePeer(ctx, e, r, h, infos, p))
			require.Equal(t, p.plain, slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "are not kept") }), r.Notes)
		})
	}
}

// stored opens a repository, stores all states and closes it.
func (m *measurement) stored(ctx context.Context) (err error) {
	if m.k, err = m.p.open(ctx, filepath.Join(m.dir, "repo")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.k.close(context.WithoutCancel(ctx))) }()
	return m.store(ctx)
}

// BenchmarkStorage stores a history with every peer: the corpora of SNAPFS_BENCH_CORPUS, names joined by commas, or one of
// three tiny states.
func BenchmarkStorage(b *testing.B) {
	e := &env{cache: defaultCache(), guard: &guard{}, mirror: debianMirror}
	histories := []history{tinyHistory(b)}
	if names := os.Getenv("SNAPFS_BENCH_CORPUS"); names != "" {
		e.corpora, e.bar = strings.Split(names, ","), newProgress(os.Stderr)
		require.NoError(b, e.validate(nil))
		var err error
		histories, err = e.states(b.Context())
		require.NoError(b, err)
	}
	for _, h := range histories {
		e.work, e.bar = b.TempDir(), newProgress(os.Stderr)
		infos, err := inspectAll(b.Context(), e, h)
		require.NoError(b, err)
		for _, p := range allPeers() {
			b.Run(h.name+"/"+strings.ReplaceAll(p.name, " ", "-"), func(b *testing.B) {
				if gone := missing(p.programs); len(gone) > 0 {
					b.Fatalf("missing %v", gone)
				}
				for b.Loop() {
					m := &measurement{e: e, r: &report{}, h: h, infos: infos, p: p, dir: b.TempDir()}
					require.NoError(b, m.stored(b.Context()))
					for _, f := range m.r.Metrics {
						b.ReportMetric(f.Value, strings.ReplaceAll(f.Name, " ", "-")+"-"+f.Unit)
					}
				}
			})
		}
	}
}

func TestVerifyFindsLoss(t *testing.T) {
	h := tinyHistory(t)
	want, err := inspect(t.Context(), h.states[1])
	require.NoError(t, err)
	told := map[string]string{"contents": `"a/two" has different contents`, "time": `"a/two" is of 1700000000.000000000 and 1.00000000`, "lost": `"link" is not in both`}
	for name, spoil := range map[string]func(dest string) error{
		"contents": func(d string) error { return os.WriteFile(filepath.Join(d, "a/two"), []byte("twx"), 0o644) },
		"time":     func(d string) error { return os.Chtimes(filepath.Join(d, "a/two"), time.Unix(1, 1), time.Unix(1, 1)) },
		"lost":     func(d string) error { return os.Remove(filepath.Join(d, "link")) },
	} {
		k := breaking{state: h.states[1], spoil: spoil}
		_, err := verifyRestore(t.Context(), k, 1, filepath.Join(t.TempDir(), "out"), h.states[1], want, peer{exact: true})
		require.ErrorContains(t, err, "differ from what was stored: "+told[name], name)
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
	r := &report{Suite: "s", dir: dir, About: map[string]string{"c": "a case"}, Machine: machine{CPU: "x", Programs: map[string]string{"git": "2.39"}}}
	r.add(metric{Case: "c", Subject: "snapfs", Name: "stored", Unit: "MB", Value: 4})
	r.add(metric{Case: "c", Subject: "git", Name: "stored", Unit: "MB", Value: 5})
	r.add(metric{Case: "c", Subject: "git", Name: "speed", Unit: "MB/s", Value: 100, More: true})
	r.note("restic: missing")
	require.NoError(t, r.save())
	for _, f := range []string{"s.json", "s-light.svg", "s-dark.svg"} {
		require.FileExists(t, filepath.Join(dir, f))
	}
	var out bytes.Buffer
	r.print(&out)
	require.Contains(t, out.String(), "restic: missing")
	require.Contains(t, out.String(), "stored MB")
	require.Contains(t, out.String(), "git 2.39")

	r.Metrics[0].Value, r.Metrics[2].Value = 3, 60
	r.dir = filepath.Join(dir, "new")
	require.NoError(t, r.save())
	out.Reset()
	require.NoError(t, compareAll(&out, dir, r.dir, 15), "a peer that got worse is no failure")
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
