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
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/testseed"
)

// change is one operation on a file in a history that a seed determines.
type change struct {
	kind   int // see apply
	off, n int64
	data   []byte
}

const (
	changeWrite = iota
	changeTruncate
	changePunch
	changeZero
	changeComplete
	killFileSize = 4 << 20
)

func nextChange(rnd *rand.Rand) change {
	c := change{off: rnd.Int64N(killFileSize), n: 1 + rnd.Int64N([]int64{100, 10_000, 300_000}[rnd.IntN(3)])}
	switch k := rnd.IntN(40); {
	case k < 28:
		c.data = randomData(rnd, c.n)
	case k < 31:
		c.kind = changeTruncate
	case k < 35:
		c.kind = changePunch
	case k < 39:
		c.kind = changeZero
	default:
		c.kind = changeComplete
	}
	return c
}

// model applies a change to contents in memory.
func (c change) model(p []byte) []byte {
	grow := func(size int64) {
		if size > int64(len(p)) {
			p = append(p, make([]byte, size-int64(len(p)))...)
		}
	}
	switch c.kind {
	case changeWrite:
		grow(c.off + c.n)
		copy(p[c.off:], c.data)
	case changeTruncate:
		grow(c.off)
		p = p[:c.off]
	case changePunch:
		clear(p[min(c.off, int64(len(p))):min(c.off+c.n, int64(len(p)))])
	case changeZero:
		grow(c.off + c.n)
		clear(p[c.off : c.off+c.n])
	}
	return p
}

func (c change) apply(o *Overlay, id NodeID) error {
	var err error
	switch c.kind {
	case changeWrite:
		_, err = o.Write(id, c.data, c.off, nil)
	case changeTruncate:
		_, err = o.SetAttr(Caller{}, id, SetAttr{Valid: SetSize, Size: uint64(c.off)})
	case changePunch:
		err = o.Fallocate(id, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, c.off, c.n)
	case changeZero:
		err = o.Fallocate(id, unix.FALLOC_FL_ZERO_RANGE, c.off, c.n)
	case changeComplete:
		err = o.Complete(context.Background())
	}
	return err
}

// killEnv makes TestBlockKill the process that is killed: directory and seed.
const killEnv = "SNAPFS_TEST_BLOCK_KILL"

// openKill opens the overlay of a directory, and its file.
func openKill(dir string) (*Overlay, NodeID, error) {
	low, err := OpenSealed("base", filepath.Join(dir, "lower"), 0)
	if err != nil {
		return nil, 0, err
	}
	o, err := New(filepath.Join(dir, "upper"), filepath.Join(dir, "work"), []*Lower{low}, Options{InoBase: 1 << 48})
	if err == nil {
		err = low.Close() // the overlay has it
	}
	if err != nil {
		return nil, 0, err
	}
	e, err := o.Lookup(RootNode, "f")
	return o, e.Node, err
}

// killed makes changes until it is killed, and says after each that it is done.
func killed(dir string, seed uint64) error {
	o, id, err := openKill(dir)
	if err != nil {
		return err
	}
	rnd := rand.New(rand.NewPCG(seed, 1))
	for i := 1; ; i++ { // however late the kill comes
		if err := nextChange(rnd).apply(o, id); err != nil {
			return err
		}
		if _, err := fmt.Println(i); err != nil {
			return err
		}
	}
}

// TestBlockKill kills a process that changes a partial file. What it had completed is there, and of what it was doing
// every byte is old or new.
func TestBlockKill(t *testing.T) {
	if v := os.Getenv(killEnv); v != "" {
		seed, err := strconv.ParseUint(v, 10, 64)
		if err == nil {
			inlineStates = int(seed % 2 * 512)
			err = killed(os.Getenv(killEnv+"_DIR"), seed)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	rounds := 8
	if os.Getenv("SNAPFS_LONG") == "1" {
		rounds = 400
	}
	first := testseed.Of(t)
	for i := range rounds {
		seed := first + uint64(i)
		t.Run(strconv.Itoa(i), func(t *testing.T) { killRound(t, seed) })
	}
}

func killRound(t *testing.T, seed uint64) {
	t.Log("seed", seed)
	dir := t.TempDir()
	for _, d := range []string{"lower", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	rnd := rand.New(rand.NewPCG(seed, 2))
	sparseFile(t, filepath.Join(dir, "lower/f"), killFileSize, rnd)
	want, err := os.ReadFile(filepath.Join(dir, "lower/f"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestBlockKill$", "-test.timeout=50s")
	cmd.Env = append(os.Environ(), killEnv+"="+strconv.FormatUint(seed, 10), killEnv+"_DIR="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done, until := 0, 1+rnd.IntN(150)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Errorf("the process says %q", lines.Text())
			break
		}
		if done = n; done == until {
			time.Sleep(time.Duration(rnd.IntN(3000)) * time.Microsecond)
			_ = cmd.Process.Kill() // it may be at its end; Wait tells
		}
	}
	_ = cmd.Wait() // killed
	if done < until {
		t.Fatalf("the process ended after %d changes", done)
	}
	changes := rand.New(rand.NewPCG(seed, 1))
	for range done {
		want = nextChange(changes).model(want)
	}
	c := nextChange(changes)
	next := c.model(bytes.Clone(want))
	o, id, err := openKill(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, max(len(want), len(next))+10)
	k, err := o.Read(id, got, 0)
	if err = errors.Join(err, o.Close()); err != nil {
		t.Fatal(err)
	}
	// A write that makes the file longer may have done so with a part of its bytes.
	if k != len(want) && k != len(next) && (c.kind == changeTruncate || k < min(len(want), len(next))) {
		t.Fatalf("%d bytes after %d changes, want %d or, with %+v, %d", k, done, len(want), c.kind, len(next))
	}
	for i, b := range got[:k] {
		old := i < len(want) && b == want[i] || i >= len(want) && b == 0
		if !old && (i >= len(next) || b != next[i]) {
			t.Fatalf("byte %d of %d is neither old nor new after %d changes; then change %d of %d bytes at %d", i, k, done, c.kind, c.n, c.off)
		}
	}
}
