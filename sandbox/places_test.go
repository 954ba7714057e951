package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"snapfs/sandbox"
)

// crowd makes many calls of one kind at once, each of which stays in its work until it is let go.
type crowd struct {
	t     *testing.T
	works chan string   // a call of a session has begun to work
	waits chan string   // a call of a session waits for others
	goes  chan struct{} // closed: those who work go on
	calls sync.WaitGroup
}

func newCrowd(t *testing.T) *crowd {
	return &crowd{t: t, works: make(chan string, 1000), waits: make(chan string, 1000), goes: make(chan struct{})}
}

// at is the callback of a call: of its progress, or of a change.
func (c *crowd) at(session string, once *sync.Once) func(sandbox.Progress) {
	return func(p sandbox.Progress) {
		if p.Stage == sandbox.StageWaiting {
			c.waits <- session
			return
		}
		once.Do(func() {
			c.works <- session
			<-c.goes
		})
	}
}

// settled waits until n calls have told what they do, and counts those of each session that work.
func (c *crowd) settled(n int) (working map[string]int) {
	c.t.Helper()
	working = map[string]int{}
	for deadline := time.After(time.Minute); n > 0; n-- {
		select {
		case s := <-c.works:
			working[s]++
		case <-c.waits:
		case <-deadline:
			c.t.Fatalf("%d calls have not told what they do; of the others there work %v", n, working)
		}
	}
	return working
}

// TestFewWorkAtATime makes more imports, exports, comparisons and checks at once than may work at a time: the others
// say that they wait, another session's comes first, who gives up leaves nothing, and all are done in the end.
func TestFewWorkAtATime(t *testing.T) {
	dir := t.TempDir()
	h := openHome(t, filepath.Join(dir, "home"), sandbox.Options{})
	source := filepath.Join(dir, "source")
	if err := os.Mkdir(source, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := os.WriteFile(filepath.Join(source, fmt.Sprint(i)), make([]byte, 100), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	snapshots := map[string]string{}
	for _, session := range []string{"many", "few"} {
		a := sandbox.Access{Session: session}
		if _, err := h.Create(t.Context(), sandbox.CreateRequest{Access: a, Name: session, Source: source}); err != nil {
			t.Fatal(err)
		}
		s, err := h.Snapshot(t.Context(), sandbox.SnapshotRequest{Access: a, Workspace: session, WaitStored: true})
		if err != nil {
			t.Fatal(err)
		}
		snapshots[session] = s.ID
	}
	if _, err := h.Create(t.Context(), sandbox.CreateRequest{Access: sandbox.Access{Session: "many"}, Name: "nothing"}); err != nil {
		t.Fatal(err)
	}
	few := max(4, runtime.GOMAXPROCS(0)) / 2
	made, number := 3, 0
	for _, kind := range []struct {
		name string
		most int // that one session may have at work
		call func(ctx context.Context, session string, number int, progress func(sandbox.Progress)) error
	}{
		{"import", few, func(ctx context.Context, session string, number int, progress func(sandbox.Progress)) error {
			_, err := h.Create(ctx, sandbox.CreateRequest{
				Access: sandbox.Access{Session: session}, Name: fmt.Sprint("w", number), Source: source, Progress: progress,
			})
			return err
		}},
		{"export", few, func(ctx context.Context, session string, number int, progress func(sandbox.Progress)) error {
			_, err := h.Export(ctx, sandbox.ExportRequest{
				Access: sandbox.Access{Session: session}, Snapshot: snapshots[session], Path: filepath.Join(dir, fmt.Sprint("x", number)), Progress: progress,
			})
			return err
		}},
		{"diff", 4, func(ctx context.Context, session string, _ int, progress func(sandbox.Progress)) error {
			return h.Diff(ctx, sandbox.DiffRequest{
				Access: sandbox.Access{Session: session, AllowCrossSession: true}, A: snapshots[session], B: "nothing", Progress: progress,
			}, func(sandbox.Change) error {
				progress(sandbox.Progress{Stage: "diff"})
				return nil
			})
		}},
		{"check", 1, func(ctx context.Context, session string, _ int, progress func(sandbox.Progress)) error {
			_, err := h.Check(ctx, sandbox.CheckRequest{ReadData: session == "many", Progress: progress})
			return err
		}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			c := newCrowd(t)
			many := runtime.GOMAXPROCS(0) + 10
			begin := func(ctx context.Context, session string, done chan error) {
				number++
				n := number
				c.calls.Go(func() { done <- kind.call(ctx, session, n, c.at(session, new(sync.Once))) })
			}
			ctx, cancel := context.WithCancel(t.Context())
			crowd, others := make(chan error, many), make(chan error, 2)
			for range many {
				begin(ctx, "many", crowd)
			}
			working := c.settled(many)["many"]
			if working != kind.most {
				t.Errorf("%d of %d work, want %d", working, many, kind.most)
			}
			begin(t.Context(), "few", others)
			if c.settled(1)["few"] != 1 {
				t.Error("that of another session waits")
			}
			begin(t.Context(), "many", others)
			if c.settled(1)["many"] != 0 {
				t.Error("one more works")
			}
			cancel() // those who wait give up; those who work hear of it when they are let go
			for range many - working {
				if err := <-crowd; !errors.Is(err, context.Canceled) {
					t.Errorf("given up: %v", err)
				}
			}
			close(c.goes)
			c.calls.Wait()
			for range 2 {
				if err := <-others; err != nil {
					t.Errorf("at last: %v", err)
				} else if kind.name == "import" {
					made++
				}
			}
			for range working {
				if err := <-crowd; err == nil && kind.name == "import" { // it was too late to give up
					made++
				}
			}
		})
	}
	page, err := h.Workspaces(t.Context(), sandbox.ListRequest{Access: sandbox.Access{AllowCrossSession: true}})
	if err != nil || len(page.Workspaces) != made {
		t.Errorf("%d workspaces, %v, want %d", len(page.Workspaces), err, made)
	}
}
