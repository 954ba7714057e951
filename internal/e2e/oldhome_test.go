package e2e

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
)

// A home that an earlier version has made, with something of all that a home can have, and what that version showed of
// it. This and every later version must show the same. Such a home is made by
//
//	go test ./internal/e2e -run TestMakeOldHome -args -old-snapfs FILE -old-home testdata/homes/NAME.tar.gz
//
// with the complete command of that version; paths are absolute or relative to the root of the repository.
var (
	oldSnapfs = flag.String("old-snapfs", "", "make a home with the command in `FILE`")
	oldHome   = flag.String("old-home", "", "pack the home that was made as `FILE`")
)

// seen is what the version that made a home showed of it: manifest.json beside the home.
type seen struct {
	Version    string
	Workspaces []sandbox.Workspace
	Snapshots  []sandbox.Snapshot
	Events     []sandbox.Event
	Trees      map[string][]treewalk.Node // by workspace, or by id of the snapshot
}

// asText makes each byte of the strings of trees a character, as JSON has no other bytes; asBytes is the opposite.
func asText(trees map[string][]treewalk.Node) map[string][]treewalk.Node {
	return mapStrings(trees, func(s string) string {
		var text strings.Builder
		for _, c := range []byte(s) {
			text.WriteRune(rune(c))
		}
		return text.String()
	})
}

func asBytes(trees map[string][]treewalk.Node) map[string][]treewalk.Node {
	return mapStrings(trees, func(s string) string {
		var b []byte
		for _, c := range s {
			b = append(b, byte(c))
		}
		return string(b)
	})
}

func mapStrings(trees map[string][]treewalk.Node, fn func(string) string) map[string][]treewalk.Node {
	mapped := map[string][]treewalk.Node{}
	for name, nodes := range trees {
		nodes = slices.Clone(nodes)
		for i := range nodes {
			n := &nodes[i]
			n.Path, n.Target, n.Group = fn(n.Path), fn(n.Target), fn(n.Group)
			attrs := map[string]string{}
			for k, v := range n.Xattrs {
				attrs[fn(k)] = fn(v)
			}
			n.Xattrs = attrs
		}
		mapped[name] = nodes
	}
	return mapped
}

// otherSession is the one of the sessions that is not the default.
const otherSession = "agent-7"

// look lists what there is in both sessions, without the trees.
func look(h *home) (s seen) {
	s.Version = h.ok("version")
	for _, session := range []string{sandbox.DefaultSession, otherSession} {
		list := decode[sandbox.WorkspacePage](h, "--session", session, "list").Workspaces
		slices.SortFunc(list, func(a, b sandbox.Workspace) int { return strings.Compare(a.ID, b.ID) })
		s.Workspaces = append(s.Workspaces, list...)
		s.Snapshots = append(s.Snapshots, decode[sandbox.SnapshotPage](h, "--session", session, "snapshots").Snapshots...)
		for line := range strings.Lines(h.ok("--session", session, "--json", "events")) {
			var e sandbox.Event
			require.NoError(h.t, json.Unmarshal([]byte(line), &e))
			s.Events = append(s.Events, e)
		}
	}
	return s
}

// oldTree makes the tree that the workspaces start from.
const oldTree = `
	mkdir -p src/sub/deep src/replaced/below src/moved/below src/many src/emptied "src/$(printf 'n%.0s' {1..255})"; cd src
	for i in 1 2 3 4 5 6; do seq $i 400 > sub/f$i; touch "many/$i"; done
	seq 230000 > large; seq 9000 > middle
	ln sub/f1 sub/deep/linked; ln sub/f1 linked; ln -s sub/f2 link; ln -s /nowhere/$(printf 'x%.0s' {1..200}) long-link
	printf begin > sparse; truncate -s 400000 sparse; printf end >> sparse; : > empty
	mkfifo pipe; mknod null c 1 3; mknod block b 7 200
	python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
	echo a > replaced/a; echo b > replaced/below/b; echo c > moved/c; echo d > moved/below/d; echo e > emptied/e
	printf 1 > $'line\nbreak'; printf 2 > $'bytes\xff\xfe'
	cp /bin/true setuid; chmod 4755 setuid; cp setuid setgid; chmod 2755 setgid; mkdir sticky; chmod 1777 sticky; chmod 600 sub/f5
	cp setuid capable; setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 capable
	chown 1234:5678 sub/f3 sub; chown -h 1234:5678 link
	setfattr -n user.text -v value sub/f4; setfattr -n user.bytes -v 0x00ff sub/f4; setfattr -n user.of-directory -v x sub/deep
	setfacl -m u:1234:rw sub/f6; setfacl -d -m g:5678:rx many
	touch -d @1.123456789 sub/f5; touch -d @4102444800.5 sub/f2
	for i in {1..42}; do mkdir "$(printf 'p%.0s' {1..100})"; cd -P "$(printf 'p%.0s' {1..100})"; done; echo bottom > bottom`

// oldChanges is what a workspace does to it, of each kind that an upper records in a way of its own.
const oldChanges = `
	cd "$1"
	rm sub/f2; rm -r emptied; rm middle; mkdir middle; echo now a directory > middle/file      # whiteouts
	rm -r replaced; mkdir replaced; echo new > replaced/new                                   # opaque
	mv moved elsewhere; mv elsewhere/below sub/below; mv many sub/many                        # redirects
	chmod 640 sub/f4; chown 77:88 sub/f6; setfattr -n user.more -v 1 large                    # metadata only
	printf overwritten | dd of=large bs=1 seek=700000 conv=notrunc status=none                # a part of a large file
	echo more >> sub/f1; ln sub/deep/linked another; ln -s sub/f1 soft                        # a group of hard links
	touch -h -d @2.000000002 soft; mkfifo sub/pipe; mknod sub/zero c 1 5; mknod sub/loop b 7 201
	echo s > sub/setuid; chmod 6755 sub/setuid; chown 5:6 sub/below; chmod 2770 sub/below
	printf 'x%.0s' {1..70000} > sub/holes; truncate -s 300000 sub/holes; printf end >> sub/holes
	setfattr -n user.own -v 0x0102 sub/holes; setfattr -x user.text sub/f4
	echo long > "$(printf 'o%.0s' {1..255})"; chmod 711 .`

// TestMakeOldHome makes a home for TestOldHomes, with the command that it is given.
func TestMakeOldHome(t *testing.T) {
	if *oldSnapfs == "" {
		t.Skip("makes a home with the command of -old-snapfs")
	}
	root := func(path string) string {
		if !filepath.IsAbs(path) {
			path = filepath.Join("../..", path)
		}
		path, err := filepath.Abs(path)
		require.NoError(t, err)
		return path
	}
	archive := root(*oldHome)
	present := snapfs
	snapfs = root(*oldSnapfs)
	t.Cleanup(func() { snapfs = present })
	h := newHome(t)
	trees := map[string][]treewalk.Node{}
	mount := func(name string) string {
		h.ok("mount", name, h.makeDir("mounts/"+name))
		return h.path("mounts/" + name)
	}
	snapshot := func(name, at string, args ...string) string {
		id := h.ok(append([]string{"-q", "snapshot", name}, args...)...)
		trees[id] = walk(t, at)
		return id
	}
	shell(t, soon, h.tmp, oldTree)
	h.ok("create", "app", "--from", h.path("src"))
	app := mount("app")
	first := snapshot("app", app, "--name", "first", "--description", "as it came", "--wait", "stored")
	shell(t, soon, h.tmp, oldChanges, app)
	changed := snapshot("app", app, "--name", "changed", "--expires-at", "2100-01-01T00:00:00Z", "--wait", "stored")

	// Deep enough for tiers; of the older part only some are kept, so that layers are merged.
	var history []string
	for i := range 40 {
		shell(t, soon, app, `echo $1 > number; seq $1 2000 > sub/deep/$(($1 % 5)); rm -f sub/deep/$((($1 + 2) % 5)); mkdir round-$1`, itoa(i))
		history = append(history, snapshot("app", app, "--wait", "stored"))
	}
	for i, id := range history {
		if i < 30 && i%10 > 5 {
			h.ok("delete", id)
		}
		if i != 0 && i != 15 && i != 24 {
			delete(trees, id) // three are enough
		}
	}
	image := h.path("changed.sqsh")
	h.ok("export", changed, image, "--compression", "zstd", "--level", "1")
	h.ok("create", "imported", "--from", image)
	h.ok("create", "empty")
	h.ok("--session", otherSession, "create", "other", "--from", first, "--allow-cross-session")
	h.ok("--session", otherSession, "mount", "other", h.makeDir("mounts/other"))
	shell(t, soon, h.path("mounts/other"), `rm -r sub; echo mine > mine; chown 4000 .`)
	id := h.ok("-q", "--session", otherSession, "snapshot", "other", "--name", "of-agent", "--ttl", "36500d")
	trees[id] = walk(t, h.path("mounts/other"))
	fork := h.ok("-q", "fork", "app", h.makeDir("mounts/fork"))
	shell(t, soon, h.path("mounts/fork"), `rm large; seq 100 > replaced/hundred`)
	back := h.ok("-q", "restore", changed, h.makeDir("mounts/back"))
	shell(t, soon, h.path("mounts/back"), `echo gone > gone; rm -rf sub`)
	h.ok("rollback", back, first)
	shell(t, soon, h.tmp, oldChanges, h.path("mounts/back"))
	h.ok("-q", "branch", "first")
	h.ok("create", "paused", "--from", "changed")
	shell(t, soon, mount("paused"), `echo before > before; rm sub/f1`)
	trees["paused"] = walk(t, h.path("mounts/paused"))
	h.ok("pause", "paused")
	h.ok("create", "gone")
	h.ok("destroy", "gone")
	// Merging has an end; then what is left in work is what the next snapshots bring.
	before := -1
	for n := h.snapshot(history[39]).Depth; n != before; n = h.snapshot(history[39]).Depth {
		before = n
		time.Sleep(5 * time.Second)
	}
	h.ok("gc")
	// Nobody waits for these layers to be stored: the next daemon finds them as directories.
	shell(t, soon, app, `rm number; mkdir -p parked/a; seq 3000 > parked/a/b; mv sub/f1 parked; rm -r round-7; mkdir round-7; echo opaque > round-7/new
		printf again | dd of=large bs=1 seek=100000 conv=notrunc status=none; setfattr -n user.parked -v y linked; head -c 100000000 /dev/zero | tr '\0' y > long-to-store`)
	for name, dir := range map[string]string{"app": "app", fork: "fork", back: "back", "other": "other"} {
		trees[name] = walk(t, h.path("mounts/"+dir))
	}
	trees[h.ok("-q", "snapshot", "app", "--name", "parked")] = trees["app"]
	h.ok("stop")
	shell(t, soon, h.tmp, `mkdir packed; cp -a home packed`)
	s := look(h)
	s.Trees = asText(trees)
	h.ok("stop")
	text, err := json.Marshal(s)
	require.NoError(t, err)
	h.write("manifest.json", string(text))
	shell(t, soon, h.tmp, `tar --create --format=posix --sparse --acls --xattrs '--xattrs-include=*' --numeric-owner --sort=name \
		--exclude=daemon.sock --exclude=daemon.log -C packed home -C .. manifest.json | gzip -9 > "$1"`, archive)
}

// TestOldHomes opens the homes that earlier versions made, which have all that a home can have.
func TestOldHomes(t *testing.T) {
	for _, archive := range []string{"everything-54ce534.tar.gz"} {
		t.Run(archive, func(t *testing.T) { testOldHome(t, archive) })
	}
}

func testOldHome(t *testing.T, archive string) {
	h := newHome(t)
	file, err := filepath.Abs(filepath.Join("../../testdata/homes", archive))
	require.NoError(t, err)
	shell(t, soon, h.tmp, `tar --extract --preserve-permissions --acls --xattrs '--xattrs-include=*' --numeric-owner --file "$1"`, file)
	var want seen
	text, err := os.ReadFile(h.path("manifest.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &want))
	want.Trees = asBytes(want.Trees)

	uppers, err := os.ReadDir(filepath.Join(h.dir, "uppers"))
	require.NoError(t, err)
	require.Greater(t, len(uppers), len(want.Workspaces), "the home has layers that are not stored")

	format := func() string {
		text, err := os.ReadFile(filepath.Join(h.dir, "store/FORMAT"))
		require.NoError(t, err)
		return string(text)
	}
	require.Equal(t, "snapfs chunk store, version 1\n", format())

	clean := func(when string) {
		t.Helper()
		require.Empty(t, decode[sandbox.CheckResult](h, "check", "--read-data").Problems, when)
	}
	got := look(h)
	require.Equal(t, "snapfs chunk store, version 2\n", format(), "earlier programs refuse it from now on")
	require.Equal(t, told(want.Workspaces), told(got.Workspaces))
	require.Equal(t, named(want.Snapshots), named(got.Snapshots))
	require.Equal(t, want.Events, got.Events[:min(len(want.Events), len(got.Events))])
	clean("as it was")

	at := func(name string) string { return h.makeDir("mounts/" + name) }
	as := func(w sandbox.Workspace, args ...string) string {
		return h.ok(append([]string{"-q", "--session", w.Session}, args...)...)
	}
	// What an upper's host tells of a file is new where the home was unpacked: those times, and numbers, that nobody
	// can set.
	opts := treewalk.Options{}
	for round, what := range []string{"the first time", "again"} {
		for _, w := range want.Workspaces {
			as(w, "mount", w.ID, at(w.ID))
			if tree := want.Trees[w.ID]; tree != nil {
				same(t, w.ID+", mounted "+what, tree, walk(t, at(w.ID)), opts)
			} else {
				want.Trees[w.ID] = walk(t, at(w.ID))
			}
			require.Equal(t, w.ID == "paused", h.workspaceOf(w).Paused)
		}
		for _, s := range want.Snapshots {
			if want.Trees[s.ID] == nil {
				continue
			}
			dir := at("restored")
			name := h.ok("-q", "--session", s.Session, "restore", s.ID, dir)
			tree := walk(t, dir)
			same(t, s.ID+" "+s.Name+", restored "+what, want.Trees[s.ID], tree, opts)
			if s.Name != "parked" { // what is stored has its numbers and times with it; the root is a new directory
				exact := treewalk.Options{Ino: true, Ctime: true, IgnoreRoot: true}
				same(t, s.ID+" "+s.Name+", exactly", want.Trees[s.ID], tree, exact)
			}
			h.ok("-q", "--session", s.Session, "umount", name)
			h.ok("-q", "--session", s.Session, "destroy", name)
		}
		for _, w := range want.Workspaces {
			id := as(w, "snapshot", w.ID, "--wait", "stored")
			name := as(w, "restore", id, at("restored"))
			same(t, w.ID+", its snapshot "+what, want.Trees[w.ID], walk(t, at("restored")), opts)
			as(w, "umount", name)
			as(w, "destroy", name)
			if w.ID == "paused" && round == 0 {
				continue
			}
			if w.ID == "paused" {
				as(w, "resume", w.ID)
			}
			// The workspace goes on: what it writes is in the next snapshot, and a rollback takes it away.
			shell(t, soon, at(w.ID), `mkdir made; seq 100 > made/file; rm -rf sub; test -e large && echo more >> large || true`)
			as(w, "snapshot", w.ID, "--wait", "stored")
			as(w, "rollback", w.ID, id)
			same(t, w.ID+", rolled back "+what, want.Trees[w.ID], walk(t, at(w.ID)), opts)
		}
		clean("after " + what)
		h.ok("stop")
	}
	clean("in the end")
}

// workspaceOf shows a workspace of any session.
func (h *home) workspaceOf(w sandbox.Workspace) sandbox.Workspace {
	h.t.Helper()
	return *decode[sandbox.Object](h, "--session", w.Session, "show", w.ID).Workspace
}

// told is what does not change of workspaces when a home is opened: not the depth of a stack, which is merged
// meanwhile.
func told(all []sandbox.Workspace) []sandbox.Workspace {
	all = slices.Clone(all)
	for i := range all {
		all[i].Layers, all[i].Problem, all[i].LastMountpoint = 0, "", ""
	}
	return all
}

// named is what does not change of snapshots: not their state, nor the layers.
func named(all []sandbox.Snapshot) []sandbox.Snapshot {
	all = slices.Clone(all)
	for i := range all {
		all[i].State, all[i].Depth, all[i].Layers, all[i].Problem = "", 0, nil, ""
	}
	return all
}
