package sandbox_test

import (
	"path/filepath"
	"testing"

	"snapfs/sandbox"
)

// TestKernelTurns: a turn of a kernel mount in which nothing has changed is none, whatever the last one stored, and undo
// goes from one to the one before.
func TestKernelTurns(t *testing.T) {
	work := t.TempDir()
	m := filepath.Join(work, "m")
	h := kernelHome(t, filepath.Join(work, "home"))
	ctx := t.Context()
	kernelWorkspace(t, h, "w", m)
	turn := func(want int, unchanged bool) {
		t.Helper()
		got, err := h.Turn(ctx, sandbox.TurnRequest{Workspace: "w"})
		if err != nil || got.Turn != want || got.Unchanged != unchanged {
			t.Fatalf("turn %d, unchanged %v, %v; want %d, %v", got.Turn, got.Unchanged, err, want, unchanged)
		}
	}
	script(t, m, `echo 1 >"$M/one"`)
	turn(1, false)
	turn(1, true)
	if _, err := h.Unmount(ctx, sandbox.UnmountRequest{Workspace: "w"}); err != nil {
		t.Fatal(err)
	}
	mountByKernel(t, h, "w", m)
	turn(1, true) // nothing was captured since it was mounted
	script(t, m, `echo 2 >"$M/two"`)
	turn(2, false)
	turn(2, true)
	script(t, m, `mkdir "$M/d"; mv "$M/two" "$M/d/two"`)
	turn(3, false)
	for _, want := range []string{"one two", "one"} {
		if _, err := h.Undo(ctx, sandbox.UndoRequest{Workspace: "w"}); err != nil {
			t.Fatal(err)
		}
		if got := script(t, m, `cd "$M"; echo $(ls)`); got != want+"\n" {
			t.Fatalf("undone to %q, want %q", got, want)
		}
	}
	turn(1, true)
}
