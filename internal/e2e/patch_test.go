package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/internal/testseed"
)

// patchNames are names of files and directories; patches must quote many of them.
var patchNames = []string{
	"a", "b", "c.txt", "dir", "a b", " lead", "trail ", "tab\there", "line\nfeed", `quo"te`, `back\slash`, "é", "\xff\xfe",
	"-p1", "b/", "a=>b", "{x}", "\x01\x7f", ".gitattributes", "with,comma", "%s", "dev", "null",
}

// patchTree changes a tree at random.
type patchTree struct {
	r     *rand.Rand
	root  string
	plain bool // patch(1) can do all of it: no binary files, no hard links, and no directory where a file was
}

func (p patchTree) pick(all []string) string { return all[p.r.IntN(len(all))] }

// paths lists the directories, the root included, and all else.
func (p patchTree) paths(t *testing.T) (dirs, files []string) {
	err := filepath.WalkDir(p.root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		} else if err == nil {
			files = append(files, path)
		}
		return err
	})
	require.NoError(t, err)
	return dirs, files
}

// contents are those of a text, mostly, with few different lines, or of a binary file.
func (p patchTree) contents() []byte {
	var b bytes.Buffer
	switch n := p.r.IntN(12); {
	case n == 0:
		return nil
	case n == 1:
		return []byte("no newline")
	case n < 4 && !p.plain:
		for range p.r.IntN(3000) {
			b.WriteByte(byte(p.r.Uint32()))
		}
		b.WriteByte(0)
		return b.Bytes()
	}
	end := "\n"
	if p.r.IntN(6) == 0 {
		end = "\r\n"
	}
	for range p.r.IntN(40) {
		b.WriteString(p.pick([]string{"a", "b", "", "c c", "}", "\tx ", "gr\xfcn", "--- a/a", "+++ b/b", "@@ -1 +1 @@", "diff --git a/a b/a"}) + end)
	}
	if p.r.IntN(5) == 0 {
		b.WriteString("end")
	}
	return b.Bytes()
}

// change does one thing; those that the tree does not allow fail and change nothing.
func (p patchTree) change(t *testing.T) {
	dirs, files := p.paths(t)
	dir := p.pick(dirs)
	fresh := filepath.Join(p.pick(dirs), strings.TrimSuffix(p.pick(patchNames), "/"))
	if len(files) < 4 {
		_ = os.WriteFile(fresh, p.contents(), 0o644)
		return
	}
	file := p.pick(files)
	regular := func() bool { fi, err := os.Lstat(file); return err == nil && fi.Mode().IsRegular() }
	cases, suffix := 14, ""
	if p.plain {
		cases, suffix = 11, ".d"
	}
	switch p.r.IntN(cases) {
	case 0:
		_ = os.Remove(file)
	case 1, 2:
		_ = os.WriteFile(fresh, p.contents(), 0o644)
	case 3, 4, 5: // edit
		if data, err := os.ReadFile(file); err == nil && regular() && len(data) > 0 {
			at := p.r.IntN(len(data))
			_ = os.WriteFile(file, slices.Concat(data[:at], []byte(p.pick([]string{"new\n", "x", "\n", "\r"})), data[min(len(data), at+p.r.IntN(9)):]), 0o644)
		}
	case 6:
		_ = os.Rename(file, fresh)
	case 7:
		if dir != p.root {
			_ = os.Rename(dir, fresh+suffix)
		}
	case 8:
		if regular() {
			_ = os.Chmod(file, fs.FileMode([]uint32{0o755, 0o644}[p.r.IntN(2)]))
		}
	case 9:
		_ = os.Mkdir(fresh+suffix, 0o755)
		_ = os.WriteFile(filepath.Join(fresh+suffix, p.pick([]string{"in", "x y"})), p.contents(), 0o644)
	case 10:
		_ = os.Symlink(p.pick([]string{"nowhere", "no where\n", "../out/x", "\xff"}), fresh)
	case 11:
		_ = os.Link(file, fresh)
	case 12:
		if dir != p.root && p.r.IntN(3) == 0 {
			_ = os.RemoveAll(dir)
			_ = os.WriteFile(dir, p.contents(), 0o644)
		}
	case 13: // a directory, or a link, in the place of a file
		_ = os.Remove(file)
		if p.r.IntN(2) == 0 {
			_ = os.Symlink("gone", file)
		} else {
			_ = os.Mkdir(file, 0o755)
			_ = os.WriteFile(filepath.Join(file, "in"), p.contents(), 0o755)
		}
	}
}

// gitTree lists a tree as git knows it.
func gitTree(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && d.Name() == ".git" && filepath.Dir(path) == root {
				return fs.SkipDir
			}
			return err
		}
		name := strings.TrimPrefix(path, root+"/")
		if d.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			all[name] = "link " + target
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		all[name] = fmt.Sprint("file ", fi.Mode()&0o100 != 0, " ", string(data))
		return err
	})
	require.NoError(t, err)
	return all
}

// patchTools apply the patch in $p to a copy of the tree $1 in the directory of that name, and write how it ended.
var patchTools = []struct{ name, dir, script string }{
	{"git apply", "x1", `cp -a "$1" x1; (cd x1 && GIT_CEILING_DIRECTORIES="$PWD/.." git apply --whitespace=nowarn --allow-empty "$p")`},
	{"git apply -3", "x2", `cp -a "$1.git" x2; (cd x2 && git update-index -q --refresh && git apply -3 --whitespace=nowarn --allow-empty "$p")`},
	{"patch -p1", "x3", `cp -a "$1" x3; (cd x3 && patch -p1 -s -f < "$p")`},
}

// TestPatchPairs has git and patch(1) make of random trees other random trees, by patches: each makes the second tree
// exactly, or refuses and changes nothing. git refuses almost none. SNAPFS_PATCH_PAIRS is for how many pairs.
func TestPatchPairs(t *testing.T) {
	pairs := 12
	if n, err := strconv.Atoi(os.Getenv("SNAPFS_PATCH_PAIRS")); err == nil {
		pairs = n
	}
	seed := testseed.Of(t)
	t.Logf("SNAPFS_SEED=%d SNAPFS_PATCH_PAIRS=%d", seed, pairs)
	r := rand.New(rand.NewPCG(seed, 15))
	h := newHome(t)
	done, unforeseen, made, refused := 0, 0, map[string]int{}, map[string]int{}
	for round := 0; done < pairs; round++ {
		ws := fmt.Sprint("w", round)
		h.ok("up", ws, h.path("mnt"))
		tree := patchTree{r, h.path("mnt"), round%3 != 1}
		var trees []map[string]string
		states := max(1, min(6, pairs/5))
		for i := range states + 1 {
			for range 2 + r.IntN(30) {
				tree.change(t)
			}
			h.ok("snapshot", ws, "--name", fmt.Sprint(ws, "-s", i))
			copied := fmt.Sprint("t", i)
			// git is not to change the ends of lines: .gitattributes would have it do so in a repository.
			shell(t, soon, h.tmp, `rm -rf "$1" "$1.git"; cp -a mnt "$1"; find "$1" -mindepth 1 -type d -empty -delete
				cp -a "$1" "$1.git"; cd "$1.git"; git init -q; echo '* -text' > .git/info/attributes; git add -A -f .`, copied)
			trees = append(trees, gitTree(t, h.path(copied)))
		}
		for a := range trees {
			for b := range trees {
				if a == b || done == pairs {
					continue
				}
				done++
				what := fmt.Sprintf("SNAPFS_SEED=%d round %d, %d to %d", seed, round, a, b)
				patch := h.ok("diff", fmt.Sprint(ws, "-s", a), fmt.Sprint(ws, "-s", b), "--patch", "-q")
				if patch != "" {
					patch += "\n"
				}
				require.NoError(t, os.WriteFile(h.path("patch"), []byte(patch), 0o644))
				script := `rm -rf x?; p=$PWD/patch; export GIT_CONFIG_GLOBAL=/dev/null; `
				for _, tool := range patchTools {
					script += tool.script + " > " + tool.dir + ".out 2>&1; echo $? > " + tool.dir + ".code; "
				}
				process(t, time.Minute, h.tmp, nil, "bash", "-c", script, "script", fmt.Sprint("t", a))
				for _, tool := range patchTools {
					want, said := trees[b], h.read(tool.dir+".out")
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
	t.Logf("of %d pairs made: %v, refused: %v", pairs, made, refused)
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
