package layers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/testseed"
)

// killDir tells the test binary to be the victim.
const killDir = "SNAPFS_KILL_DIR"

// killBlocks tells it to copy up by blocks instead of whole files.
const killBlocks = "SNAPFS_KILL_BLOCKS"

const (
	killFiles = 40
	killSize  = 200_000
)

func killData(i int) []byte {
	return bytes.Repeat([]byte{byte('A' + i%26), byte('a' + i%26)}, killSize/2)
}

// TestKillVictim changes files of a lower, each in one way, and says which are done, until it is killed.
func TestKillVictim(t *testing.T) {
	dir := os.Getenv(killDir)
	if dir == "" {
		return // it is run by TestKillDuringCopyUp
	}
	o := openKilled(t, dir)
	r := &rig{t: t, o: o, dir: dir}
	for i := range killFiles {
		name := fmt.Sprintf("d/f%d", i)
		var err error
		switch i % 4 {
		case 0:
			err = r.write(name, "EDIT", killSize/2)
		case 1:
			err = r.setattr(name, SetAttr{Valid: SetMode, Mode: 0o600})
		case 2:
			err = r.rename(name, fmt.Sprintf("d/g%d", i), 0)
		case 3:
			err = r.setattr(name, SetAttr{Valid: SetSize, Size: killSize / 2})
		}
		if err != nil {
			t.Fatal(name, err)
		}
		fmt.Println("done", i)
	}
}

func openKilled(t *testing.T, dir string) *Overlay {
	t.Helper()
	l, err := OpenSealed("base", filepath.Join(dir, "lower"), 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{InoBase: 2 << 40, BlockCopyUp: -1}
	if os.Getenv(killBlocks) != "" {
		opts.BlockCopyUp = killSize
	}
	o, err := New(filepath.Join(dir, "upper"), filepath.Join(dir, "work"), []*Lower{l}, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestKillDuringCopyUp kills a process that copies files up, at random moments: each file is the old one or the new
// one.
func TestKillDuringCopyUp(t *testing.T) {
	rounds, seed := 8, testseed.Of(t)
	if os.Getenv("SNAPFS_LONG") != "" {
		rounds = 300
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	base := t.TempDir()
	lower := filepath.Join(base, "lower")
	if err := os.MkdirAll(filepath.Join(lower, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	old := []unix.Timespec{{Sec: 1e9}, {Sec: 1e9, Nsec: 7}}
	for i := range killFiles {
		name := filepath.Join(lower, fmt.Sprintf("d/f%d", i))
		if err := errors.Join(os.WriteFile(name, killData(i), 0o644), unix.UtimesNanoAt(unix.AT_FDCWD, name, old, 0)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range rounds {
		t.Setenv(killBlocks, "yes"[:3*(i%2)])
		for _, d := range []string{"upper", "work", "upper" + sideSuffix} {
			if err := os.RemoveAll(filepath.Join(base, d)); err != nil {
				t.Fatal(err)
			}
		}
		for _, d := range []string{"upper", "work"} {
			if err := os.Mkdir(filepath.Join(base, d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		done := killOne(t, base, rng.IntN(killFiles), time.Duration(rng.IntN(1500))*time.Microsecond)
		checkKilled(t, base, done)
		if t.Failed() {
			return
		}
	}
}

// killOne runs the victim and kills it some time after it has finished a file; it gives how many it said were done.
func killOne(t *testing.T, base string, after int, wait time.Duration) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestKillVictim$")
	cmd.Env = append(os.Environ(), killDir+"="+base)
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := 0
	for in := bufio.NewScanner(out); in.Scan(); {
		line := in.Text()
		if strings.Contains(line, "FAIL") {
			t.Errorf("the victim says: %s", line)
		}
		if strings.HasPrefix(line, "done ") {
			done++
		}
		if done == after {
			time.Sleep(wait)
			_ = cmd.Process.Kill() // Wait says what became of it
		}
	}
	_ = cmd.Wait() // killed: an error is in order
	return done
}

func checkKilled(t *testing.T, base string, done int) {
	t.Helper()
	o := openKilled(t, base)
	defer func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}()
	r := &rig{t: t, o: o, dir: base}
	names, err := os.ReadDir(filepath.Join(base, "work"))
	if err != nil || len(names) > 0 {
		t.Errorf("the work directory holds %v, %v", names, err)
	}
	if n := len(r.list("d")); n != killFiles {
		t.Errorf("%d names, want %d", n, killFiles)
	}
	for i := range killFiles {
		name, want, mode := fmt.Sprintf("d/f%d", i), killData(i), uint32(0o644)
		changed := false
		switch i % 4 {
		case 0:
			if got := r.read(name); got != string(want) {
				copy(want[killSize/2:], "EDIT")
				changed = true
			}
		case 1:
			if changed = r.attr(name).Mode&0o777 != mode; changed {
				mode = 0o600
			}
		case 2:
			if _, err := r.find(name); err != nil {
				name, changed = fmt.Sprintf("d/g%d", i), true
			}
		case 3:
			if changed = r.attr(name).Size != killSize; changed {
				want = want[:killSize/2]
			}
		}
		if got := r.read(name); got != string(want) {
			t.Errorf("%s: %d bytes, neither the old nor the new contents", name, len(got))
		}
		a := r.attr(name)
		// A write that is under way moves the time first, as on any file system.
		moved := i != done && !changed && (a.Mtime.Sec != 1e9 || a.Mtime.Nsec != 7)
		if a.Mode&0o777 != mode || moved {
			t.Errorf("%s: changed %v, mode %o, mtime %v", name, changed, a.Mode, a.Mtime)
		}
		if i < done && !changed {
			t.Errorf("%s: a change that was done is lost", name)
		}
	}
}
