package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
)

// TestRoad takes Go's own source tree along the whole road: create, mount, work in it with real programs, snapshot,
// restore, branch, diff, export, delete.
func TestRoad(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	src := goSource(t)
	original := walk(t, src)
	require.Greater(t, len(original), 9000)

	h.ok("create", "go", "--from", src)
	require.Contains(t, h.ok("mount", "go", h.path("ws")), "go on "+h.path("ws"))
	ws := h.path("ws")
	same(t, "a fresh workspace and its source", original, walk(t, ws), treewalk.Options{IgnoreRoot: true})
	base := h.ok("snapshot", "go", "--name", "base")

	t.Run("programs", func(t *testing.T) { programs(t, ws) })
	specialFiles(t, ws)
	stale := shell(t, soon, ws, `git update-index -q --refresh || true; git diff-files --name-status`)
	frozen := walk(t, ws)
	id := h.ok("snapshot", "go", "--name", "worked", "--description", "after the programs")
	require.Equal(t, id, h.snapshot("worked").ID)
	require.Equal(t, base, h.snapshot("worked").Parent)

	changes := decode[struct{ Changes []sandbox.Change }](h, "diff", "base", "worked").Changes
	kinds := map[string]string{}
	for _, c := range changes {
		kinds[c.Path] = c.Kind
	}
	require.Equal(t, "A", kinds["special/hole"])
	require.Equal(t, "D", kinds["bufio/bufio.go"])
	require.Equal(t, "M", kinds["fmt/print.go"])
	require.NotContains(t, kinds, "fmt/scan.go")

	// The origin goes on: what it changes now is not in what was frozen.
	shell(t, soon, ws, `echo later > later; rm -r archive; echo more >> fmt/scan.go; chmod 600 fmt/print.go`)
	changed := walk(t, ws)

	restored := h.ok("restore", "worked", h.path("restored"))
	require.Regexp(t, `^go-restored-[0-9a-z]+$`, restored)
	thawed := walk(t, h.path("restored"))
	same(t, "restored and frozen", frozen, thawed, treewalk.Options{})
	// diff -r, which knows nothing of the walker, agrees; the origin's own changes are all it may find.
	out := shell(t, soon, h.tmp, `diff -r --no-dereference -q restored ws || test $? = 1`)
	require.ElementsMatch(t, []string{
		"Only in restored: archive", "Files restored/fmt/scan.go and ws/fmt/scan.go differ", "Only in ws: later",
		"File restored/special/fifo is a fifo while file ws/special/fifo is a fifo", // how diff says that it cannot compare
	}, strings.Split(strings.TrimSpace(out), "\n"))
	// diff-files goes by the index alone: times, inode numbers and all.
	require.Equal(t, stale, shell(t, soon, h.path("restored"), `git diff-files --name-status`), "git has to hash nothing again")

	branch := h.ok("branch", "base", h.path("branch"))
	require.Regexp(t, `^go-branch-[0-9a-z]+$`, branch)
	same(t, "a branch of the base and the source", original, walk(t, h.path("branch")), treewalk.Options{IgnoreRoot: true})
	shell(t, soon, h.path("branch"), `rm -r net os; echo branch > fmt/print.go; mkdir own; touch own/file`)
	shell(t, soon, h.path("restored"), `rm -r special; echo restored > fmt/print.go`)
	same(t, "the origin beside its branches", changed, walk(t, ws), treewalk.Options{})

	forked := h.ok("fork", branch, h.path("forked"))
	require.Equal(t, "branch\n", shell(t, soon, h.path("forked"), `test ! -e net; test -e own/file; cat fmt/print.go`))

	t.Run("export", func(t *testing.T) { export(t, h, frozen, []string{"first"}, []string{"small"}) })

	// Deleting a snapshot harms nothing that was made from it.
	h.ok("delete", "go:worked")
	h.ok("delete", id) // idempotent
	h.fails(3, "worked", "show", "worked")
	same(t, "a workspace whose snapshot is deleted", changed, walk(t, ws), treewalk.Options{})
	for _, name := range []string{forked, branch, restored, "go"} {
		h.ok("umount", name)
		h.ok("destroy", "--now", name)
	}
	require.Empty(t, decode[sandbox.WorkspacePage](h, "list").Workspaces)
	h.ok("delete", "go:base")
	h.ok("gc")
	require.Empty(t, decode[sandbox.CheckResult](h, "check", "--read-data").Problems)
	require.Less(t, decode[sandbox.Stats](h, "stats").Packs, int64(16<<20), "an empty home keeps little")
}

// programs works in a Go source tree as people do.
func programs(t *testing.T, ws string) {
	git := `git -c user.name=t -c user.email=t@localhost -c gc.auto=0 -c init.defaultBranch=main `
	shell(t, 5*time.Minute, ws, git+`init -q . && `+git+`add . && `+git+`commit -q -m one && test -z "$(git status --porcelain)"`)
	shell(t, soon, ws, `echo '// more' >> fmt/print.go; rm bufio/bufio.go; test "$(git status --porcelain | wc -l)" = 2; git stash -q; test -z "$(git status --porcelain)"; git stash pop -q
		git checkout -q -b side; `+git+`commit -q -a -m two; git checkout -q main; test -e bufio/bufio.go; git checkout -q side; test ! -e bufio/bufio.go; git fsck --no-progress --no-dangling`)
	// A package of the tree as a module of its own, built and vetted where it lies.
	shell(t, 5*time.Minute, ws, `mkdir -p app/sub && cd app && cp ../container/heap/heap.go sub/ && cp -r ../text/tabwriter . && rm tabwriter/*_test.go
		cat > go.mod <<<$'module app\n\ngo 1.24'
		cat > main.go <<<$'package main\n\nimport (\n\t"app/tabwriter"\n\t"os"\n\n\t_ "app/sub"\n)\n\nfunc main() { w := tabwriter.NewWriter(os.Stdout, 0, 8, 1, 32, 0); w.Write([]byte("built\\n")); w.Flush() }'
		GOFLAGS=-mod=mod go build ./... && GOFLAGS=-mod=mod go vet ./... && GOFLAGS=-mod=mod go build -o prog . && test "$(./prog)" = built`)
	shell(t, soon, ws, `tar -cf special.tar fmt strings && mkdir untar && tar -xpf special.tar -C untar && diff -r fmt untar/fmt && diff -r strings untar/strings && rm special.tar`)
	shell(t, soon, ws, `rsync -a unicode/ rsynced/ && test -z "$(rsync -ani --delete unicode/ rsynced/)"`)
	shell(t, soon, ws, `python3 - <<'P'
import sqlite3
for mode in ("wal", "delete"):
    db = sqlite3.connect("app.db")
    db.execute("pragma journal_mode=" + mode)
    db.execute("create table if not exists t(k integer primary key, v text)")
    for i in range(50):
        with db:
            db.execute("insert into t(v) values(?)", ("x" * (i * 37),))
    assert db.execute("pragma integrity_check").fetchone() == ("ok",)
    db.close()
P
sqlite3 app.db 'select count(*) from t' | grep -qx 100`)
}

// specialFiles makes a directory "special" with everything that is easily lost.
func specialFiles(t *testing.T, ws string) {
	t.Helper()
	shell(t, soon, ws, `mkdir special && cd special
		truncate -s 10M hole; printf mid | dd of=hole bs=1 seek=5000000 conv=notrunc status=none
		ln -s ../fmt link; ln -s /nowhere/at/all dangling
		echo pair > one; ln one two; mkdir deep; ln one deep/three
		mkfifo fifo; mknod char c 1 3; mknod block b 7 200
		touch -d '1999-12-31 23:59:59.123456789 UTC' old; touch -d '2200-01-02 03:04:05.000000001 UTC' late; touch -d '1955-11-05 06:00:00.5 UTC' early
		touch -h -d '2001-02-03 04:05:06.789 UTC' link
		echo sh > prog; chmod 4755 prog; mkdir sticky; chmod 1777 sticky; mkdir -m 2750 setgid; chown 12345:54321 old; chown -h 7:8 link
		echo a > attrs; setfattr -n user.colour -v blue attrs; setfattr -n trusted.secret -v 0x00ff attrs; setfattr -n user.on.dir -v yes sticky
		setfacl -m u:1234:rw attrs; setfacl -d -m g:99:rx setgid
		mkdir $'line\nbreak' 'with blank' $'bad\xff' "$(printf 'n%.0s' {1..255})"
		: > empty; head -c 300000 /dev/urandom > noise; chmod 000 empty
		mv ../unicode ../renamed; mv ../strings/builder.go ../strings/moved.go`)
	_, err := os.Lstat("/nowhere/at/all")
	require.ErrorIs(t, err, os.ErrNotExist)
}
