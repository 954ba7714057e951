package sandbox

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"snapfs/internal/testseed"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/mountns"
)

// treeLines prints what is in a directory.
const treeLines = `cd "$M"; find . -type d -printf "%P %y %m %T@\n" , ! -type d -printf "%P %y %m %T@ %n %l\n" | sort; find . -type f -exec sha256sum {} + | sort -k2`

// TestKernelSnapshotsRandom takes snapshots of a workspace by the kernel's overlayfs, each of which stores what has changed
// since another one, deletes some of them, changes the process that serves and mounts again; the others stay what they
// were.
func TestKernelSnapshotsRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.Of(t), 20))
	t.Cleanup(mountns.Enable())
	t.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0") // of the processes that mount, as in package testchild
	s := newSuccession(t)
	at := filepath.Join(s.work, "w")
	sh := func(m, text string) string {
		t.Helper()
		cmd := exec.Command("sh", "-euc", text)
		cmd.Env = append(os.Environ(), "M="+m)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", text, err, out)
		}
		return string(out)
	}
	s.sh(`for d in 0 1 2; do mkdir -p src/$d/sub; for f in 0 1 2 3; do echo $d $f >src/$d/$f; done; echo s >src/$d/sub/0; done`)
	if _, err := s.home.Create(s.ctx, CreateRequest{Name: "w", Source: filepath.Join(s.work, "src"), WaitImported: true}); err != nil {
		t.Fatal(err)
	}
	mount := func() {
		t.Helper()
		_, err := s.home.Mount(s.ctx, MountRequest{
			Workspace: "w", Mountpoint: at, MakeMountpoint: true, MountOptions: MountOptions{Engine: api.EngineKernel},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	mount()
	sh(at, `cd "$M"; for i in $(seq 60); do echo $i >f$i; done`)
	trees := map[string]string{}
	for step := range 24 {
		a, b, f := rng.IntN(3), rng.IntN(3), rng.IntN(5)
		sh(at, fmt.Sprintf(`cd "$M"; a=%d b=%d f=%d n=%d; `, a, b, f+1, step)+[]string{
			`mkdir -p $a; echo $n >$a/$f`, `rm -f $a/$f`, `mkdir -p $a/sub; mv $a/sub $b/sub$n`,
			`rm -rf $a`, `ln -f f$f$a $b.link; echo $n >f$f$a`, `rm -rf $a; mkdir $a; echo >$a/x`,
			`chmod 7$a$b f1$f; touch -d @$n f2$f`, `mkdir -p new$a/x/y; mv new$a to$n`, `true`,
		}[rng.IntN(9)]+` || :`)
		got, err := s.home.Snapshot(s.ctx, SnapshotRequest{Workspace: "w"})
		if err != nil {
			t.Fatal(err)
		}
		trees[got.ID] = sh(at, treeLines)
		switch rng.IntN(8) {
		case 0:
			s.next(Options{})
		case 1:
			if _, err := s.home.Unmount(s.ctx, UnmountRequest{Workspace: "w"}); err != nil {
				t.Fatal(err)
			}
			mount()
		case 2, 3, 4:
			for id := range trees {
				if err := s.home.Delete(s.ctx, RefRequest{Ref: id}); err != nil {
					t.Fatal(err)
				}
				delete(trees, id)
				break
			}
		}
	}
	t.Logf("%d snapshots are left", len(trees))
	for id, want := range trees {
		dir := filepath.Join(s.work, id)
		if _, err := s.home.Branch(s.ctx, RestoreRequest{Snapshot: id, Name: "b", Mountpoint: dir, MakeMountpoint: true}); err != nil {
			t.Fatal(err)
		}
		if got := sh(dir, treeLines); got != want {
			t.Errorf("%s shows\n%s\nwas\n%s", id, got, want)
		}
		if _, err := s.home.Unmount(s.ctx, UnmountRequest{Workspace: "b"}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.home.Destroy(s.ctx, DestroyRequest{Ref: "b", Now: true}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.home.Unmount(s.ctx, UnmountRequest{Workspace: "w"}); err != nil {
		t.Fatal(err)
	}
}
