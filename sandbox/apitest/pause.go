package apitest

import (
	"os"
	"path/filepath"
	"time"

	"snapfs/sandbox"
)

// testPause holds a program's writes back and works on the workspace meanwhile.
func testPause(e *env) {
	at := e.up("w")
	// A program that waits to write cannot be killed: whatever fails, it must be let go.
	defer func() { _, _ = e.api.Resume(e.Context(), sandbox.RefRequest{Ref: "w"}) }()
	e.sh(`echo one > "$1/f"; echo other > "$1/g"`, at)
	e.snapshot("w", "s")
	e.sh(`echo later > "$1/later"`, at)
	e.snapshot("w", "later")
	pause := func(r sandbox.PauseRequest) (sandbox.Workspace, error) {
		r.Workspace = "w"
		return e.api.Pause(e.Context(), r)
	}
	_, err := e.api.Resume(e.Context(), sandbox.RefRequest{Ref: "w"})
	e.wants(err, sandbox.ErrConflict, "not paused")
	_, err = pause(sandbox.PauseRequest{Cgroup: "relative"})
	e.wants(err, sandbox.ErrInvalid)
	_, err = pause(sandbox.PauseRequest{Cgroup: e.mkdir("none")})
	e.wants(err, sandbox.ErrNotFound, "cgroup")
	equal(e, "paused", must[sandbox.Workspace](e)(pause(sandbox.PauseRequest{})).Paused, true)
	_, err = pause(sandbox.PauseRequest{})
	e.wants(err, sandbox.ErrConflict, "paused already")

	done := filepath.Join(e.dir, "done")
	e.background(`echo two >> "$1/f"; : > "$2"; exec sleep 60`, at, done)
	written := func() bool { _, err := os.Stat(done); return err == nil }
	time.Sleep(50 * time.Millisecond) // long enough for a write that nothing holds back
	equal(e, "the write goes through", written(), false)
	equal(e, "reads of what nobody writes", e.sh(`cat "$1/g"`, at), "other")
	equal(e, "nothing has changed", e.snapshot("w", "").Unchanged, true)
	consistent := sandbox.SnapshotRequest{Workspace: "w", Consistent: true}
	must[sandbox.Snapshot](e)(e.api.Snapshot(e.Context(), consistent))
	fork := must[sandbox.Workspace](e)(e.api.Fork(e.Context(), sandbox.ForkRequest{Workspace: "w"}))
	equal(e, "a fork of what is paused is paused", fork.Paused, true)
	must[sandbox.Workspace](e)(e.api.Resume(e.Context(), sandbox.RefRequest{Ref: fork.ID}))
	// One that waits to make a name holds its directory's lock, which the kernel wants for forgetting names.
	made := filepath.Join(e.dir, "made")
	e.background(`mkdir "$1/new"; : > "$2"`, at, made)
	time.Sleep(50 * time.Millisecond) // it waits by now, as a rule
	must[sandbox.RollbackResult](e)(e.api.Rollback(e.Context(), sandbox.RollbackRequest{Workspace: "w", Snapshot: "s"}))
	equal(e, "still held back", written(), false)
	equal(e, "resumed", must[sandbox.Workspace](e)(e.api.Resume(e.Context(), sandbox.RefRequest{Ref: "w"})).Paused, false)
	e.eventually("the write goes through", written)
	equal(e, "contents", e.sh(`cat "$1/f"`, at), "one\ntwo")
	e.eventually("the directory is made", func() bool { _, err := os.Stat(made); return err == nil })
	equal(e, "names", e.sh(`ls "$1"; cat "$1/later" 2> /dev/null || :`, at), "f\ng\nnew")
	_, err = e.api.Snapshot(e.Context(), consistent)
	e.wants(err, sandbox.ErrConflict, "control group")

	// A pause outlives the service.
	must[sandbox.Workspace](e)(pause(sandbox.PauseRequest{}))
	e.reopen(false)
	equal(e, "paused", e.show("w").Paused, true)
	must[sandbox.Workspace](e)(e.api.Mount(e.Context(), sandbox.MountRequest{Workspace: "w"}))
	resumed := filepath.Join(e.dir, "again")
	e.background(`echo three >> "$1/f"; : > "$2"`, at, resumed)
	time.Sleep(50 * time.Millisecond)
	if _, err := os.Stat(resumed); err == nil {
		e.Error("a paused workspace that was mounted is written")
	}
	must[sandbox.Workspace](e)(e.api.Resume(e.Context(), sandbox.RefRequest{Ref: "w"}))
	e.eventually("the write goes through", func() bool { _, err := os.Stat(resumed); return err == nil })
}
