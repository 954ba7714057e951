package sandbox

import (
	"fmt"
	"testing"

	"snapfs/sandbox/internal/catalog"
)

// TestTrimToLimit keeps a home below its limit by itself: the oldest turns go, and the workspace stays where it is.
func TestTrimToLimit(t *testing.T) {
	ctx := t.Context()
	y := newHistory(t)
	const turns, piece = 10, 2 << 20
	for i := range turns {
		y.sh(fmt.Sprintf(`head -c %d /dev/urandom > "$M/big"; echo %d > "$M/n"`, piece, i))
		if _, err := y.h.Turn(ctx, TurnRequest{Workspace: "w"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := y.h.Settle(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := y.h.GC(ctx, GCRequest{Full: true}); err != nil {
		t.Fatal(err)
	}
	full, err := y.h.measure(ctx)
	if err != nil {
		t.Fatal(err)
	}
	count := func() int {
		n := 0
		for range y.h.catalog.ListSnapshots(catalog.Query{Workspace: "w"}) {
			n++
		}
		return n
	}
	before := count()
	limit := full - (turns/2)*piece
	y.h.SetLimits(Limits{Home: limit}, EventLimits{})
	if err := y.h.trimToLimit(ctx); err != nil {
		t.Fatal(err)
	}
	size, err := y.h.measure(ctx)
	after := count()
	if err != nil || size >= limit || after >= before || after < 2 {
		t.Errorf("%d of %d bytes with limit %d, %d of %d snapshots: %v", size, full, limit, after, before, err)
	}
	y.sh(fmt.Sprintf(`test "$(cat "$M/n")" = %d`, turns-1))
	if _, err := y.h.Undo(ctx, UndoRequest{Workspace: "w"}); err != nil {
		t.Errorf("the last turn but one is gone: %v", err)
	}
	y.sh(fmt.Sprintf(`test "$(cat "$M/n")" = %d`, turns-2))
}
