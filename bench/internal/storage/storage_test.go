package storage

import (
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

	"snapfs/bench/internal/corpora"
	"snapfs/bench/internal/corpora/corporatest"
	"snapfs/bench/internal/program"
	"snapfs/bench/internal/progress"
	"snapfs/bench/internal/report"
	"snapfs/bench/internal/scratch"
	"snapfs/bench/internal/subject"
	"snapfs/bench/internal/suite"
	"snapfs/bench/internal/tree"
	"snapfs/internal/testmount"
)

func TestFreeze(t *testing.T) {
	h := corporatest.Tiny(t)
	added, gone, err := tree.Changed(t.Context(), h.States[0], h.States[1])
	require.NoError(t, err)
	require.Equal(t, []string{"a/one", "c", "c/d", "c/d/four"}, added)
	require.Equal(t, []string{"b"}, gone)
	fi, err := os.Stat(filepath.Join(h.States[1], "a/one"))
	require.NoError(t, err)
	require.Equal(t, int64(1_700_003_600), fi.ModTime().Unix(), "the step's time, wherever it is built")
	a, err := os.Stat(filepath.Join(h.States[0], "a/two"))
	require.NoError(t, err)
	b, err := os.Stat(filepath.Join(h.States[1], "a/two"))
	require.NoError(t, err)
	require.True(t, os.SameFile(a, b), "unchanged files are links")
	infos, err := inspectAll(t.Context(), &suite.Env{Bar: progress.New(os.Stderr)}, h)
	require.NoError(t, err)
	require.NotEqual(t, infos[0].Contents, infos[1].Contents)
	require.NotEqual(t, infos[1].Contents, infos[2].Contents)
	require.Equal(t, 4, infos[1].Files)
}

// oncePerRun leaves a test out of the second pass, over io_uring: it is not about mounts.
func oncePerRun(t *testing.T) {
	t.Helper()
	if os.Getenv(testmount.TransportEnv) == "uring" {
		t.Skip("done in the first pass")
	}
}

// TestPeers: every subject stores and restores every state, before and after deleting some, each verified by digest.
func TestPeers(t *testing.T) {
	h := corporatest.Tiny(t)
	for _, p := range subjects() {
		t.Run(p.Name, func(t *testing.T) {
			if !strings.HasPrefix(p.Name, "snapfs") {
				oncePerRun(t)
			}
			e := &suite.Env{Work: t.TempDir(), Guard: &scratch.Guard{}, Bar: progress.New(os.Stderr), Full: true}
			infos, err := inspectAll(t.Context(), e, h)
			require.NoError(t, err)
			require.Empty(t, program.Missing(p.Programs), ".ci/deps installs them")
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			r := &report.Report{}
			require.NoError(t, measureSubject(ctx, e, r, h, infos, p))
			for _, name := range []string{
				"stored", "store cpu", "store wall", "restore cpu", "restore wall", "verified",
			} {
				_, ok := report.ValueOf(r.Metrics, p.Name, name)
				require.True(t, ok, name)
			}
			_, to := report.ValueOf(r.Metrics, p.Name, "restore --to wall")
			require.Equal(t, strings.HasPrefix(p.Name, "snapfs"), to)
			if _, ok := report.ValueOf(r.Metrics, p.Name, "only newest kept"); !ok {
				require.Contains(t, r.Notes[0], "deleting states is not offered")
			}
			left, err := os.ReadDir(e.Work)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// TestSpecialTrees: trees of users have what the corpora lack. What git cannot keep is said and not looked for;
// everything else is.
func TestSpecialTrees(t *testing.T) {
	oncePerRun(t)
	dir := t.TempDir()
	h := corpora.History{Name: "special"}
	for i := range 2 {
		s := filepath.Join(dir, string(rune('a'+i)))
		for _, d := range []string{"empty/deeper", "sub/.git", "shut"} {
			require.NoError(t, os.MkdirAll(filepath.Join(s, d), 0o755))
		}
		for name, text := range map[string]string{
			"same size": string(rune('0' + i)), "latin-\xe9\xff": "bytes", "new\nline": "n",
			"-dash": "d", `quote"'$(x)\`: "q", "shut/secret": "s",
			".gitignore": "*\n", ".gitattributes": "* text eol=crlf\n", "crlf": "a\r\nb\n",
			strings.Repeat("n", 255): "long", "sub/.git/config": "[core]\n",
		} {
			p := filepath.Join(s, name)
			require.NoError(t, os.WriteFile(p, []byte(text), 0o644))
			require.NoError(
				t, os.Chtimes(p, time.Time{}, time.Unix(1_700_000_000, int64(i+1)*1000)), "within the same second",
			)
		}
		sparse, err := os.Create(filepath.Join(s, "sparse"))
		require.NoError(t, err)
		require.NoError(t, errors.Join(sparse.Truncate(8<<20), sparse.Close()))
		require.NoError(t, os.Link(filepath.Join(s, "crlf"), filepath.Join(s, "linked")))
		require.NoError(t, os.Symlink("nowhere/at/all", filepath.Join(s, "dangling")))
		require.NoError(t, unix.Mkfifo(filepath.Join(s, "fifo"), 0o644))
		require.NoError(t, unix.Mknod(filepath.Join(s, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
		require.NoError(t, os.Chmod(filepath.Join(s, "shut"), 0))
		h.States = append(h.States, s)
	}
	for _, p := range subjects() {
		t.Run(p.Name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			e := &suite.Env{Work: t.TempDir(), Guard: &scratch.Guard{}, Bar: progress.New(os.Stderr)}
			infos, err := inspectAll(ctx, e, h)
			require.NoError(t, err)
			require.Equal(t, 3, infos[0].Special)
			r := &report.Report{}
			require.NoError(t, measureSubject(ctx, e, r, h, infos, p))
			require.Equal(
				t, p.Keeps == subject.KeepsFiles,
				slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "are not kept") }),
				r.Notes,
			)
		})
	}
}

// stored opens a repository, stores all states and closes it.
func (m *measurement) stored(ctx context.Context) (err error) {
	if m.k, err = m.open(ctx, "first"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.k.Close(context.WithoutCancel(ctx))) }()
	return m.store(ctx)
}

// BenchmarkStorage stores a history with every subject: the corpora of SNAPFS_BENCH_CORPUS, names joined by commas, or
// one of three tiny states.
func BenchmarkStorage(b *testing.B) {
	e := &suite.Env{Cache: suite.DefaultCache(), Guard: &scratch.Guard{}, Mirror: corpora.DebianMirror}
	list := []corpora.History{corporatest.Tiny(b)}
	if names := os.Getenv("SNAPFS_BENCH_CORPUS"); names != "" {
		e.Corpora, e.Bar = strings.Split(names, ","), progress.New(os.Stderr)
		require.NoError(b, e.Validate(nil))
		var err error
		list, err = histories(b.Context(), e)
		require.NoError(b, err)
	}
	for _, h := range list {
		e.Work, e.Bar = b.TempDir(), progress.New(os.Stderr)
		infos, err := inspectAll(b.Context(), e, h)
		require.NoError(b, err)
		for _, p := range subjects() {
			b.Run(h.Name+"/"+strings.ReplaceAll(p.Name, " ", "-"), func(b *testing.B) {
				if gone := program.Missing(p.Programs); len(gone) > 0 {
					b.Fatalf("missing %v", gone)
				}
				for b.Loop() {
					m := &measurement{e: e, r: &report.Report{}, h: h, infos: infos, p: p, dir: b.TempDir()}
					require.NoError(b, m.stored(b.Context()))
					for _, f := range m.r.Metrics {
						b.ReportMetric(f.Value, strings.ReplaceAll(f.Name, " ", "-")+"-"+f.Unit)
					}
				}
			})
		}
	}
}

func TestLeftToVerify(t *testing.T) {
	require.Equal(t, []int{15, 22, 29}, leftToVerify(15, 30, false))
	require.Equal(t, []int{1}, leftToVerify(1, 2, false))
	require.Equal(t, []int{1, 2}, leftToVerify(1, 3, false))
	require.Equal(t, []int{3, 4, 5}, leftToVerify(3, 6, true))
}

func TestVerifyFindsLoss(t *testing.T) {
	h := corporatest.Tiny(t)
	want, err := tree.Inspect(t.Context(), h.States[1])
	require.NoError(t, err)
	told := map[string]string{
		"contents": `"a/two" has different contents`, "time": `"a/two" is of 1700000000.000000000 and 1.00000000`,
		"lost": `"link" is not in both`,
	}
	for name, spoil := range map[string]func(dest string) error{
		"contents": func(d string) error { return os.WriteFile(filepath.Join(d, "a/two"), []byte("twx"), 0o644) },
		"time": func(d string) error {
			return os.Chtimes(filepath.Join(d, "a/two"), time.Unix(1, 1), time.Unix(1, 1))
		},
		"lost": func(d string) error { return os.Remove(filepath.Join(d, "link")) },
	} {
		k := breaking{state: h.States[1], spoil: spoil}
		_, err := verifyRestore(
			t.Context(), k, 1, filepath.Join(t.TempDir(), "out"), h.States[1], want,
			subject.Subject[subject.Store]{Keeps: subject.KeepsAll},
		)
		require.ErrorContains(t, err, "differ from what was stored: "+told[name], name)
	}
}

// unused is what a test does not call.
type unused = subject.Store

// breaking restores with a flaw.
type breaking struct {
	unused
	state string
	spoil func(dest string) error
}

func (b breaking) Restore(ctx context.Context, _ int, dest string) error {
	if err := program.Run(ctx, "cp", "-a", b.state+"/.", dest); err != nil {
		return err
	}
	return b.spoil(dest)
}
