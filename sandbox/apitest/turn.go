package apitest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
)

// turn freezes a workspace as its next turn.
func (e *env) turn(name string) sandbox.TurnResult {
	e.Helper()
	return must[sandbox.TurnResult](e)(e.api.Turn(e.Context(), sandbox.TurnRequest{Workspace: name}))
}

// undo goes back so many steps, or forward if they are less than 0.
func (e *env) undo(name string, steps int) sandbox.UndoResult {
	e.Helper()
	if steps < 0 {
		return must[sandbox.UndoResult](e)(e.api.Redo(e.Context(), sandbox.UndoRequest{Workspace: name, Steps: -steps}))
	}
	return must[sandbox.UndoResult](e)(e.api.Undo(e.Context(), sandbox.UndoRequest{Workspace: name, Steps: steps}))
}

// turns lists turns as "3 undone, 2 current, 1 past".
func (e *env) turns(name string, all bool) string {
	e.Helper()
	page := must[sandbox.TurnPage](e)(e.api.Turns(e.Context(), sandbox.TurnsRequest{Workspace: name, All: all}))
	var words []string
	for _, t := range page.Turns {
		words = append(words, fmt.Sprintf("%d %s", t.Number, t.Place))
	}
	return strings.Join(words, ", ")
}

// testTurns goes back and forth along turns, mounted, with unsaved changes, snapshots in between, and other ways.
func testTurns(e *env) {
	e.create("w", e.fixture("src"))
	at := e.mount("w")
	made := e.walk(at)
	first := e.turn("w")
	if !first.Unchanged || first.Turn != 0 || first.Snapshot != nil {
		e.Errorf("a turn of what was just made: %+v", first)
	}
	e.wants(undoError(e, "w", 1), sandbox.ErrConflict, "nothing to undo")
	trees := [][]treewalk.Node{made}
	for i := 1; i <= 4; i++ {
		e.sh(`echo "$2" > "$1/a/file"; mkdir "$1/d$2"; chmod 70"$2" "$1/a"; touch -d "@$2.000000007" "$1"`, at, fmt.Sprint(i))
		trees = append(trees, e.walk(at))
		r := must[sandbox.TurnResult](e)(e.api.Turn(e.Context(), sandbox.TurnRequest{Workspace: "w", Message: fmt.Sprint("step ", i)}))
		equal(e, "number", r.Turn, i)
		equal(e, "of the snapshot", r.Snapshot.Turn, i)
		equal(e, "message", r.Snapshot.Description, fmt.Sprint("step ", i))
		same := e.turn("w")
		equal(e, "unchanged", same.Unchanged, true)
		equal(e, "the same as", same.Snapshot.ID, r.Snapshot.ID)
	}
	is := func(what string, turn int) {
		e.Helper()
		e.same(what, e.walk(at), trees[turn], treewalk.Options{})
	}
	equal(e, "turns", e.turns("w", false), "4 current, 3 past, 2 past, 1 past")
	r := e.undo("w", 1)
	equal(e, "turn", r.Turn, 3)
	is("undone", 3)
	r = e.undo("w", 3)
	equal(e, "turn", r.Turn, 0)
	equal(e, "left", fmt.Sprint(r.CanUndo, r.CanRedo), "0 4")
	is("as it was made", 0)
	e.wants(undoError(e, "w", 1), sandbox.ErrConflict, "nothing to undo")
	equal(e, "turns", e.turns("w", false), "4 undone, 3 undone, 2 undone, 1 undone")
	r = e.undo("w", -2)
	equal(e, "left", fmt.Sprint(r.Turn, r.CanUndo, r.CanRedo), "2 2 2")
	is("redone", 2)
	equal(e, "unchanged", e.turn("w").Turn, 2)
	equal(e, "turns", e.turns("w", false), "4 undone, 3 undone, 2 current, 1 past")

	// What is unsaved is a turn of its own, and cuts off the way forward.
	e.sh(`echo unsaved > "$1/new"`, at)
	unsaved := e.walk(at)
	r = e.undo("w", 1)
	if r.Kept == nil || r.KeptTurn != 5 || r.Turn != 2 {
		e.Fatalf("kept: %+v", r)
	}
	is("without what was unsaved", 2)
	equal(e, "turns", e.turns("w", false), "5 undone, 2 current, 1 past")
	equal(e, "all turns", e.turns("w", true), "5 undone, 4 cut, 3 cut, 2 current, 1 past")
	e.undo("w", -1)
	e.same("what was unsaved", e.walk(at), unsaved, treewalk.Options{})
	e.wants(redoError(e, "w", 1), sandbox.ErrConflict, "nothing to redo")
	e.undo("w", 2)
	is("two back", 1)
	e.sh(`echo other > "$1/other"`, at)
	r = e.undo("w", -1) // keeps it aside
	if r.Kept == nil || r.KeptTurn != 0 || r.Turn != 2 || r.Kept.ExpiresAt == nil {
		e.Errorf("kept: %+v", r)
	}
	is("redone over what was unsaved", 2)

	// A snapshot that somebody names is a step, too; one without a change is none.
	e.snapshot("w", "same")
	e.undo("w", -1)
	e.same("redone", e.walk(at), unsaved, treewalk.Options{})
	e.sh(`echo named > "$1/named"`, at)
	e.snapshot("w", "named")
	e.sh(`echo more >> "$1/named"`, at)
	equal(e, "number", e.turn("w").Turn, 6)
	e.undo("w", 1)
	equal(e, "named", e.sh(`cat "$1/named"`, at), "named")
	e.undo("w", 2)
	is("below the snapshots", 2)

	// Not mounted, paused, and over a restart.
	e.unmount("w")
	e.reopen(false)
	equal(e, "not mounted", e.undo("w", -1).Turn, 5)
	at = e.mount("w")
	e.same("redone while it was not mounted", e.walk(at), unsaved, treewalk.Options{})
	must[sandbox.Workspace](e)(e.api.Pause(e.Context(), sandbox.PauseRequest{Workspace: "w"}))
	e.undo("w", 1)
	must[sandbox.Workspace](e)(e.api.Resume(e.Context(), sandbox.RefRequest{Ref: "w"}))
	is("undone while it was paused", 2)
	e.undo("w", 2)
	is("the beginning", 0)
	equal(e, "problems", len(must[sandbox.CheckResult](e)(e.api.Check(e.Context(), sandbox.CheckRequest{ReadData: true})).Problems), 0)
}

// testDestroyKeeps destroys workspaces of which no snapshot has everything.
func testDestroyKeeps(e *env) {
	end := func(name string, r sandbox.DestroyRequest) *sandbox.Snapshot {
		e.Helper()
		r.Ref = name
		got := must[sandbox.DestroyResult](e)(e.api.Destroy(e.Context(), r))
		equal(e, "workspace", got.Workspace, name)
		return got.Kept
	}
	src := e.fixture("src")
	for _, name := range []string{"empty", "imported", "saved"} {
		from := ""
		if name == "imported" {
			from = src
		}
		e.create(name, from)
		at := e.mount(name)
		if name == "saved" {
			e.sh(`echo saved > "$1/f"`, at)
			e.snapshot(name, "s")
			e.sh(`cat "$1/f"`, at)
		}
		e.unmount(name)
		if kept := end(name, sandbox.DestroyRequest{}); kept != nil {
			e.Errorf("%s: there was nothing to keep: %+v", name, kept)
		}
	}
	for _, r := range []sandbox.DestroyRequest{{}, {KeepFor: time.Hour}, {Now: true}} {
		e.create("w", src)
		at := e.mount("w")
		e.sh(`echo unsaved > "$1/f"; chmod 700 "$1/a"`, at)
		want := e.walk(at)
		e.unmount("w")
		kept := end("w", r)
		if r.Now {
			if kept != nil {
				e.Errorf("kept: %+v", kept)
			}
			continue
		}
		if kept == nil || kept.ExpiresAt == nil {
			e.Fatalf("kept: %+v", kept)
		}
		equal(e, "kept for", kept.ExpiresAt.Sub(kept.CreatedAt), cmp.Or(r.KeepFor, 7*24*time.Hour))
		e.create("back", kept.ID)
		e.same("brought back", e.walk(e.mount("back")), want, treewalk.Options{})
		e.unmount("back")
		again := end("back", sandbox.DestroyRequest{})
		if lasts := r.KeepFor == 0; lasts != (again == nil) {
			e.Errorf("a snapshot has it, and lasts %t: %+v", lasts, again)
		}
	}
	// A fork stands on what no snapshot has, and goes on from there.
	at := e.up("w")
	e.sh(`echo forked > "$1/f"`, at)
	must[sandbox.Workspace](e)(e.api.Fork(e.Context(), sandbox.ForkRequest{Workspace: "w", Name: "fork"}))
	e.unmount("w")
	if kept := end("w", sandbox.DestroyRequest{}); kept == nil {
		e.Error("what was forked is lost")
	}
	if kept := end("fork", sandbox.DestroyRequest{}); kept != nil {
		e.Errorf("a snapshot has it: %+v", kept)
	}
	_, err := e.api.Destroy(e.Context(), sandbox.DestroyRequest{Ref: "w", KeepFor: -1})
	e.wants(err, sandbox.ErrInvalid)
}

func undoError(e *env, name string, steps int) error {
	_, err := e.api.Undo(e.Context(), sandbox.UndoRequest{Workspace: name, Steps: steps})
	return err
}

func redoError(e *env, name string, steps int) error {
	_, err := e.api.Redo(e.Context(), sandbox.UndoRequest{Workspace: name, Steps: steps})
	return err
}

// testTurnsApart has turns of workspaces that begin otherwise: empty, forked, branched, and with turns deleted.
func testTurnsApart(e *env) {
	at := e.up("w")
	for _, text := range []string{"one", "two", "three"} {
		e.sh(`echo "$2" > "$1/f"`, at, text)
		e.turn("w")
	}
	equal(e, "turn", e.undo("w", 1).Turn, 2)
	equal(e, "undone", e.sh(`cat "$1/f"`, at), "two")
	e.undo("w", 2)
	equal(e, "empty again", e.sh(`ls -A "$1"`, at), "")
	e.undo("w", -3)

	// Of one that is deleted, the way leads past.
	list := must[sandbox.TurnPage](e)(e.api.Turns(e.Context(), sandbox.TurnsRequest{Workspace: "w", Limit: 2, Stat: true}))
	if !list.More || len(list.Turns) != 2 || list.Turns[0].Stat == nil || *list.Turns[0].Stat != (sandbox.TurnStat{Files: 1, Additions: 1, Deletions: 1}) {
		e.Errorf("turns: %+v", list)
	}
	rest := must[sandbox.TurnPage](e)(e.api.Turns(e.Context(), sandbox.TurnsRequest{Workspace: "w", After: list.Turns[1].Snapshot}))
	if rest.More || len(rest.Turns) != 1 || rest.Turns[0].Number != 1 {
		e.Errorf("the page after: %+v", rest)
	}
	if err := e.api.Delete(e.Context(), sandbox.RefRequest{Ref: list.Turns[1].Snapshot}); err != nil {
		e.Fatal(err)
	}
	equal(e, "without turn 2", e.undo("w", 1).Turn, 1)
	equal(e, "undone", e.sh(`cat "$1/f"`, at), "one")
	e.undo("w", -1)
	equal(e, "redone", e.sh(`cat "$1/f"`, at), "three")

	// The present state has lost its snapshot: undoing keeps it.
	if err := e.api.Delete(e.Context(), sandbox.RefRequest{Ref: list.Turns[0].Snapshot}); err != nil {
		e.Fatal(err)
	}
	equal(e, "to turn 1", e.undo("w", 1).Turn, 1)
	e.undo("w", -1)
	equal(e, "redone", e.sh(`cat "$1/f"`, at), "three")

	for _, name := range []string{"fork", "branch"} {
		if name == "fork" {
			e.sh(`echo unsaved > "$1/f"`, at)
			must[sandbox.Workspace](e)(e.api.Fork(e.Context(), sandbox.ForkRequest{Workspace: "w", Name: name}))
		} else {
			s := e.snapshot("w", "s")
			must[sandbox.Workspace](e)(e.api.Branch(e.Context(), sandbox.RestoreRequest{Snapshot: s.ID, Name: name}))
		}
		e.wants(undoError(e, name, 1), sandbox.ErrConflict, "nothing to undo")
		there := e.mount(name)
		e.sh(`echo changed > "$1/f"`, there)
		equal(e, "number", e.turn(name).Turn, 1)
		equal(e, name+": before the first", e.undo(name, 1).CanUndo, 0)
		equal(e, name, e.sh(`cat "$1/f"`, there), "unsaved")
	}
	e.wants(func() error {
		_, err := e.api.Turn(e.Context(), sandbox.TurnRequest{Access: sandbox.Access{Session: "unrelated"}, Workspace: "w"})
		return err
	}(), sandbox.ErrRefused)
	e.wants(undoError(e, "w", -1), sandbox.ErrInvalid)
	e.wants(undoError(e, "none", 1), sandbox.ErrNotFound)

	// A rollback to a turn leads elsewhere; nothing is lost by that.
	all := must[sandbox.TurnPage](e)(e.api.Turns(e.Context(), sandbox.TurnsRequest{Workspace: "w", All: true}))
	at1 := slices.IndexFunc(all.Turns, func(t sandbox.Turn) bool { return t.Number == 1 })
	must[sandbox.RollbackResult](e)(e.api.Rollback(e.Context(), sandbox.RollbackRequest{Workspace: "w", Snapshot: all.Turns[at1].Snapshot}))
	equal(e, "turns", e.turns("w", false), "1 current")
	e.wants(redoError(e, "w", 1), sandbox.ErrConflict, "nothing to redo")
}
