package sandbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/testseed"
)

// Environment of a child that lives the life of a crashRun in a directory, and kills itself at the point of a number.
const (
	killWork = "SNAPFS_TEST_KILL"
	killAt   = "SNAPFS_TEST_KILL_AT"
)

// killChild turns this process into such a child. It tells on stdout every tree and, after every change, the ledger.
func killChild() {
	work, ok := os.LookupEnv(killWork)
	if !ok {
		return
	}
	if err := killRun(work); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func killRun(work string) error {
	at, err := strconv.Atoi(os.Getenv(killAt))
	if err != nil {
		return err
	}
	var mu sync.Mutex
	l, told, passed, phase := newLedger(), map[string]bool{}, 0, ""
	r := &crashRun{
		work: work, home: filepath.Join(work, "home"),
		points: func(point string) {
			mu.Lock()
			defer mu.Unlock()
			if passed++; passed == at {
				fmt.Printf("killed %s: %s\n", phase, point)
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
				select {} // nothing more happens in this process
			}
		},
		phase: func(name string) {
			mu.Lock()
			defer mu.Unlock()
			phase = name
		},
		promise: func(change func(*ledger)) {
			mu.Lock()
			defer mu.Unlock()
			change(l)
			for name, nodes := range l.trees {
				if !told[name] {
					told[name] = true
					text, err := json.Marshal(nodes)
					if err != nil {
						panic(err) // plain data
					}
					fmt.Printf("tree %s %s\n", name, text)
				}
			}
			fmt.Printf("ledger %s", l.encode())
		},
	}
	return r.run(context.Background())
}

// TestKillPoints kills a process between any two of the steps of everything that a home does: at some points, or with
// $SNAPFS_LONG at every third.
func TestKillPoints(t *testing.T) {
	rnd := rand.New(rand.NewPCG(testseed.Of(t), 3))
	if os.Getenv("SNAPFS_LONG") != "" {
		for at := 1 + rnd.IntN(3); killedLife(t, at) && !t.Failed(); at += 3 {
		}
		return
	}
	for range 3 {
		killedLife(t, 1+rnd.IntN(650))
	}
}

// killedLife runs one child and verifies what it leaves; false if it came to its end.
func killedLife(t *testing.T, at int) (killed bool) {
	t.Helper()
	base, err := os.MkdirTemp("", "snapfs-killed-")
	if err != nil {
		t.Fatal(err)
	}
	mounts := []string{filepath.Join(base, "m"), filepath.Join(base, "m2"), filepath.Join(base, "v")}
	defer func() {
		if err := removeTree(base, mounts...); err != nil {
			t.Error(err)
		}
	}()
	if err := prepareCrashRun(base); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(mounts[2], 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	l, where := newLedger(), "the end"
	child(ctx, t, []string{killWork + "=" + base, killAt + "=" + strconv.Itoa(at)}, nil, func(line []byte, _ func()) {
		what, rest, _ := bytes.Cut(line, []byte(" "))
		switch string(what) {
		case "killed":
			killed, where = true, string(rest)
		case "tree":
			name, text, _ := bytes.Cut(rest, []byte(" "))
			nodes := l.trees[string(name)]
			if err := json.Unmarshal(text, &nodes); err != nil {
				t.Error(err)
			}
			l.trees[string(name)] = nodes
		case "ledger":
			if err := l.decode(rest); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run(fmt.Sprint(at, " ", where), func(t *testing.T) {
		v := &verifier{t: t, home: filepath.Join(base, "home"), at: mounts[2], ledger: l, most: 3}
		v.verify(ctx)
	})
	return killed
}
