package apitest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"snapfs/internal/testseed"
	"snapfs/sandbox"
)

// patch collects the patch of a comparison and what its changes come to.
func (e *env) patch(a, b string) (patch []byte, changes []sandbox.Change) {
	e.Helper()
	err := e.api.Diff(e.Context(), sandbox.DiffRequest{A: a, B: b, Patch: true, Binary: true}, func(c sandbox.Change) error {
		patch = append(append(patch, c.Preamble...), c.Patch...)
		changes = append(changes, c)
		return nil
	})
	if err != nil {
		e.Errorf("patch from %s to %s: %v", a, b, err)
	}
	return patch, changes
}

// asGit lists a tree as git knows it: files, whether they are executable, and links. Names have no newlines.
const asGit = `cd "$1"; find . -type f -perm -100 -printf 'x %p ' -exec sh -c 'sha256sum < "$1"' sh {} ';' | sort
	find . -type f ! -perm -100 -printf 'f %p ' -exec sh -c 'sha256sum < "$1"' sh {} ';' | sort; find . -type l -printf 'l %p %l\n' | sort`

// repeats fails unless git, which knows no empty directories, makes of a copy of one tree the files of another. patch(1)
// must do it, too, or change nothing.
func (e *env) repeats(what string, patch []byte, from, to string) {
	e.Helper()
	was, want := e.sh(asGit, from), e.sh(asGit, to)
	file := filepath.Join(e.dir, "patch")
	if err := os.WriteFile(file, patch, 0o600); err != nil {
		e.Fatal(err)
	}
	tools := []string{
		`GIT_CEILING_DIRECTORIES="$2/.." git apply --whitespace=nowarn --allow-empty "$1"`,
		`if ! patch -p1 -s -f < "$1"; then echo refused; fi`,
	}
	for _, tool := range tools {
		out, err := shell(e.Context(), `rm -rf "$2"; cp -a "$3" "$2"; cd "$2"; find . -mindepth 1 -type d -empty -delete; `+tool, file, filepath.Join(e.dir, "copy"), from)
		if err != nil {
			e.Errorf("%s: %.30s: %v\n%s\n%s", what, tool, err, out, patch)
			continue
		}
		want := want
		if strings.HasSuffix(strings.TrimSpace(out), "refused") {
			want = was
		}
		if got := e.sh(asGit, filepath.Join(e.dir, "copy")); got != want {
			e.Errorf("%s: after %.30s: got\n%s\nwant\n%s\n%s\npatch\n%s", what, tool, got, want, out, patch)
		}
	}
}

func testDiffPatch(e *env) {
	src := e.mkdir("src")
	e.sh(`cd "$1"; mkdir -p d/sub e; seq 20 > d/a; seq 20 > d/sub/b; seq 9 > d/sub/c; printf 'no newline' > e/n; echo x > e/gone
		echo swap1 > e/s1; echo swap2 > e/s2; echo to-dir > e/t; mkdir e/u; echo in > e/u/in; ln -s a l; : > empty; printf 'a\0b' > bin
		echo same > same; echo own > own; printf '#!/bin/sh\n' > script; seq 5 > 'blank name'; echo over > e/over`, src)
	e.create("w", src)
	at := e.mount("w")
	old := filepath.Join(e.dir, "old")
	e.snapshot("w", "old")
	e.sh(`cp -a "$1" "$2"`, at, old)
	e.sh(`cd "$1"; sed -i 's/^7$/seven/; 15d' d/a; mv d dd; sed -i 3d dd/sub/c; echo new > dd/sub/new; printf 'now\n' > e/n; rm e/gone
		mv e/s1 e/x; mv e/s2 e/s1; mv e/x e/s2; rm e/t; mkdir e/t; echo dir > e/t/f; rm -r e/u; echo file > e/u; ln -sfn b l
		chmod +x script; chown 7:8 own; touch same; mv 'blank name' 'other name'; echo six >> 'other name'; mv same e/over
		mkdir empty-dir; ln -s nowhere ll; : > empty2; rm empty; mkfifo pipe`, at)
	e.snapshot("w", "new")
	next := filepath.Join(e.dir, "new")
	e.sh(`cp -a "$1" "$2"`, at, next)

	patch, changes := e.patch("old", "new")
	e.repeats("forth", patch, old, next)
	back, _ := e.patch("new", "old")
	e.repeats("back", back, next, old)

	var kinds []string
	added, deleted := 0, 0
	for _, c := range changes {
		line := c.Kind + " " + c.Path
		if c.Kind == "D" && c.Size != 0 || c.Kind == "A" && c.OldSize != 0 || c.Path == "e/gone" && c.OldSize != 2 {
			e.Errorf("%s: sizes %d, before %d", line, c.Size, c.OldSize)
		}
		if c.OldPath != "" {
			line += " < " + c.OldPath
		}
		if c.Stat != nil {
			added += c.Stat.Additions
			deleted += c.Stat.Deletions
			line += fmt.Sprintf(" +%d -%d", c.Stat.Additions, c.Stat.Deletions)
		}
		kinds = append(kinds, line)
	}
	const want = `R dd < d
R dd/a < d/a +1 -2
R dd/sub/b < d/sub/b +0 -0
R dd/sub/c < d/sub/c +0 -1
A dd/sub/new +1 -0
M e/n +1 -1
M e/over +1 -1
M e/s1 +1 -1
M e/s2 +1 -1
D e/t +0 -1
T e/t
A e/t/f +1 -0
D e/u/in +0 -1
A e/u +1 -0
D empty +0 -0
A empty-dir
A empty2 +0 -0
M l +1 -1
A ll +1 -0
R other name < blank name +1 -0
M own +0 -0
A pipe
D same +0 -1
M script +0 -0
D e/gone +0 -1`
	sorted := func(s []string) string { return e.sh(`printf '%s\n' "$@" | sort`, s...) }
	equal(e, "changes", sorted(kinds), sorted(strings.Split(want, "\n")))
	equal(e, "lines of the patch", e.sh(`printf '%s' "$1" | grep -c '^+[^+]'; printf '%s' "$1" | grep -c '^-[^-]'`, string(patch)),
		strconv.Itoa(added)+"\n"+strconv.Itoa(deleted))

	// Of the workspace, which is mounted, as well.
	e.sh(`cd "$1"; echo more >> dd/a; mv dd/sub sub; ln -sfn c l; mv ll lll; mv e/n nn; chmod -x script; rm own; echo own > own2`, at)
	patch, _ = e.patch("new", "w")
	e.repeats("workspace", patch, next, at)

	stop := errors.New("enough")
	r := sandbox.DiffRequest{A: "old", B: "new", Stat: true}
	if err := e.api.Diff(e.Context(), r, func(c sandbox.Change) error {
		if c.Patch != nil {
			e.Errorf("%s: a patch that was not asked for", c.Path)
		}
		return stop
	}); !errors.Is(err, stop) {
		e.Errorf("an error of the callback: got %v", err)
	}
}

// testDiffRandom has git repeat random changes of a tree, forth and back. Its links lead nowhere: git apply
// cannot put a directory where a link leads to itself (it looks for the new names below the link, and takes ELOOP
// for an error), whatever made the patch.
func testDiffRandom(e *env) {
	seed := testseed.Of(e)
	r := rand.New(rand.NewPCG(seed, 7))
	src := e.mkdir("src")
	e.sh(`cd "$1"; for i in 1 2 3 4; do mkdir -p d$i/s; seq $i 30 > d$i/f; seq $i 25 > d$i/s/g; echo $i > h$i; ln -s "no h$i" l$i; done; printf 'b\0' > d1/b`, src)
	e.create("w", src)
	at := e.mount("w")
	rounds := 4
	if os.Getenv("SNAPFS_LONG") != "" {
		rounds = 40
	}
	copyOf := func(name string) string {
		to := filepath.Join(e.dir, name)
		e.sh(`rm -rf "$2"; cp -a "$1" "$2"`, at, to)
		return to
	}
	// One change each, or none; $f is a random file or link, $d a random directory, $n a new name.
	const changes = `cd "$1"
any() { find . -mindepth 1 "$@" | sort | awk -v n="$r" '{ a[NR] = $0 } END { if (NR) print a[n % NR + 1] }'; }
while read -r op r; do
	f=$(any ! -type d); r=$((r / 7)); d=$(any -type d); r=$((r / 7)); e=$(any -type d); g=$(any ! -type d); n=n$((r % 12))
	[ -n "$f" ] && [ -n "$d" ] && [ -n "$e" ] || { rm -rf more; mkdir more; echo more > more/f; continue; }
	case $op in
	0) [ -L "$f" ] || echo "line $r" >> "$f";;
	1) [ -L "$f" ] || sed -i "$((r % 9 + 1))s/.*/changed $r/" "$f";;
	2) rm "$f";;
	3) [ -d "$d/$n" ] || { rm -f "$d/$n"; seq $((r % 5)) > "$d/$n"; };;
	4) [ -e "$d/$n" ] || [ -L "$d/$n" ] || mv "$f" "$d/$n";;
	5) case $e/ in "$d"/*) ;; *) [ -e "$e/$n" ] || [ -L "$e/$n" ] || mv "$d" "$e/$n";; esac;;
	6) [ "$f" = "$g" ] || mv "$f" "$g";;
	7) chmod $([ -x "$f" ] && echo 644 || echo 755) "$f" 2> /dev/null || :;;
	8) rm "$f"; mkdir "$f"; echo in > "$f/in";;
	9) rm -r "$d"; echo was a directory > "$d";;
	10) rm "$f"; ln -s "to $r" "$f";;
	11) mkdir -p "$d/$n.d/x"; echo deep > "$d/$n.d/x/y";;
	12) rm -r "$d"; mkdir "$d"; echo again > "$d/f";;
	13) [ "$f" = "$g" ] || { mv "$f" ./swap; mv "$g" "$f"; mv ./swap "$g"; };;
	14) [ -L "$f" ] || { cp "$f" "$f.tmp"; mv "$f.tmp" "$f"; };;
	15) [ -L "$f" ] || [ -e "$d/$n" ] || ln "$f" "$d/$n" 2> /dev/null || :;;
	esac
done`
	e.snapshot("w", "s0")
	old := copyOf("t0")
	for i := range rounds {
		var ops strings.Builder
		for range r.IntN(24) + 1 {
			fmt.Fprintf(&ops, "%d %d\n", r.IntN(16), r.IntN(1<<30))
		}
		e.sh(`printf '%s' "$2" | sh -c "$3" sh "$1" 2> /dev/null || :`, at, ops.String(), changes)
		a, b := fmt.Sprintf("s%d", i), fmt.Sprintf("s%d", i+1)
		if i%2 == 0 {
			e.snapshot("w", b)
		} else {
			e.stored("w", b)
		}
		next := copyOf(fmt.Sprintf("t%d", i+1))
		what := fmt.Sprintf("SNAPFS_SEED=%d round %d", seed, i)
		patch, _ := e.patch(a, b)
		e.repeats(what, patch, old, next)
		patch, _ = e.patch(b, a)
		e.repeats(what+" back", patch, next, old)
		patch, _ = e.patch("s0", b)
		e.repeats(what+" from the first", patch, filepath.Join(e.dir, "t0"), next)
		if e.Failed() {
			return
		}
		old = next
	}
}
