package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/internal/testseed"
	"snapfs/internal/treewalk"
	"snapfs/internal/twin"
)

// Real programs in a mount, from their distribution's packages. What takes long or needs a mirror wants SNAPFS_LONG=1.

const git = `git() { command git -c user.name=t -c user.email=t@localhost -c init.defaultBranch=main -c gc.auto=0 -c safe.directory='*' "$@"; }
`

// TestGit clones, collects, checks, and works in several worktrees, over a lower and in what is restored.
func TestGit(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	src := goSource(t)
	shell(t, soon, h.makeDir("src"), git+`cp -r "$1"/{net,os} . && rm -rf net/http net/*test* && git init -q . && git add . && git commit -qm one
		for i in 1 2 3; do echo "// $i" >> net/ip.go; git commit -qam "change $i"; done`, src)
	h.ok("up", "ws", h.path("ws"), "--from", h.path("src"))
	ws := h.path("ws")
	shell(t, soon, ws, git+`test -z "$(git status --porcelain)"
		git clone -q . clone && git clone -q --no-local . far && git clone -q --bare . bare
		git -C clone log --oneline | wc -l | grep -qx 4
		git worktree add -q tree -b side && (cd tree && git rm -qr os && git commit -qm 'no os' && git gc -q && git fsck --full --no-progress)
		git worktree list | wc -l | grep -qx 2`)
	h.ok("snapshot", "ws", "--name", "worked")
	h.ok("restore", "worked", h.path("restored"))
	for _, dir := range []string{ws, h.path("restored")} {
		shell(t, soon, dir, git+`git merge -q side && test ! -e os && git gc -q --prune=now && git fsck --full --strict --no-progress --no-dangling
			git -C clone pull -q && git -C clone gc -q && git -C clone fsck --full --no-progress && git -C far repack -qad && git -C bare fsck --no-progress
			git stash list; echo x >> net/ip.go; git stash -q; git stash pop -q; git reset -q --hard; rm -rf tree; git worktree prune; git worktree list | wc -l | grep -qx 1
			git clean -qfdx -e clone -e far -e bare; test -z "$(git -C clone status --porcelain)"`)
	}
}

// TestRsync copies a tree with all that rsync knows of into a mount, and finds nothing to do there afterwards.
func TestRsync(t *testing.T) {
	h := newHome(t)
	shell(t, soon, h.makeDir("src"), `cp -r "$1"/{strings,fmt} .; mkdir unicode; echo x > strings/builder.go`, goSource(t))
	specialFiles(t, h.path("src"))
	h.ok("up", "ws", h.makeDir("ws"))
	const sync = `rsync -aHAX --checksum --delete --numeric-ids --devices --specials`
	shell(t, soon, h.tmp, sync+` src/ ws/ && test -z "$(`+sync+` -in src/ ws/)"`)
	h.ok("snapshot", "ws", "--name", "copied")
	shell(t, soon, h.tmp, `rm -rf ws/special ws/fmt/*.go; echo more >> ws/strings/builder.go; chmod 600 ws/strings/*.go`)
	h.ok("restore", "copied", h.path("restored"))
	shell(t, soon, h.tmp, `test -z "$(`+sync+` -in src/ restored/)"; test -n "$(`+sync+` -in src/ ws/)"
		`+sync+` src/ ws/ && test -z "$(`+sync+` -in src/ ws/)"; mkdir back && `+sync+` ws/ back/ && test -z "$(`+sync+` -in src/ back/)"`)
}

// TestSQLite kills writers of a database in WAL mode, and freezes it under them: it stays sound and has what was
// committed.
func TestSQLite(t *testing.T) {
	h := newHome(t)
	h.ok("up", "ws", h.path("ws"))
	ws := h.path("ws")
	shell(t, soon, ws, `sqlite3 db 'pragma journal_mode=wal; create table t(k integer primary key, v blob); create index i on t(v)' | grep -qx wal`)
	// Each number that is printed is committed.
	const writer = `import os, sqlite3
db = sqlite3.connect("db", isolation_level=None)
db.execute("pragma synchronous=normal")
while True:
    k = db.execute("insert into t(v) values(randomblob(?)) returning k", (abs(hash(str(k))) % 3000 if 'k' in globals() else 1,)).fetchone()[0]
    open("../acking", "w").write(str(k))
    os.replace("../acking", "../acked")`
	const check = `sqlite3 db 'pragma integrity_check' | grep -qx ok; test "$(sqlite3 db 'select max(k) from t')" -ge "$1"`
	acked := func() string {
		for range 2400 {
			if b, err := os.ReadFile(h.path("acked")); err == nil && len(b) > 0 {
				return string(b)
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Fatal("the writer does not write")
		return ""
	}
	for round := range 3 {
		require.NoError(t, os.RemoveAll(h.path("acked")))
		end := start(t, h, ws, "python3", "-c", writer)
		before := acked()
		name := "running" + itoa(round)
		h.ok("snapshot", "ws", "--name", name)
		time.Sleep(100 * time.Millisecond)
		end() // SIGKILL
		shell(t, soon, ws, check, acked())
		h.ok("restore", name, h.path(name))
		shell(t, soon, h.path(name), check+`; sqlite3 db 'insert into t(v) values(1); pragma wal_checkpoint(truncate); vacuum' >/dev/null; `+check, before)
	}
}

// TestOverlayOnTop gives a mount to the kernel's overlayfs as upper, as a container engine in a workspace does, and
// compares it with one over the host's file system.
func TestOverlayOnTop(t *testing.T) {
	h := newHome(t)
	h.ok("up", "ws", h.path("ws"))
	for _, dir := range []string{"lower", "host", "got", "want"} {
		h.makeDir(dir)
	}
	maker := twin.Start(t, twin.Config{Tested: h.path("lower"), Seed: 5})
	maker.Steps(400)
	maker.Stop()
	const mount = `mkdir -p "$1/u" "$1/w"; mount -t overlay overlay -o "lowerdir=lower,upperdir=$1/u,workdir=$1/w,redirect_dir=on,index=off" "$2"`
	// Without hard links either: who opens a file of which the lower has two names shows two until it is copied up, and
	// then one.
	shell(t, soon, h.tmp, `find lower ! -type f ! -type d ! -type l -delete; find lower ! -type d -links +1 -delete`)
	shell(t, soon, h.tmp, mount, h.path("ws"), "got")
	shell(t, soon, h.tmp, mount, h.path("host"), "want")
	t.Cleanup(func() { // a failed test's
		process(t, soon, h.tmp, nil, "bash", "-c", `umount -l got want 2>/dev/null || true`)
	})
	steps := 1500
	if long {
		steps = 50000
	}
	// Without hard links, which TestOverlayOnTop of package fs makes: the kernel remembers one of a file's names in the
	// upper and takes the file for stale once FUSE does not know that name any more, see docs/POSIX.md. As root: that
	// somebody outside its group writes to a file, which clears setgid even if it is not executable, does not reach the
	// lower file system of an overlay in a form that FUSE passes on.
	a := twin.Start(t, twin.Config{
		Tested: h.path("got"), Reference: h.path("want"), Seed: testseed.Of(t), AsRoot: true, Stacked: true,
	})
	for range steps / 500 {
		a.Steps(500)
		a.Compare()
	}
	a.Stop()
	upper := walk(t, h.path("got"))
	shell(t, soon, h.tmp, `umount got want`)
	// What was frozen is an upper as well.
	h.ok("snapshot", "ws", "--name", "one")
	h.ok("restore", "one", h.path("restored"))
	shell(t, soon, h.tmp, mount, h.path("restored"), "got")
	same(t, "the overlay over what was restored", upper, walk(t, h.path("got")), treewalk.Options{IgnoreExtents: true})
	shell(t, soon, h.tmp, `umount got`)
}

// TestPostgres freezes a database cluster under load and starts what was restored.
func TestPostgres(t *testing.T) {
	h := newHome(t)
	h.ok("up", "ws", h.path("ws"))
	seconds, more := "2", ""
	if long {
		seconds, more = "30", `as vacuumdb -q --all --analyze; as pg_amcheck --all --heapallindexed --install-missing; `
	}
	shell(t, soon, h.tmp, `chmod 755 . ..; chown postgres ws; install -d -o postgres sockets`)
	const as = `cd /; export PGHOST="$1/sockets" PGUSER=postgres PGDATABASE=postgres PATH="$(ls -d /usr/lib/postgresql/*/bin | tail -1):$PATH"
		as() { setpriv --reuid=postgres --regid=postgres --init-groups env TMPDIR="$PGHOST" "$@"; }
		ctl() { as pg_ctl -s -w -t 50 -D "$1/data" -o "-c listen_addresses= -c unix_socket_directories=$PGHOST -c shared_buffers=16MB" -l "$1/log" "$2" ${3:+-m $3} </dev/null >/dev/null; }
		`
	shell(t, 2*time.Minute, h.tmp, as+`as initdb -A trust -D "$1/ws/data" >/dev/null; ctl "$1/ws" start; as pgbench -q -i -s 1 2>/dev/null`, h.tmp)
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			process(t, soon, h.tmp, nil, "bash", "-c", as+`ctl "$1/ws" stop immediate`, "script", h.tmp)
		}
	})
	done := make(chan result, 1)
	go func() {
		done <- process(t, 2*time.Minute, h.tmp, nil, "bash", "-c", as+`as pgbench -n -c 4 -j 2 -T "$2" 2>&1`, "script", h.tmp, seconds)
	}()
	shell(t, 2*time.Minute, h.tmp, as+`until as psql -AtXc 'select count(*) > 0 from pgbench_history' | grep -qx t; do sleep 0.05; done`, h.tmp)
	h.ok("snapshot", "ws", "--name", "loaded")
	load := <-done
	require.Zero(t, load.code, load.out)
	// The sum of every kind of balance is the same after every transaction.
	const sums = `as psql -AtF ' ' -c 'select (select sum(abalance) from pgbench_accounts), (select sum(bbalance) from pgbench_branches), (select sum(tbalance) from pgbench_tellers), (select sum(delta) from pgbench_history), (select count(*) > 0 from pgbench_history)' |
			tee "$1/sums" | awk '$1 != $2 || $2 != $3 || $3 != $4 || $5 != "t" { exit 1 }'; `
	shell(t, 2*time.Minute, h.tmp, as+sums+`ctl "$1/ws" stop fast`, h.tmp)
	stopped = true
	h.ok("restore", "loaded", h.path("restored"))
	shell(t, 2*time.Minute, h.tmp, as+`rm -f "$1/restored/data/postmaster.pid"; ctl "$1/restored" start; trap 'ctl "$1/restored" stop immediate' EXIT
		`+sums+more+`
		as pgbench -n -c 2 -t 20 >/dev/null 2>&1; ctl "$1/restored" stop fast; trap - EXIT`, h.tmp)
}

// TestStress runs stress-ng's file system stressors, which verify what they do.
func TestStress(t *testing.T) {
	h := newHome(t)
	h.ok("up", "ws", h.path("ws"))
	stressors := "chown dir fallocate link rename xattr"
	each := "1s"
	if long {
		stressors = "access chdir chmod chown copy-file dentry dir dirdeep dirmany dup fallocate fcntl fiemap filename flock fpunch fsize fstat getdent hdd inode-flags inotify io iomix lease link locka lockf lockofd mknod mmap open rename seek sendfile splice symlink sync-file touch utime xattr"
		each = "4s"
	}
	shell(t, 12*time.Minute, h.path("ws"), `for s in $2; do
			stress-ng --temp-path . --$s 2 --timeout "$1" --verify > ../log 2>&1 || { code=$?; test $code = 4 || { echo "$s: $code"; cat ../log; exit 1; }; }
		done; ls | wc -l | grep -qx 0`, each, stressors)
}

// TestDebian installs a Debian system into a mount and a package inside of it. It needs a mirror.
func TestDebian(t *testing.T) {
	if !long {
		t.Skip("installs from a mirror: SNAPFS_LONG=1")
	}
	h := newHome(t)
	h.ok("up", "ws", h.path("ws"))
	shell(t, 9*time.Minute, h.tmp, `debootstrap --variant=minbase --include=ca-certificates bookworm ws http://deb.debian.org/debian > log 2>&1 || { tail -20 log; tail -20 ws/debootstrap/debootstrap.log; exit 1; }`)
	h.ok("snapshot", "ws", "--name", "bare")
	h.ok("branch", "bare", h.path("branch"))
	shell(t, 5*time.Minute, h.tmp, `cp /etc/resolv.conf branch/etc/; cp /etc/hosts branch/etc/
		env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin http_proxy="${http_proxy-}" DEBIAN_FRONTEND=noninteractive chroot branch sh -ec '
			apt-get -qq update; apt-get -qq install -y --no-install-recommends sudo git man-db; dpkg --audit; dpkg --verify sudo git; git --version; test -u /usr/bin/sudo
			useradd -m someone; su someone -c "id -un; touch ~/file"; apt-get -qq remove -y man-db; apt-get -qq autoremove -y' > log 2>&1 || { tail -30 log; exit 1; }`)
	grown := walk(t, h.path("branch"))
	h.ok("snapshot", h.workspaceAt("branch"), "--name", "grown", "--wait", "stored")
	h.ok("restore", "grown", h.path("restored"))
	same(t, "restored", grown, walk(t, h.path("restored")), treewalk.Options{})
}

// workspaceAt is the name of the workspace that is mounted at a path.
func (h *home) workspaceAt(path string) string {
	h.t.Helper()
	for _, m := range mountsBelow(h.tmp) {
		if m.dir == h.path(path) {
			return shell(h.t, soon, h.tmp, `findmnt -no SOURCE "$1" | tr -d '\n'`, m.dir)
		}
	}
	h.t.Fatalf("nothing is mounted at %s", path)
	return ""
}

// TestGoModule builds and tests a large module where it lies in a mount.
func TestGoModule(t *testing.T) {
	if !long {
		t.Skip("takes minutes: SNAPFS_LONG=1")
	}
	h := newHome(t)
	top, err := filepath.Abs("../..")
	require.NoError(t, err)
	shell(t, soon, h.tmp, `git clone -q --depth 1 "file://$1" src`, top)
	h.ok("up", "ws", h.path("ws"), "--from", h.path("src"))
	shell(t, 14*time.Minute, h.path("ws"), `export GOFLAGS=-mod=mod GOCACHE=$PWD/.cache GOTMPDIR=$PWD; unset SNAPFS_LONG
		go build ./... && go vet ./... && go test -timeout 800s ./chunkstore/... ./squashfs/... ./internal/goflate ./internal/treewalk && test -z "$(git status --porcelain | grep -v '.cache' || true)"`)
	built := walk(t, h.path("ws"))
	h.ok("snapshot", "ws", "--name", "built")
	h.ok("restore", "built", h.path("restored"))
	same(t, "restored", built, walk(t, h.path("restored")), treewalk.Options{})
	shell(t, 5*time.Minute, h.path("restored"), `GOFLAGS=-mod=mod GOCACHE=$PWD/.cache go build ./...`)
}
