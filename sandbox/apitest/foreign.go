package apitest

import (
	"path/filepath"

	"snapfs/sandbox"
)

// testForeign follows a tree that somebody else has made through all that is made from it: its setuid programs and
// devices are dead wherever it is mounted without a word about them.
func testForeign(e *env) {
	src := e.mkdir("src")
	e.sh(`cp "$(command -v id)" "$1/id"; chmod 4755 "$1/id"; chmod 755 "$2"; mknod -m 666 "$1/null" c 1 3`, src, e.dir)
	image := filepath.Join(e.dir, "tree.sqsh")
	e.sh(`mksquashfs "$1" "$2" -no-progress -quiet >/dev/null`, src, image)
	ctx := e.Context()
	// guarded looks at the mount as its users do.
	guarded := func(what, workspace string, foreign, suid, dev bool) {
		e.Helper()
		w := e.show(workspace)
		equal(e, what+" is foreign", w.Foreign, foreign)
		equal(e, what+" ignores setuid", w.NoSUID, !suid)
		equal(e, what+" ignores devices", w.NoDev, !dev)
		want := map[bool]string{true: "0", false: "65534"}[suid]
		equal(e, what+": a setuid program runs as", e.sh(`setpriv --reuid 65534 --regid 65534 --clear-groups "$1/id" -u`, w.Mountpoint), want)
		want = map[bool]string{true: "open", false: "refused"}[dev]
		equal(e, what+": a device is", e.sh(`if head -c 0 "$1/null" 2>/dev/null; then echo open; else echo refused; fi`, w.Mountpoint), want)
	}
	mountWith := func(workspace string, o sandbox.MountOptions) {
		e.Helper()
		at := filepath.Join(e.dir, "mnt-"+workspace)
		must[sandbox.Workspace](e)(e.api.Mount(ctx, sandbox.MountRequest{Workspace: workspace, Mountpoint: at, MakeMountpoint: true, MountOptions: o}))
	}

	e.create("own", src)
	e.mount("own")
	guarded("a directory of ours", "own", false, true, true)
	own := e.snapshot("own", "ours")
	equal(e, "a snapshot of it is foreign", own.Foreign, false)

	e.create("image", image)
	e.mount("image")
	guarded("an image", "image", true, false, false)
	theirs := e.snapshot("image", "theirs")
	equal(e, "a snapshot of it is foreign", theirs.Foreign, true)
	restored, _ := e.restore(theirs.ID)
	guarded("a restored one", restored.ID, true, false, false)
	fork := must[sandbox.Workspace](e)(e.api.Fork(ctx, sandbox.ForkRequest{Workspace: restored.ID, Mountpoint: e.mkdir("fork")}))
	guarded("a fork of that", fork.ID, true, false, false)
	branch := must[sandbox.Workspace](e)(e.api.Branch(ctx, sandbox.RestoreRequest{Snapshot: theirs.ID}))
	e.create("again", theirs.ID)
	mountWith(branch.ID, sandbox.MountOptions{SUID: true})
	guarded("a branch whose programs are trusted", branch.ID, true, true, false)
	mountWith("again", sandbox.MountOptions{SUID: true, Dev: true, ReadOnly: true})
	guarded("one that is trusted", "again", true, true, true)
	_, err := e.api.Mount(ctx, sandbox.MountRequest{Workspace: "again", MountOptions: sandbox.MountOptions{SUID: true, NoSUID: true}})
	e.wants(err, sandbox.ErrInvalid, "nosuid")

	// Nothing foreign comes beneath a mount that honours it.
	_, err = e.api.Rollback(ctx, sandbox.RollbackRequest{Workspace: "own", Snapshot: theirs.ID, Foreign: true})
	e.wants(err, sandbox.ErrConflict, "elsewhere", "unmount")
	guarded("the directory after that", "own", false, true, true)

	e.reopen(true)
	guarded("an image, mounted again", "image", true, false, false)
	guarded("a branch whose programs are trusted, mounted again", branch.ID, true, true, false)
	guarded("a directory, mounted again", "own", false, true, true)
	e.unmount("own")
	must[sandbox.RollbackResult](e)(e.api.Rollback(ctx, sandbox.RollbackRequest{Workspace: "own", Snapshot: theirs.ID, Foreign: true}))
	mountWith("own", sandbox.MountOptions{})
	guarded("a directory that went to a foreign tree", "own", true, false, false)
}
