package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"snapfs/sandbox"
)

// sh runs a script in a process of its own: a process must not open files in a mount that it serves itself.
func sh(dir, script string) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-ec", `cd "$1"; eval "$2"`, "sh", dir, script)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		log.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// temporary opens a home in a directory of its own, with a mounted workspace in it.
func temporary(ctx context.Context) (home *sandbox.Home, at string, end func()) {
	dir, err := os.MkdirTemp("", "snapfs-example-")
	if err != nil {
		log.Fatal(err)
	}
	if home, err = sandbox.Open(ctx, filepath.Join(dir, "home"), sandbox.Options{}); err != nil {
		log.Fatal(err)
	}
	at = filepath.Join(dir, "app")
	if _, err := home.Create(ctx, sandbox.CreateRequest{Name: "app"}); err != nil {
		log.Fatal(err)
	}
	if _, err := home.Mount(ctx, sandbox.MountRequest{Workspace: "app", Mountpoint: at, MakeMountpoint: true}); err != nil {
		log.Fatal(err)
	}
	return home, at, func() {
		if err := home.Close(); err != nil { // unmounts everything
			log.Fatal(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			log.Fatal(err)
		}
	}
}

// A workspace is made from a directory, frozen, and branched: what one branch writes, no other sees.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "snapfs-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Mkdir(filepath.Join(dir, "src"), 0o755); err != nil {
		log.Fatal(err)
	}
	sh(dir, "echo hello > src/greeting")

	home, err := sandbox.Open(ctx, filepath.Join(dir, "home"), sandbox.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer home.Close() // unmounts
	if _, err := home.Create(ctx, sandbox.CreateRequest{Name: "app", Source: filepath.Join(dir, "src")}); err != nil {
		log.Fatal(err)
	}
	snap, err := home.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "app", Name: "base"})
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"left", "right"} {
		_, err := home.Branch(ctx, sandbox.RestoreRequest{Snapshot: snap.ID, Mountpoint: filepath.Join(dir, name), MakeMountpoint: true})
		if err != nil {
			log.Fatal(err)
		}
		sh(dir, "echo from the "+name+" >> "+name+"/greeting")
	}
	fmt.Println(sh(dir, "cat left/greeting; cat right/greeting"))
	// Output:
	// hello
	// from the left
	// hello
	// from the right
}

// A snapshot of a running workspace has every write that was completed. Of one in which nothing changed it costs no
// layer.
func ExampleHome_Snapshot() {
	ctx := context.Background()
	home, at, end := temporary(ctx)
	defer end()
	sh(at, "echo one > file")
	snap, err := home.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "app", Name: "one", TTL: 72 * time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	second, err := home.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "app"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(snap.Name, len(snap.Layers), snap.Unchanged)
	fmt.Println(len(second.Layers), second.Unchanged, second.Parent == snap.ID)
	// Output:
	// one 1 false
	// 1 true true
}

// A rollback takes back what was changed and what was made since, while the workspace stays mounted.
func ExampleHome_Rollback() {
	ctx := context.Background()
	home, at, end := temporary(ctx)
	defer end()
	sh(at, "echo good > file")
	if _, err := home.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "app", Name: "good"}); err != nil {
		log.Fatal(err)
	}
	sh(at, "echo bad > file; echo new > other")
	if _, err := home.Rollback(ctx, sandbox.RollbackRequest{Workspace: "app", Snapshot: "good"}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(sh(at, "ls; cat file"))
	// Output:
	// file
	// good
}

// A diff tells what changed; with Patch, how to repeat it by 'git apply' or 'patch -p1'.
func ExampleHome_Diff() {
	ctx := context.Background()
	home, at, end := temporary(ctx)
	defer end()
	sh(at, "mkdir src; echo one > src/a; echo two > src/b")
	if _, err := home.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "app"}); err != nil {
		log.Fatal(err)
	}
	sh(at, "mv src lib; echo three >> lib/b")
	err := home.Diff(ctx, sandbox.DiffRequest{A: "app"}, func(c sandbox.Change) error {
		fmt.Println(c.Kind, c.Path, c.OldPath)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	err = home.Diff(ctx, sandbox.DiffRequest{A: "app", Patch: true}, func(c sandbox.Change) error {
		fmt.Print(string(c.Patch))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// R lib src
	// M lib/b src/b
	// diff --git a/src/a b/lib/a
	// similarity index 100%
	// rename from src/a
	// rename to lib/a
	// diff --git a/src/b b/lib/b
	// similarity index 40%
	// rename from src/b
	// rename to lib/b
	// index f719efd430d52bcfc8566a43b2eb655688d38871..1946f0437f90c5005533cbe1736a6451ca301714 100644
	// --- a/src/b
	// +++ b/lib/b
	// @@ -1 +1,2 @@
	//  two
	// +three
}

// What belongs to another session is refused, unless the caller opts in; that leaves a record in the log, which
// outlives the process.
func ExampleAllChanges() {
	ctx := context.Background()
	home, at, end := temporary(ctx)
	defer end()
	sh(at, "mkdir src; echo one > src/a")
	for c, err := range sandbox.AllChanges(ctx, home, sandbox.DiffRequest{A: "app"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(c.Kind, c.Path)
	}
	// Output:
	// A src
	// A src/a
}

func ExampleHome_Events() {
	ctx := context.Background()
	home, _, end := temporary(ctx)
	defer end()
	other := sandbox.Access{Session: "other"}
	_, err := home.Snapshot(ctx, sandbox.SnapshotRequest{Access: other, Workspace: "app"})
	fmt.Println(errors.Is(err, sandbox.ErrRefused))
	other.AllowCrossSession = true
	if _, err := home.Snapshot(ctx, sandbox.SnapshotRequest{Access: other, Workspace: "app"}); err != nil {
		log.Fatal(err)
	}
	err = home.Events(ctx, sandbox.EventsRequest{Workspace: "app"}, func(e sandbox.Event) error {
		if e.Session != "" { // else by the home itself: it is being stored
			fmt.Println(e.Level, e.Kind, e.Session)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// true
	// info created default
	// info mounted default
	// warn cross_session other
	// info snapshotted other
}

// A ref is kept as it is by programs that know several providers of snapshots, and names the snapshot ever after.
func ExampleRef() {
	ctx := context.Background()
	home, _, end := temporary(ctx)
	defer end()
	snap, err := home.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "app"})
	if err != nil {
		log.Fatal(err)
	}
	kept := snap.Ref.String()
	restored, err := home.Restore(ctx, sandbox.RestoreRequest{Snapshot: kept})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(restored.Origin == snap.ID)
	_, err = home.Restore(ctx, sandbox.RestoreRequest{Snapshot: strings.Replace(kept, `"app"`, `"../etc"`, 1)})
	fmt.Println(errors.Is(err, sandbox.ErrInvalid))
	// Output:
	// true
	// true
}

// Up is how a program that may have died asks for its workspace again.
func ExampleHome_Up() {
	ctx := context.Background()
	home, at, end := temporary(ctx)
	defer end()
	up := func() sandbox.Resumption {
		r, err := home.Up(ctx, sandbox.UpRequest{CreateRequest: sandbox.CreateRequest{Name: "app"}})
		if err != nil {
			log.Fatal(err)
		}
		return r.How
	}
	fmt.Println(up())
	sh(at, "echo state > file")
	if _, err := home.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "app"}); err != nil {
		log.Fatal(err)
	}
	if _, err := home.Unmount(ctx, sandbox.UnmountRequest{Workspace: "app"}); err != nil {
		log.Fatal(err)
	}
	if _, err := home.Destroy(ctx, sandbox.DestroyRequest{Ref: "app", Now: true}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(up())
	// Output:
	// same
	// restored
}
