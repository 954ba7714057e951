package chunkstore

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/blake3"

	"snapfs/internal/testseed"
)

const crashDir = "SNAPFS_TEST_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		crashWriter(dir)
		return
	}
	if dir := os.Getenv(fullDiskDir); dir != "" {
		fullDiskWriter(dir)
		return
	}
	if dir := os.Getenv(fullDiskCloseDir); dir != "" {
		fullDiskCloser(dir)
		return
	}
	os.Exit(m.Run())
}

// crashWriter stores, deletes and collects until it is killed, and prints what was acknowledged: a line with the number
// and the hash of each committed stream, and before and after each deletion a line with its number.
func crashWriter(dir string) {
	ctx := context.Background()
	s, err := Open(dir, Options{})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	seed, err := strconv.ParseUint(os.Getenv(testseed.Variable), 10, 64)
	if err != nil {
		fmt.Println("error", err)
		return
	}
	r := rand.New(rand.NewPCG(seed, 1))
	fmt.Println("seed", seed)
	old, err := s.Manifests(ctx)
	if err != nil {
		fmt.Println("error", err)
		return
	}
	go func() {
		for {
			if _, err := s.GC(ctx, nil); err != nil {
				fmt.Println("error", err)
			}
			if _, err := s.Optimize(ctx, nil); err != nil {
				fmt.Println("error", err)
			}
			time.Sleep(time.Millisecond)
		}
	}()
	pool := make([][]byte, 20)
	for i := range pool {
		pool[i] = text(r, 1000+r.IntN(100_000))
	}
	for {
		var parts []part
		for range 1 + r.IntN(8) {
			i := r.IntN(len(pool))
			pool[i] = bytes.Clone(pool[i])
			copy(pool[i][r.IntN(len(pool[i])):], fmt.Sprint(r.Uint64()))
			p := part{path: fmt.Sprint(i), data: pool[i]}
			if len(old) > 0 {
				m := old[r.IntN(len(old))]
				p.prev = []Range{{m.ID, 0, m.Size}}
			}
			parts = append(parts, p)
		}
		m, err := tryPut(s, nil, parts...)
		if err != nil {
			fmt.Println("error", err)
			return
		}
		sum := blake3.Sum256(join(nil, parts...))
		fmt.Println("put", m.ID, hex.EncodeToString(sum[:]))
		if old = append(old, m); len(old) > 6 {
			i := r.IntN(len(old))
			fmt.Println("delete", old[i].ID)
			if err := s.Update(ctx, true, func(tx *Tx) error { return tx.DeleteManifest(old[i].ID) }); err != nil {
				fmt.Println("error", err)
				return
			}
			fmt.Println("deleted", old[i].ID)
			old = append(old[:i], old[i+1:]...)
		}
	}
}

// TestKill kills a process that writes to a store again and again at random moments. What it was acknowledged must be
// there each time, what it deleted must not, and the store must be clean.
func TestKill(t *testing.T) {
	rounds := 8
	if os.Getenv("SNAPFS_LONG") != "" {
		rounds = 100
	}
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(testseed.Of(t), 2))
	stored := map[ID]string{}
	unsure := map[ID]bool{} // a deletion was begun
	for round := range rounds {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), crashDir+"="+dir, testseed.Variable+"="+strconv.FormatUint(r.Uint64(), 10))
		cmd.WaitDelay = 5 * time.Second
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		timer := time.AfterFunc(time.Hour, func() { _ = cmd.Process.Kill() })
		wait := time.Duration(50+r.IntN(400)) * time.Millisecond
		if round%2 == 1 {
			timer.Reset(wait)
		}
		lines := bufio.NewScanner(out)
		for waits := round%2 == 0; lines.Scan(); {
			var id ID
			var sum string
			switch line := lines.Text(); {
			case strings.HasPrefix(line, "put "):
				if n, _ := fmt.Sscanf(line, "put %d %s", &id, &sum); n == 2 && len(sum) == 64 {
					stored[id] = sum
				}
				if waits {
					waits = false
					timer.Reset(wait) // however long a busy machine takes to get there, something was stored
				}
			case strings.HasPrefix(line, "deleted "):
				_, err := fmt.Sscanf(line, "deleted %d", &id)
				require.NoError(t, err)
				delete(stored, id)
			case strings.HasPrefix(line, "delete "):
				_, err := fmt.Sscanf(line, "delete %d", &id)
				require.NoError(t, err)
				unsure[id] = true
			case strings.HasPrefix(line, "error "):
				t.Error(line)
			}
		}
		_ = cmd.Wait() // it was killed
		timer.Stop()
		cancel()
		verifyStored(t, dir, stored, unsure)
	}
	require.NotEmpty(t, stored)
}

// verifyStored opens a store after a crash.
func verifyStored(t *testing.T, dir string, stored map[ID]string, unsure map[ID]bool) {
	t.Helper()
	ctx := context.Background()
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	requireClean(t, s)
	for id, want := range stored {
		r, err := s.OpenManifest(ctx, id)
		if unsure[id] && err != nil {
			require.ErrorIs(t, err, ErrNotFound)
			delete(stored, id)
			continue
		}
		require.NoError(t, err)
		h := blake3.New()
		_, err = r.WriteTo(h)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.Equal(t, want, hex.EncodeToString(h.Sum(nil)))
	}
	list, err := s.Manifests(ctx)
	require.NoError(t, err)
	for _, m := range list {
		if stored[m.ID] == "" {
			// Committed, but the acknowledgement was lost: it must be whole all the same.
			r, err := s.OpenManifest(ctx, m.ID)
			require.NoError(t, err)
			h := blake3.New()
			_, err = io.Copy(h, io.NewSectionReader(r, 0, r.Size()))
			require.NoError(t, err)
			require.NoError(t, r.Close())
			stored[m.ID] = hex.EncodeToString(h.Sum(nil))
		}
	}
}

// TestTornTail cuts the newest pack, as a power loss does to bytes that were not synced, and damages it behind the end
// that the index names.
func TestTornTail(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	r := rand.New(rand.NewPCG(8, 9))
	data := text(r, 50_000)
	m := put(t, s, nil, part{"a", data, nil})
	require.NoError(t, s.Close())
	path := dir + "/packs/00000001.pack"
	fi, err := os.Stat(path)
	require.NoError(t, err)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = f.Write(binary.LittleEndian.AppendUint64(nil, r.Uint64()))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, os.WriteFile(dir+"/packs/00000002.pack", []byte("never named"), 0o600))

	s = openTest(t, dir)
	require.Equal(t, data, readAll(t, s, m.ID))
	m2 := put(t, s, nil, part{"b", text(r, 50_000), nil})
	require.NoError(t, s.Close())
	require.NoFileExists(t, dir+"/packs/00000002.pack")
	s = openTest(t, dir)
	readAll(t, s, m2.ID)
	require.NoError(t, s.Close())

	// A pack that ends too early costs what lay behind, no more.
	require.NoError(t, os.Truncate(path, fi.Size()))
	s, err = Open(dir, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.Equal(t, data, readAll(t, s, m.ID))
	problems, err := s.Check(context.Background(), CheckOptions{})
	require.NoError(t, err)
	require.NotEmpty(t, problems)
	require.Equal(t, []ID{m2.ID}, problems[0].Manifests)
	rd, err := s.OpenManifest(context.Background(), m2.ID)
	require.NoError(t, err)
	_, err = rd.WriteTo(io.Discard)
	require.ErrorIs(t, err, ErrCorrupt)
	require.NoError(t, rd.Close())
}
