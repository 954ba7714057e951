package apitest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"snapfs/sandbox"
)

func testMountTwice(e *env) {
	at := e.up("w")
	repeat := func(r sandbox.MountRequest) error {
		r.Workspace = "w"
		_, err := e.api.Mount(e.Context(), r)
		return err
	}
	if err := repeat(sandbox.MountRequest{Mountpoint: at}); err != nil {
		e.Errorf("the same mount again: %v", err)
	}
	if err := repeat(sandbox.MountRequest{Mountpoint: at + "/", MountOptions: sandbox.MountOptions{Transport: "auto"}}); err != nil {
		e.Errorf("the same mount again: %v", err)
	}
	if err := repeat(sandbox.MountRequest{}); err != nil {
		e.Errorf("the recorded mountpoint: %v", err)
	}
	e.wants(repeat(sandbox.MountRequest{Mountpoint: at, MountOptions: sandbox.MountOptions{ReadOnly: true}}), sandbox.ErrConflict, at, "rw")
	for _, o := range []sandbox.MountOptions{{NoSUID: true}, {NoDev: true}, {NoExec: true}} {
		e.wants(repeat(sandbox.MountRequest{Mountpoint: at, MountOptions: o}), sandbox.ErrConflict, at, "other options")
	}
	e.wants(repeat(sandbox.MountRequest{Mountpoint: e.mkdir("other")}), sandbox.ErrConflict, at)
	e.unmount("w")
	equal(e, "state", e.show("w").State, sandbox.Unmounted)
	equal(e, "mountpoint of an unmounted workspace", e.show("w").Mountpoint, "")
	if err := repeat(sandbox.MountRequest{}); err != nil {
		e.Errorf("where it was: %v", err)
	}
	equal(e, "mountpoint", e.show("w").Mountpoint, at)
	e.create("never", "")
	_, err := e.api.Mount(e.Context(), sandbox.MountRequest{Workspace: "never"})
	e.wants(err, sandbox.ErrInvalid, "never")
}

func testMountRefuses(e *env) {
	at := e.up("w")
	e.sh(`mkdir "$1/d"`, at)
	e.create("v", "")
	file := filepath.Join(e.dir, "file")
	busy := e.mkdir("busy")
	link := filepath.Join(e.dir, "into")
	e.sh(`echo > "$1"; mount -t tmpfs none "$2"; ln -s "$3/d" "$4"`, file, busy, at, link)
	defer e.sh(`umount "$1"`, busy)
	for _, bad := range []struct {
		mountpoint string
		class      error
		says       string
	}{
		{filepath.Join(e.dir, "missing"), sandbox.ErrNotFound, "missing"},
		{filepath.Join(e.dir, "missing/deep"), sandbox.ErrNotFound, "missing"},
		{file, sandbox.ErrInvalid, "directory"},
		{file + "/below", sandbox.ErrInvalid, ""},
		{busy, sandbox.ErrConflict, "tmpfs"},
		{at, sandbox.ErrConflict, "workspace w"},
		{at + "/d", sandbox.ErrConflict, "workspace w"},
		{link, sandbox.ErrConflict, "workspace w"},
		{e.home, sandbox.ErrConflict, "home"},
		{e.home + "/uppers", sandbox.ErrConflict, "home"},
		{e.dir, sandbox.ErrConflict, "home"},
		{"/", sandbox.ErrConflict, ""},
		{"relative", sandbox.ErrInvalid, "relative"},
		{"/a\x00b", sandbox.ErrInvalid, ""},
	} {
		_, err := e.api.Mount(e.Context(), sandbox.MountRequest{Workspace: "v", Mountpoint: bad.mountpoint})
		e.wants(err, bad.class, bad.says)
	}
	_, err := e.api.Mount(e.Context(), sandbox.MountRequest{Workspace: "v", Mountpoint: filepath.Join(e.dir, "no/deep"), MakeMountpoint: true})
	e.wants(err, sandbox.ErrNotFound, "no")
	_, err = e.api.Mount(e.Context(), sandbox.MountRequest{
		Workspace: "v", Mountpoint: filepath.Join(e.dir, "made"), MakeMountpoint: true, MountOptions: sandbox.MountOptions{Transport: "pigeon"},
	})
	e.wants(err, sandbox.ErrInvalid, "pigeon")
	if _, err := os.Lstat(filepath.Join(e.dir, "made")); err == nil {
		e.Error("a refused mount left its mountpoint behind")
	}
	_, err = e.api.Mount(e.Context(), sandbox.MountRequest{Workspace: "unknown", Mountpoint: e.mkdir("m")})
	e.wants(err, sandbox.ErrNotFound, "unknown")
	equal(e, "state", e.show("v").State, sandbox.Unmounted)
	_, err = e.api.Unmount(e.Context(), sandbox.UnmountRequest{Workspace: "v"})
	e.wants(err, sandbox.ErrConflict, "not mounted")
}

func testMountReadOnly(e *env) {
	at := e.up("w")
	e.sh(`echo kept > "$1/f"`, at)
	e.unmount("w")
	w := must[sandbox.Workspace](e)(e.api.Mount(e.Context(), sandbox.MountRequest{
		Workspace: "w", Mountpoint: at, MountOptions: sandbox.MountOptions{ReadOnly: true, NoExec: true},
	}))
	equal(e, "read-only", w.ReadOnly, true)
	equal(e, "contents", e.sh(`cat "$1/f"; ! touch "$1/g" 2>/dev/null`, at), "kept")
	if opts := e.sh(`findmnt -no OPTIONS "$1"`, at); !strings.Contains(opts, "noexec") {
		e.Errorf("options %s lack noexec", opts)
	}
	// It can be frozen, with what was written before, and goes on.
	s := e.snapshot("w", "")
	equal(e, "unchanged", s.Unchanged, false)
	equal(e, "a second one is unchanged", e.snapshot("w", "").Unchanged, true)
	_, restored := e.restore(s.ID)
	equal(e, "restored", e.sh(`cat "$1/f"`, restored), "kept")
	equal(e, "contents", e.sh(`cat "$1/f"`, at), "kept")
	e.unmount("w")
	equal(e, "contents", e.sh(`cat "$1/f"; echo > "$1/f"`, e.mount("w")), "kept")
}

// testMountSnapshot mounts a snapshot, which leaves nothing behind.
func testMountSnapshot(e *env) {
	at := e.up("w")
	e.sh(`echo kept > "$1/f"`, at)
	s := e.snapshot("w", "s")
	e.sh(`echo changed > "$1/f"`, at)
	dir := e.mkdir("view")
	r := sandbox.MountRequest{Workspace: "w:s", Mountpoint: dir}
	_, err := e.api.Mount(e.Context(), r)
	e.wants(err, sandbox.ErrInvalid, "w:s", "read-only")
	r.ReadOnly, r.Mountpoint = true, filepath.Join(e.dir, "missing")
	_, err = e.api.Mount(e.Context(), r)
	e.wants(err, sandbox.ErrNotFound, "missing")
	r.Mountpoint = dir
	view := must[sandbox.Workspace](e)(e.api.Mount(e.Context(), r))
	equal(e, "view", view.View && view.ReadOnly && view.Origin == s.ID, true)
	equal(e, "the same again", must[sandbox.Workspace](e)(e.api.Mount(e.Context(), r)).ID, view.ID)
	equal(e, "contents", e.sh(`cat "$1/f"`, dir), "kept")
	_, err = e.api.Fork(e.Context(), sandbox.ForkRequest{Workspace: view.ID})
	e.wants(err, sandbox.ErrConflict, "view of snapshot w:s")
	list := func(r sandbox.ListRequest) string {
		return joined(e, sandbox.AllWorkspaces(e.Context(), e.api, r), func(w sandbox.Workspace) string { return w.ID })
	}
	equal(e, "a list", list(sandbox.ListRequest{}), "w")
	equal(e, "a list of pages with views", list(sandbox.ListRequest{Views: true, Limit: 1}), "w "+view.ID)
	e.reopen(true)
	equal(e, "mounted again", e.sh(`cat "$1/f"`, dir), "kept")
	e.unmount(view.ID)
	equal(e, "a list", list(sandbox.ListRequest{Views: true}), "w")
	must[sandbox.Workspace](e)(e.api.Mount(e.Context(), r))
	e.reopen(false)
	equal(e, "a list when it is not mounted again", list(sandbox.ListRequest{Views: true}), "w")
}

// background starts a process that is killed when the test ends.
func (e *env) background(script string, args ...string) *exec.Cmd {
	e.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*shellTime)
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-euc", script, "sh"}, args...)...)
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		cancel()
		e.Fatal(err)
	}
	e.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // killed
	})
	return cmd
}

func testUnmountBusy(e *env) {
	at := e.up("w")
	ready := filepath.Join(e.dir, "ready")
	cmd := e.background(`cd "$1"; : > "$2"; exec sleep 60`, at, ready)
	e.eventually("the program runs", func() bool { _, err := os.Stat(ready); return err == nil })
	_, err := e.api.Unmount(e.Context(), sandbox.UnmountRequest{Workspace: "w"})
	e.wants(err, sandbox.ErrConflict, at, fmt.Sprint(cmd.Process.Pid), "force")
	equal(e, "state", e.show("w").State, sandbox.Mounted)
	e.wants(e.destroy("w"), sandbox.ErrConflict, "unmount")
	w := must[sandbox.Workspace](e)(e.api.Unmount(e.Context(), sandbox.UnmountRequest{Workspace: "w", Force: true}))
	equal(e, "state", w.State, sandbox.Unmounted)
	e.mount("w")
}

func testUnmountElsewhere(e *env) {
	at := e.up("w")
	e.sh(`echo data > "$1/f"; umount "$1"`, at)
	e.eventually("unmounted by umount(8)", func() bool { return e.show("w").State == sandbox.Unmounted })
	equal(e, "contents", e.sh(`cat "$1/f"`, e.mount("w")), "data")
	// A connection that dies takes its mount with it.
	ctl := e.mkdir("ctl")
	e.sh(`minor=$(mountpoint -d "$1" | cut -d: -f2); mount -t fusectl none "$2"; trap 'umount "$2"' EXIT; echo 1 > "$2/$minor/abort"`, at, ctl)
	e.eventually("unmounted by an abort", func() bool { return e.show("w").State == sandbox.Unmounted })
	equal(e, "contents", e.sh(`cat "$1/f"`, e.mount("w")), "data")
}

func testDetached(e *env) {
	at := e.up("w")
	e.sh(`echo data > "$1/f"`, at)
	ready := filepath.Join(e.dir, "ready")
	// A private copy of the mount tree, as a container has.
	holder := e.background(`exec unshare -m --propagation private sh -c ': > "$1"; exec sleep 60' sh "$1"`, ready)
	e.eventually("the namespace is there", func() bool { _, err := os.Stat(ready); return err == nil })
	w := must[sandbox.Workspace](e)(e.api.Unmount(e.Context(), sandbox.UnmountRequest{Workspace: "w"}))
	equal(e, "state", w.State, sandbox.Detached)
	pid := fmt.Sprint(holder.Process.Pid)
	_, err := e.api.Mount(e.Context(), sandbox.MountRequest{Workspace: "w", Mountpoint: at})
	e.wants(err, sandbox.ErrConflict, "detached", pid)
	e.wants(e.destroy("w"), sandbox.ErrConflict, "detached", pid)
	// It can be frozen all the same.
	s := e.snapshot("w", "")
	_, restored := e.restore(s.ID)
	equal(e, "contents", e.sh(`cat "$1/f"`, restored), "data")
	_, err = e.api.Unmount(e.Context(), sandbox.UnmountRequest{Workspace: "w"})
	e.wants(err, sandbox.ErrConflict, "detached", pid, "force")
	w = must[sandbox.Workspace](e)(e.api.Unmount(e.Context(), sandbox.UnmountRequest{Workspace: "w", Force: true}))
	equal(e, "state", w.State, sandbox.Unmounted)
	equal(e, "contents", e.sh(`cat "$1/f"`, e.mount("w")), "data")
	// The end of the service ends copies, too: the next one finds nothing in its way.
	ready2 := filepath.Join(e.dir, "ready2")
	e.background(`exec unshare -m --propagation private sh -c ': > "$1"; exec sleep 60' sh "$1"`, ready2)
	e.eventually("the namespace is there", func() bool { _, err := os.Stat(ready2); return err == nil })
	e.reopen(true)
	equal(e, "state", e.show("w").State, sandbox.Mounted)
	equal(e, "contents", e.sh(`cat "$1/f"`, at), "data")
}
