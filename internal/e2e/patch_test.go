package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/internal/testseed"
)

// patchTools apply the patch in $p to a copy of the tree $1 in the directory of that name, and write how it ended.
var patchTools = []struct{ name, dir, script string }{
	{"git apply", "x1", `cp -a "$1" x1; (cd x1 && GIT_CEILING_DIRECTORIES="$PWD/.." git apply --whitespace=nowarn --allow-empty "$p")`},
	{"git apply -3", "x2", `cp -a "$1.git" x2; (cd x2 && git update-index -q --refresh && git apply -3 --whitespace=nowarn --allow-empty "$p")`},
	{"patch -p1", "x3", `cp -a "$1" x3; (cd x3 && patch -p1 -s -f < "$p")`},
}

// TestPatchPairs has git and patch(1) make of random trees other random trees, by patches of all or of a part: each makes
// the second tree exactly, or refuses and changes nothing. git refuses almost none. What no tool could apply is refused
// by diff. SNAPFS_PATCH_PAIRS is for how many pairs.
func TestPatchPairs(t *testing.T) {
	pairs := 12
	if n, err := strconv.Atoi(os.Getenv("SNAPFS_PATCH_PAIRS")); err == nil {
		pairs = n
	}
	seed := testseed.Of(t)
	t.Logf("SNAPFS_SEED=%d SNAPFS_PATCH_PAIRS=%d", seed, pairs)
	r := rand.New(rand.NewPCG(seed, 15))
	h := newHome(t)
	done, unforeseen, impossible, made, refused := 0, 0, 0, map[string]int{}, map[string]int{}
	for round := 0; done < pairs; round++ {
		ws := fmt.Sprint("w", round)
		h.ok("up", ws, h.path("mnt"))
		tree := patchTree{r, h.path("mnt"), round%3 != 1}
		var trees []map[string]string
		var empty [][]string // directories
		states := max(1, min(6, pairs/5))
		for i := range states + 1 {
			for range 2 + r.IntN(30) {
				tree.change(t)
			}
			shell(t, soon, h.tmp, `find mnt -type p -name '.git*' -delete`) // git would wait for who writes into them
			h.ok("snapshot", ws, "--name", fmt.Sprint(ws, "-s", i))
			copied := fmt.Sprint("t", i)
			// git is not to change the ends of lines: .gitattributes would have it do so in a repository.
			shell(t, soon, h.tmp, `rm -rf "$1" "$1.git"; cp -a mnt "$1"
				cp -a "$1" "$1.git"; cd "$1.git"; git init -q; echo '* -text' > .git/info/attributes; git add -A -f .`, copied)
			trees = append(trees, gitTree(t, h.path(copied)))
			dirs := shell(t, soon, h.path(copied), `find . -mindepth 1 -type d -empty -printf '%P\0'`)
			empty = append(empty, strings.Split(dirs, "\x00"))
		}
		for a := range trees {
			for b := range trees {
				if a == b || done == pairs {
					continue
				}
				done++
				part, in := patchPart(r, trees[a], trees[b])
				goal, possible := patched(trees[a], empty[a], trees[b], in)
				what := fmt.Sprintf("SNAPFS_SEED=%d round %d, %d to %d, %q", seed, round, a, b, part)
				diff := h.run(append([]string{"diff", fmt.Sprint(ws, "-s", a), fmt.Sprint(ws, "-s", b), "--patch", "-q"}, part...)...)
				if !possible && diff.code == 2 && diff.out == "" && strings.Contains(diff.err, "stands in the way") {
					impossible++
					continue
				}
				if diff.code != 0 || !possible {
					t.Fatalf("%s: possible: %t, exit code %d: %s", what, possible, diff.code, tail(diff.err))
				}
				require.NoError(t, os.WriteFile(h.path("patch"), []byte(diff.out), 0o644))
				script := `rm -rf x?; p=$PWD/patch; export GIT_CONFIG_GLOBAL=/dev/null; `
				for _, tool := range patchTools {
					script += tool.script + " > " + tool.dir + ".out 2>&1; echo $? > " + tool.dir + ".code; "
				}
				process(t, time.Minute, h.tmp, nil, "bash", "-c", script, "script", fmt.Sprint("t", a))
				for _, tool := range patchTools {
					want, said := goal, h.read(tool.dir+".out")
					if code := strings.TrimSpace(h.read(tool.dir + ".code")); code == "0" {
						made[tool.name]++
					} else {
						refused[tool.name]++
						want = trees[a]
						if !strings.Contains(said, "patch(1) would apply") {
							unforeseen++
							t.Logf("%s: %s, exit code %s: %s", what, tool.name, code, tail(said))
						}
					}
					if now := gitTree(t, h.path(tool.dir)); !maps.Equal(now, want) {
						t.Fatalf("%s: %s: %s\n%s\n%s", what, tool.name, treeDiff(now, want), tail(said), shell(t, soon, h.tmp, `grep -aE '^(diff|new|old|deleted|rename|index) ' patch`))
					}
				}
			}
		}
		h.ok("umount", ws)
	}
	t.Logf("of %d pairs made: %v, refused: %v, impossible: %d", pairs, made, refused, impossible)
	if unforeseen > pairs/100 || made["patch -p1"] == 0 {
		t.Errorf("of %d pairs refused: %v, %d of them without being told to", pairs, refused, unforeseen)
	}
}

// treeDiff says what differs between two trees.
func treeDiff(got, want map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if g, ok := got[name]; !ok {
			fmt.Fprintf(&b, "missing %q (%.60q)\n", name, want[name])
		} else if g != want[name] {
			fmt.Fprintf(&b, "%q is %.300q, want %.300q\n", name, g, want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			fmt.Fprintf(&b, "extra %q (%.60q)\n", name, got[name])
		}
	}
	return b.String()
}

// TestPatchRepository: a patch of a workspace that is a repository leaves the repository to which it is applied whole.
// With .git in it, patch(1) would give it the name of a commit that it does not have.
func TestPatchRepository(t *testing.T) {
	h := newHome(t)
	src := h.makeDir("src")
	const commit = `git add -A; git -c user.name=n -c user.email=e commit -qm "$1"`
	shell(t, soon, src, `git init -q .; seq 9 > f; `+commit, "first")
	h.ok("up", "app", h.path("mnt"), "--from", src)
	h.ok("snapshot", "app", "--name", "before")
	shell(t, soon, h.path("mnt"), `sed -i s/5/five/ f; `+commit+`; mkdir sub; cd sub; git init -q; echo x > own`, "second")
	for _, tool := range []string{"git apply", "git apply -3", "patch -p1 -s"} {
		r := h.run("diff", "before", "app", "--patch")
		require.Contains(t, r.err, "what changed in .git (")
		require.NotContains(t, r.out, ".git")
		require.NoError(t, os.WriteFile(h.path("patch"), []byte(r.out), 0o644))
		shell(t, soon, h.tmp, `rm -rf to; cp -a src to; cd to; git update-index -q --refresh; before=$(git rev-parse HEAD)
			$1 < ../patch; git fsck --strict; [ $(git rev-parse HEAD) = "$before" ]; cmp f ../mnt/f; cmp sub/own ../mnt/sub/own; [ ! -e sub/.git ]`, tool)
	}
	// Asked for, it is there; no tool applies a part of it.
	require.NoError(t, os.WriteFile(h.path("patch"), []byte(h.ok("diff", "before", "app", "--patch", "--git-dir")+"\n"), 0o644))
	shell(t, soon, h.tmp, `grep -q '^diff --git a/.git/logs/HEAD' patch; cd to; git reset -q --hard; git clean -qfdx
		! git apply ../patch; ! patch -p1 -s -f < ../patch; git fsck --strict; [ -z "$(git status --porcelain)" ]`)
}

// TestPatchRefused: what no patch can hold is refused before its first byte, and told.
func TestPatchRefused(t *testing.T) {
	h := newHome(t)
	src := h.makeDir("src")
	shell(t, soon, src, `echo a > f; printf 'a\0' > bin; mkdir only; echo x > only/x; echo prog > prog; echo own > own`)
	h.ok("up", "app", h.path("mnt"), "--from", src)
	h.ok("snapshot", "app", "--name", "before")
	shell(t, soon, h.path("mnt"), `echo b > a; printf 'b\0' > bin`)
	h.fails(2, "bin", "diff", "before", "app", "--patch", "--binary=false")
	h.fails(2, "--binary=false is for --patch", "diff", "before", "app", "--binary=false")
	shell(t, soon, h.path("mnt"), `truncate -s 65M huge; printf 'a\0' > bin`)
	h.fails(2, "more than 64 MiB", "diff", "before", "app", "--patch")
	shell(t, soon, h.path("mnt"), `rm huge; mkfifo pipe; mkdir empty; rm only/x; chmod 4755 prog; chown 7 own; setfattr -n user.a -v b f`)
	r := h.run("diff", "before", "app", "--patch")
	require.Equal(t, 0, r.code, r.err)
	for _, what := range []string{
		"1 special file", "empty directories (2", "the permissions of 1 file", "the owners of 1 file", "the attributes of 1 file",
	} {
		require.Contains(t, r.err, what)
	}
	require.NotContains(t, r.err, ".git")
}

// TestPatchRoom: where an old tree has no room for a new file, the patch is refused, or by patch(1) as a whole.
func TestPatchRoom(t *testing.T) {
	h := newHome(t)
	src := h.makeDir("src")
	shell(t, soon, src, `mkfifo pipe; mkdir -p empty $(printf %0250d 2) nest/empty nest/full dir; echo f > nest/full/f; echo f > dir/f; echo f > dir/f.log; echo f > f; ln -s f $(printf %0250d 1)`)
	h.ok("up", "app", h.path("mnt"), "--from", src)
	h.ok("snapshot", "app", "--name", "before")
	for _, c := range []struct{ change, way string }{
		{`rm pipe; echo new > pipe`, "the old"},
		{`rm pipe; mkdir pipe; echo new > pipe/f`, "\"pipe\" stands in the way of \"pipe/f\""},
		{`rm -r nest; echo new > nest`, "\"nest/empty\" stands in the way of \"nest\""},
		{`rm -r dir; echo new > dir`, "\"dir/f.log\" stands in the way of \"dir\""},
		{`rm -r $(printf %0250d 2); echo new > $(printf %0250d 2)`, "the old"},
		{`rm -r empty; echo new > empty`, ""},
		{`echo new > $(printf %0250d 0)`, ""},
		{`mv $(printf %0250d 1) short`, ""},
	} {
		shell(t, soon, h.path("mnt"), "echo changed > f; "+c.change)
		if c.way != "" {
			h.fails(2, c.way, "diff", "before", "app", "--patch", "-q", "--exclude", "*.log")
		} else {
			require.NoError(t, os.WriteFile(h.path("patch"), []byte(h.ok("diff", "before", "app", "--patch", "-q")+"\n"), 0o644))
			shell(t, soon, h.tmp, `rm -rf to; cp -a src to; cd to; ! patch -p1 -s -f < ../patch; cd ..; diff -r --no-dereference --exclude pipe src to
				cd to; GIT_CEILING_DIRECTORIES="$PWD/.." git apply ../patch; diff -r --exclude pipe . ../mnt`)
		}
		h.ok("rollback", "app", "before", "--discard")
	}
}

// TestPatchTurned: a directory that has moved into one of those that were in it is told once.
func TestPatchTurned(t *testing.T) {
	h := newHome(t)
	src := h.makeDir("src")
	shell(t, soon, src, `mkdir -p x/outer/inner x/outer/back; echo f > x/outer/inner/f; echo in > x/outer/back/in; echo y > x/outer/y`)
	h.ok("up", "app", h.path("mnt"), "--from", src)
	h.ok("snapshot", "app", "--name", "before")
	shell(t, soon, h.path("mnt"), `mv x/outer/inner a; mv x/outer a/b`)
	require.Equal(t, "R x/outer/inner -> a\nR x/outer -> a/b", h.ok("diff", "app"))
	require.NoError(t, os.WriteFile(h.path("patch"), []byte(h.ok("diff", "app", "--patch", "-q")+"\n"), 0o644))
	shell(t, soon, h.tmp, `cd src; GIT_CEILING_DIRECTORIES="$PWD/.." git apply ../patch`)
	require.Equal(t, gitTree(t, h.path("mnt")), gitTree(t, src))
}
