package sandbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/testseed"
	"snapfs/internal/treewalk"
	"snapfs/sandbox"
)

// killApply is the environment of a child that applies a workspace to a directory, and kills itself at a point.
const killApply = "SNAPFS_TEST_KILL_APPLY"

// killApplyChild turns this process into such a child. It tells on stdout when it has been killed.
func killApplyChild() {
	work, ok := os.LookupEnv(killApply)
	if !ok {
		return
	}
	if err := killApplyRun(work); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func killApplyRun(work string) error {
	name := os.Getenv(killAt) // the name of a point, or how manieth it is
	at, _ := strconv.Atoi(name)
	var mu sync.Mutex
	passed, begun := 0, false
	points := func(point string) {
		mu.Lock()
		defer mu.Unlock()
		if begun = begun || point == "apply to a directory begun"; !begun {
			return
		}
		if passed++; passed == at || point == name {
			fmt.Println("killed", point)
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {} // nothing more happens in this process
		}
	}
	ctx := context.Background()
	h, err := sandbox.Open(ctx, work+"/home", sandbox.WithPoints(sandbox.Options{}, points))
	if err != nil {
		return err
	}
	if _, err := h.Apply(ctx, sandbox.ApplyRequest{From: "w", To: work + "/dir", Undo: false}); err != nil {
		return err
	}
	mu.Lock()
	fmt.Println("passed", passed) // what stores layers passes points, too
	mu.Unlock()
	return h.Close()
}

// TestApplyToDirectoryKilled kills a process at some steps of an apply to a directory: the next one that has the
// home completes it, and can take it back.
func TestApplyToDirectoryKilled(t *testing.T) {
	rnd := rand.New(rand.NewPCG(testseed.Of(t), 5))
	ctx := t.Context()
	base := t.TempDir()
	require.NoError(t, shell(ctx, `mkdir -p "$1/dir/sub/deep" "$1/m"; cd "$1/dir"; for i in 1 2 3 4; do seq $i 40 > sub/f$i; done
		ln sub/f1 sub/deep/hard; ln -s sub/f2 soft; touch -d @1.123456789 sub/f3; echo old > typed`, base))
	h := openHome(t, base+"/home", sandbox.Options{})
	_, err := h.Create(ctx, sandbox.CreateRequest{Name: "w", Source: base + "/dir"})
	require.NoError(t, err)
	if _, err := h.Mount(ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: base + "/m"}); err != nil {
		t.Skip(err)
	}
	require.NoError(t, shell(ctx, `cd "$1/m"; echo x >> sub/f1; rm sub/f2; mv sub/deep deeper; mkdir new; echo n > new/file; ln new/file new/link
		rm typed; mkdir typed; echo t > typed/in; chmod 600 sub/f3; ln -sfn elsewhere soft`, base))
	require.NoError(t, shell(ctx, `echo own > "$1/dir/own"; seq 0 40 > "$1/dir/sub/f4"`, base))
	require.NoError(t, h.Close())
	old := walk(t, base+"/dir")
	run := func(at int) (work, where string) {
		work = t.TempDir()
		// A move keeps inode numbers and change times; a copy is another directory, to which it is applied all the same.
		out, err := exec.CommandContext(ctx, "cp", "-a", base+"/home", base+"/dir", work).CombinedOutput()
		require.NoError(t, err, "%s", out)
		child(ctx, t, []string{killApply + "=" + work, killAt + "=" + strconv.Itoa(at)}, nil, func(line []byte, _ func()) {
			where = string(line)
		})
		return work, where
	}
	work, where := run(-1)
	var points int
	_, err = fmt.Sscanf(where, "passed %d", &points)
	require.NoError(t, err, where)
	require.Greater(t, points, 20)
	now := walk(t, work+"/dir")
	require.NotEmpty(t, treewalk.Diff(old, now, treewalk.Options{}))
	tries := []int{1, points, 1 + rnd.IntN(points), 1 + rnd.IntN(points)}
	if os.Getenv("SNAPFS_LONG") != "" {
		tries = nil
		for at := 1; at <= points; at++ {
			tries = append(tries, at)
		}
	}
	for _, at := range tries {
		work, where := run(at)
		t.Run(fmt.Sprint(at, " ", where), func(t *testing.T) {
			h := openHome(t, work+"/home", sandbox.Options{})
			require.Empty(t, treewalk.Diff(now, walk(t, work+"/dir"), treewalk.Options{}))
			res, err := h.Apply(ctx, sandbox.ApplyRequest{To: work + "/dir", Undo: true})
			require.NoError(t, err)
			require.True(t, res.Applied)
			require.Empty(t, treewalk.Diff(old, walk(t, work+"/dir"), treewalk.Options{}))
		})
	}
}
