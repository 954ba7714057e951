package chunkstore

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
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/chunkstore/internal/sample"
	"snapfs/internal/testseed"
)

const fullDiskDir = "SNAPFS_TEST_FULLDISK_DIR"

// fullDiskWriter opens a store, verifies and prints the records that it has, and writes and deletes records until it is
// killed. It prints what was acknowledged, "begin" before, and "full" for what a full disk refused.
func fullDiskWriter(dir string) {
	ctx := context.Background()
	fail := func(err error) { fmt.Println("error", err) }
	s, err := Open(dir, Options{})
	if err != nil {
		fail(err)
		return
	}
	seed, err := strconv.ParseUint(os.Getenv(testseed.Variable), 10, 64)
	if err != nil {
		fail(err)
		return
	}
	var keys []string
	if err := s.View(ctx, func(tx *Tx) error {
		return tx.Scan("b", "", func(key string, v []byte) (bool, error) {
			if !bytes.Equal(v, recordOf(key)) {
				return false, fmt.Errorf("record %s is not what was written", key)
			}
			fmt.Println("have", key)
			keys = append(keys, key)
			return true, nil
		})
	}); err != nil {
		fail(err)
		return
	}
	fmt.Println("opened")
	r := rand.New(rand.NewPCG(seed, 3))
	for {
		what, change := "delete", func(tx *Tx, key string) error { return tx.Delete("b", key) }
		i := r.IntN(len(keys) + 1)
		if i == len(keys) || r.IntN(3) > 0 {
			what, change = "put", func(tx *Tx, key string) error { return tx.Put("b", key, recordOf(key)) }
			i, keys = len(keys), append(keys, fmt.Sprintf("%d/%d", r.Uint64(), 1+r.IntN(1<<(8+r.IntN(12)))))
		}
		key := keys[i]
		fmt.Println("begin", what, key)
		err := s.Update(ctx, true, func(tx *Tx) error { return change(tx, key) })
		switch {
		case errors.Is(err, unix.ENOSPC):
			fmt.Println("full", what, key)
		case err != nil:
			fail(err)
			return
		default:
			fmt.Println("done", what, key)
		}
		if (err == nil) == (what == "delete") {
			keys = append(keys[:i], keys[i+1:]...)
		}
	}
}

// recordOf is the value of a record of the test, which its key tells.
func recordOf(key string) []byte {
	var seed uint64
	var n int
	if _, err := fmt.Sscanf(key, "%d/%d", &seed, &n); err != nil {
		return nil
	}
	return noise(rand.New(rand.NewPCG(seed, 4)), n)
}

// TestFullDiskKill kills a process that writes, with the disk full: as soon as the disk is, or later. Some rounds begin
// with room, most on the disk as it is. The store is opened each time and has what was acknowledged. In the end it
// takes deletions and collects, the disk still full.
func TestFullDiskKill(t *testing.T) {
	unraced(t)
	rounds := 5
	if os.Getenv("SNAPFS_LONG") != "" {
		rounds = 50
	}
	mnt := sample.Disk(t, 320, "0")
	dir := filepath.Join(mnt, "store")
	r := rand.New(rand.NewPCG(testseed.Of(t), 5))
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	m := put(t, s, nil, part{"a", noise(r, 8<<20), nil})
	require.NoError(t, s.Close())
	d := fullDiskKills{t: t, mnt: mnt, dir: dir, acked: map[string]bool{}}
	for round := range rounds {
		d.round(round, r)
	}
	require.NotEmpty(t, d.acked)

	fillDisk(t, d.ballast())
	s, err = Open(dir, Options{})
	require.NoError(t, err)
	fillDisk(t, d.ballast())
	require.NoError(t, s.Update(context.Background(), true, func(tx *Tx) error { return tx.DeleteManifest(m.ID) }))
	st, err := s.GC(context.Background(), nil)
	require.NoError(t, err)
	require.Greater(t, st.Dropped, int64(7<<20))
	requireClean(t, s)
	if err := s.Close(); err != nil {
		require.ErrorIs(t, err, unix.ENOSPC)
	}
	d.makeRoom()
	require.NoError(t, s.Close())
}

type fullDiskKills struct {
	t        *testing.T
	mnt, dir string
	ballasts int
	acked    map[string]bool
}

func (d *fullDiskKills) ballast() string {
	d.ballasts++
	return filepath.Join(d.mnt, fmt.Sprint("ballast", d.ballasts))
}

// makeRoom removes what fills the disk.
func (d *fullDiskKills) makeRoom() {
	for ; d.ballasts > 0; d.ballasts-- {
		require.NoError(d.t, os.RemoveAll(filepath.Join(d.mnt, fmt.Sprint("ballast", d.ballasts))))
	}
}

// round has a process open the store and write, fills the disk after some transactions, and kills the process after
// some more, done or refused.
func (d *fullDiskKills) round(round int, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), fullDiskDir+"="+d.dir, testseed.Variable+"="+strconv.FormatUint(r.Uint64(), 10))
	cmd.WaitDelay = 5 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	require.NoError(d.t, err)
	fill := r.IntN(60)
	if round%4 == 0 {
		d.makeRoom()
		fill *= 10 // as much as a memtable takes
	} else {
		fillDisk(d.t, d.ballast())
	}
	end := fill + r.IntN(2)*r.IntN(60)
	require.NoError(d.t, cmd.Start())
	have, begun, opened, steps := map[string]bool{}, "", false, 0
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		what, rest, _ := strings.Cut(lines.Text(), " ")
		_, key, _ := strings.Cut(rest, " ")
		switch what {
		case "have":
			have[rest] = true
		case "opened":
			opened = true
		case "begin":
			begun = rest
		case "full", "done":
			begun = ""
			if what == "done" && strings.HasPrefix(rest, "put") {
				have[key] = true
			} else if what == "done" {
				delete(have, key)
			}
			steps++
		case "error":
			d.t.Errorf("round %d: %s", round, lines.Text())
		}
		if what == "opened" {
			for key := range d.acked {
				require.True(d.t, have[key], "round %d: %s is lost", round, key)
			}
			require.LessOrEqual(d.t, len(have), len(d.acked)+1, "round %d", round)
		}
		if opened && steps == fill && what != "begin" && what != "have" {
			fillDisk(d.t, d.ballast())
		}
		if opened && steps == end {
			break
		}
	}
	_ = cmd.Process.Kill()
	for lines.Scan() {
		what, rest, _ := strings.Cut(lines.Text(), " ")
		_, key, _ := strings.Cut(rest, " ")
		switch {
		case what == "begin":
			begun = rest
		case what == "full":
			begun = ""
		case what == "done" && strings.HasPrefix(rest, "put"):
			have[key], begun = true, ""
		case what == "done":
			delete(have, key)
			begun = ""
		}
	}
	err = cmd.Wait()
	if opened && strings.Contains(stderr.String(), "table.CreateTable") {
		d.t.Logf("round %d: the disk was filled while tables were merged", round) // nothing is held for these
	} else {
		require.True(d.t, opened && steps == end, "round %d: it ended by itself: %v: %s", round, err, stderr.String())
	}
	if _, key, ok := strings.Cut(begun, " "); ok {
		delete(have, key) // it may be there, or not
	}
	d.acked = have
}

// TestTrimLog cuts logs at the page behind what they hold, which may end with zeros.
func TestTrimLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for _, test := range []struct{ last, size, want int64 }{
		{-1, 0, 0},
		{-1, 4 << 20, 4096},
		{0, 4 << 20, 4096},
		{4091, 4 << 20, 4096},
		{4092, 4 << 20, 8192},
		{1<<20 - 1, 4 << 20, 1<<20 + 4096},
		{2<<20 + 7, 4 << 20, 2<<20 + 4096},
		{2<<20 + 7, 2<<20 + 20, 2<<20 + 20},
		{4<<20 - 1, 4 << 20, 4 << 20},
	} {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.Truncate(path, test.size))
		if test.last >= 0 {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte{1}, test.last)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
		got, err := trimLog(path)
		require.NoError(t, err)
		require.Equal(t, test.want, got)
		fi, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, test.want, fi.Size())
	}
}
