package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// gitSource makes a repository with a bit of everything, and something that git does not know.
const gitSource = `
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=c GIT_COMMITTER_EMAIL=c@d
git init -q -b main "$1"; cd "$1"
mkdir -p src/deep docs gone/away keep
for i in 1 2 3 4 5 6; do seq $i 20 > src/f$i; done
echo d > docs/d; echo g > gone/away/g; echo k > keep/k; echo x > src/deep/x; echo becomes > becomes-dir; mkdir dir; echo in > dir/in
ln -s src/f1 link; echo run > run; chmod +x run; echo ' white ' > 'a name'; printf 'umlaut' > ü; printf '*.o\n/out/\n!keep.o\n' > .gitignore
printf '*.txt text eol=lf\n*.up filter=up\n' > .gitattributes; printf 'one\n' > t.txt; echo forced > forced.o
git config filter.up.clean 'tr a-z A-Z'; git config filter.up.smudge cat
echo private > .git/info/exclude
git add -A; git add -f forced.o; git commit -q -m first; git tag v1; git pack-refs --all
seq 9 > src/f6; git stash -q; echo staged > staged; git add staged; echo dirty >> docs/d; echo unknown > unknown; mkdir out; echo o > out/o
`

// gitEdits is what an attempt changes there.
const gitEdits = `cd "$1"
sed -i s/3/three/ src/f1; mv src/f2 src/moved; mv docs papers; rm -r gone; chmod -x run; chmod +x src/f3; ln -sfn src/f4 link; rm src/f5
mkdir -p new/er; echo n > new/er/n; echo ignored > new/x.o; echo keep > new/keep.o; echo secret > private; echo more > out/more; echo f >> forced.o
rm becomes-dir; mkdir becomes-dir; echo b > becomes-dir/b; rm -r dir; echo file > dir; printf 'one\r\ntwo\r\n' > t.txt; echo up > u.up
touch -d @77 keep/k; chmod 600 src/deep/x; mkfifo pipe; mkdir empty; echo raw > "$(printf 'r\377w')"; : > nothing; head -c 3000000 /dev/zero > big
printf 'line\nbreak' > "$(printf 'li\nne')"; echo private2 >> .gitignore; echo p > private2; mkdir other; git -C other init -q 2> /dev/null; echo o > other/o
`

// TestToGit compares commits with those of 'git add -A && git commit' in a copy of the same tree.
func TestToGit(t *testing.T) {
	h := newHome(t)
	h.env = append(h.env, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b",
		"GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@d", "GIT_INDEX_FILE=/proc/none")
	shell(t, soon, h.tmp, gitSource, "repo")
	h.ok("up", "app", h.path("m"), "--from", h.path("repo"))
	shell(t, soon, h.tmp, gitEdits, h.path("m"))
	h.ok("snapshot", "app", "--name", "half")
	shell(t, soon, h.tmp, `cd "$1"; echo last > last; git add last; git -c user.name=a -c user.email=a@b commit -qam theirs`, h.path("m"))

	// All of it but .git and the branch must be as it was.
	state := `cd "$1"; find . -path ./.git/objects -prune -o -path ./.git/refs/heads/one -o -path ./.git/logs/refs/heads/one -o -type f -print0 |
		sort -z | xargs -0 sha256sum; stat -c %y .git/index .git/HEAD; git show-ref | grep -v /one; git stash list`
	before := shell(t, soon, h.tmp, state, "repo")
	r := h.run("apply", "app", "--to-git", h.path("repo"), "--branch", "one", "-m", "What one did", "--json")
	require.Zero(t, r.code, r.err)
	var got struct {
		Branch, Commit, Parent, Tree string
		Files                        int
		LeftOut                      []struct{ Path, Why string } `json:"left_out"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.out), &got))
	require.Equal(t, before, shell(t, soon, h.tmp, state, "repo"))
	want := shell(t, soon, h.tmp, `cp -a repo copy; cd copy; git reset -q --hard v1
		find . -mindepth 1 -maxdepth 1 ! -name .git -exec rm -r {} +; cp -a "$1" ../state; rm -r ../state/.git ../state/other
		cp -a ../state/. .; rm unknown staged; git add -A; git write-tree`, h.path("m"))
	if got.Tree != strings.TrimSpace(want) {
		t.Errorf("the commit differs from git's:\n%s", shell(t, soon, h.tmp, `cd copy; git diff-tree -r "$1" "$2"`, strings.TrimSpace(want), got.Tree))
	}
	require.Equal(t, "What one did\na <a@b> c <c@d>\n"+got.Parent+" "+got.Tree+"\n",
		shell(t, soon, h.tmp, `git -C repo log -1 --format='%B%an <%ae> %cn <%ce>%n%P %T' one | grep .; git -C repo fsck --strict 2>&1 | grep -v dangling || :`))
	require.Equal(t, got.Parent, strings.TrimSpace(shell(t, soon, h.tmp, `git -C repo rev-parse v1`)))

	h.fails(4, `branch "one" exists`, "apply", "app", "--to-git", h.path("repo"), "--branch", "one")
	h.fails(2, "no branch can be called", "apply", "app", "--to-git", h.path("repo"), "--branch", "a..b")
	// Since a snapshot, on a commit of the caller's choice.
	h.ok("apply", "app", "--to-git", h.path("repo"), "--branch", "two", "--base", "app:half", "--parent", "v1")
	require.Equal(t, "last\n", shell(t, soon, h.tmp, `git -C repo diff --name-only v1 two`))
	r = h.run("apply", "app:half", "--to-git", h.path("repo"), "--branch", "none", "--base", "app:half")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.err, "nothing to commit")
	objects := shell(t, soon, h.tmp, `git -C repo count-objects`)
	require.Contains(t, h.ok("apply", "app:half", "--to-git", h.path("repo"), "--branch", "none", "--dry-run"), "M src/f1")
	require.Equal(t, objects, shell(t, soon, h.tmp, `git -C repo count-objects; git -C repo show-ref --verify --quiet refs/heads/none && echo made || :`))
	h.write("m/.GIT", "")
	h.fails(2, "takes no file with the name \".GIT\"", "apply", "app", "--to-git", h.path("repo"), "--branch", "none")
	require.Empty(t, shell(t, soon, h.tmp, `find . -maxdepth 1 -name 'snapfs-git-*'`))
}

// TestToGitPlaces commits to repositories of other kinds.
func TestToGitPlaces(t *testing.T) {
	h := newHome(t)
	h.env = append(h.env, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b",
		"GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@d")
	shell(t, soon, h.tmp, gitSource, "repo")
	shell(t, soon, h.tmp, `export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=protocol.file.allow GIT_CONFIG_VALUE_0=always
		cd repo; git checkout -qf v1; git worktree add -q ../tree main; git clone -q --bare . ../bare.git; git clone -qs . ../shared
		git clone -q . ../super; git -C ../super -c user.name=a -c user.email=a@b submodule --quiet add "$PWD" sub; git -C ../super -c user.name=a -c user.email=a@b commit -qm sub
		git init -q ../unborn; echo u > ../unborn/u; mkdir ../plain; echo p > ../plain/p
		git init -q --object-format=sha256 ../sha256; cd ../sha256; echo s > s; git add s; git -c user.name=a -c user.email=a@b commit -qm s
		printf '#!/bin/sh\ntouch %s/ran\n' "$PWD" | tee .git/hooks/reference-transaction > .git/hooks/post-index-change; chmod +x .git/hooks/*
		git config core.fsmonitor .git/hooks/post-index-change; git config core.splitIndex true`)
	commit := func(from, repo string, args ...string) []string {
		t.Helper()
		name := strings.NewReplacer("/", "-", ".", "-").Replace(from)
		if r := h.run("show", name); r.code != 0 {
			h.ok("create", name, "--from", h.path(from))
			h.ok("mount", name, h.path("on-"+name))
			shell(t, soon, h.tmp, `cd "$1"; echo new > new; if [ -d sub ]; then echo in > sub/in; fi`, h.path("on-"+name))
		}
		r := h.run(append([]string{"apply", name, "--to-git", h.path(repo), "--branch", "b-" + name}, args...)...)
		require.Zero(t, r.code, "%s to %s: %s", from, repo, r.err)
		return strings.Split(shell(t, soon, h.tmp, `git -C "$1" log -1 --format=%P --name-status "$2" | grep .`, repo, "b-"+name), "\n")
	}
	head := strings.TrimSpace(shell(t, soon, h.tmp, `git -C repo rev-parse v1`))
	for from, repo := range map[string]string{"tree": "repo", "repo": "bare.git", "shared": "shared"} {
		require.Equal(t, []string{head, "A\tnew", ""}, commit(from, repo), from)
	}
	require.Equal(t, []string{head, "A\tsrc/new", ""}, commit("repo/src", "repo"))
	first := strings.TrimSpace(shell(t, soon, h.tmp, `git -C unborn symbolic-ref --short HEAD`))
	require.Equal(t, []string{"A\tnew", ""}, commit("unborn", "unborn"))
	h.fails(4, "no commit yet", "apply", "unborn", "--to-git", h.path("unborn"), "--branch", first)
	require.Len(t, commit("sha256", "sha256")[0], 64)
	require.NoFileExists(t, h.path("sha256/ran"))
	super := commit("super", "super")
	require.Equal(t, []string{"A\tnew", ""}, super[1:])
	h.ok("create", "flat", "--from", h.path("plain"))
	h.fails(2, "--prefix", "apply", "flat", "--to-git", h.path("repo"), "--branch", "p")
	h.fails(3, "does not have", "apply", "sha256", "--to-git", h.path("repo"), "--branch", "p")
	h.fails(1, "not a git repository", "apply", "flat", "--to-git", h.path("plain"), "--branch", "p")
	require.Equal(t, []string{head, "A\tin/plain/new", ""}, commit("plain", "repo", "--prefix", "in/plain"))
}

// TestToGitKilled kills the command while git writes; and commits many files, which git packs.
func TestToGitKilled(t *testing.T) {
	h := newHome(t)
	h.env = append(h.env, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b",
		"GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@d")
	shell(t, soon, h.tmp, gitSource, "repo")
	h.ok("up", "app", h.path("m"), "--from", h.path("repo"))
	shell(t, soon, h.path("m"), `mkdir many; for i in $(seq 300); do echo $i > many/$i; done; printf 'a\r\n' > many/crlf.txt; seq 9 > many/z.up`)
	// The filter's parents are a shell, git and snapfs.
	shell(t, soon, h.tmp, `cd repo; git config filter.up.clean 'kill -9 $(cut -d" " -f4 /proc/$PPID/stat); tr a-z A-Z'`)
	// The git that runs the filter may go on for a moment, and then removes what it had among the objects.
	refs := `git -C repo for-each-ref; find repo/.git -path repo/.git/objects -prune -o -name '*.lock' -print; sha256sum repo/.git/index; git -C repo fsck 2>&1 | grep -v dangling || :`
	before := shell(t, soon, h.tmp, refs)
	require.Equal(t, 128+9, h.run("apply", "app", "--to-git", h.path("repo"), "--branch", "one").code)
	require.Equal(t, before, shell(t, soon, h.tmp, refs))
	shell(t, soon, h.tmp, `git -C repo config filter.up.clean 'tr 0-9 a-j'`)
	h.ok("apply", "app", "--to-git", h.path("repo"), "--branch", "one")
	require.Equal(t, "302 a\nb\n", shell(t, soon, h.tmp, `cd repo; echo $(git ls-tree --name-only one many/ | wc -l) \
		$(git show one:many/crlf.txt | tr '\r' x); git show one:many/z.up | sed -n 1p; git fsck 2>&1 | grep -v dangling || :`))
}
