package chunkstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/stretchr/testify/require"
	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"snapfs/chunkstore/internal/pack"
	"snapfs/internal/testseed"
)

// powerLoss runs a store on its own file system. At each step, it examines what a loss of power would leave: a copy of
// the device at that time, without what is only in the memory of the kernel. The file system of the copy is mounted,
// which replays its journal, and the store in it is opened and verified.
type powerLoss struct {
	t    *testing.T
	img  string // of the device
	work string // for copies
	long bool   // look at every step
	pick *rand.Rand

	mu    sync.Mutex
	phase string // what the store does; guarded by mu, as are the rest
	seen  map[string]int
	looks int

	sums     map[ID][32]byte // acknowledged
	putting  [][32]byte      // may be there: streams
	deleting []ID            // may be gone
	damaged  ID              // cannot be read
	values   []string        // keys of acknowledged values
	grouping []string        // may be there, all or none: keys of values that are written at the same time
}

// step is called by the store, sometimes by several goroutines at once.
func (p *powerLoss) step(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := p.phase + ": " + name
	p.seen[key]++
	if n := p.seen[key]; n > 20 || !p.long && (n > 1 || p.pick.IntN(3) > 0) {
		return
	}
	p.looks++
	p.look(key)
}

// enter begins a phase.
func (p *powerLoss) enter(phase string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phase = phase
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
}

// look verifies what is left if the power goes now; p.mu is held.
func (p *powerLoss) look(at string) {
	t := p.t
	// A loop device may outlive its mount for a moment, with what it has cached of its file.
	img, mnt := filepath.Join(p.work, fmt.Sprint("img", p.looks)), filepath.Join(p.work, "mnt")
	defer func() { require.NoError(t, os.Remove(img)) }()
	// Threads of Badger continue: copy until the device does not change.
	for {
		command(t, "cp", "--sparse=always", p.img, img)
		if exec.Command("cmp", "-s", p.img, img).Run() == nil {
			break
		}
	}
	command(t, "mount", "-o", "loop", img, mnt)
	ok := t.Run(at, func(t *testing.T) {
		if _, err := os.Stat(filepath.Join(mnt, "store", formatName)); errors.Is(err, os.ErrNotExist) {
			require.Empty(t, p.sums)
			return
		}
		p.verify(t, filepath.Join(mnt, "store"))
	})
	require.NoError(t, unix.Unmount(mnt, 0))
	if !ok {
		t.FailNow()
	}
}

// verify opens the store that a loss of power left.
func (p *powerLoss) verify(t *testing.T, dir string) {
	t.Helper()
	ctx := context.Background()
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	if p.damaged == 0 {
		requireClean(t, s)
	}
	list, err := s.Manifests(ctx)
	require.NoError(t, err)
	names := records(t, s, "names")
	require.Len(t, names, len(list), "records and manifests go together")
	there := map[ID]bool{}
	for _, m := range list {
		there[m.ID] = true
		if m.ID == p.damaged {
			continue
		}
		sum := blake3.Sum256(readAll(t, s, m.ID))
		want, known := p.sums[m.ID]
		if known {
			require.Equal(t, want, sum)
		} else {
			require.True(t, slices.Contains(p.putting, sum), "manifest %d was never committed", m.ID)
		}
		require.Equal(t, string(sum[:]), names[fmt.Sprint(m.ID)])
	}
	p.verifyGroup(t, records(t, s, "group"))
	gone := 0
	for id := range p.sums {
		if !there[id] {
			require.Contains(t, p.deleting, id, "manifest %d is lost", id)
			gone++
		}
	}
	require.True(t, gone == 0 || gone == len(p.deleting), "half of a transaction")
	require.NoError(t, s.view(func(btx *badger.Txn) error {
		return scan(btx, []byte{keyPart}, []byte{keyPart}, func(key, _ []byte) (bool, error) {
			_, err := get(btx, manifestKey(ID(binary.BigEndian.Uint64(key[1:]))))
			require.NoError(t, err, "parts of a manifest that never came")
			return true, nil
		})
	}))

	// Nothing is leaked: when all is deleted and collected no byte is left.
	m := put(t, s, nil, part{"after", []byte("the store goes on"), nil})
	require.False(t, there[m.ID])
	list = append(list, m)
	for _, m := range list {
		deleteManifest(t, s, m.ID)
	}
	_, err = s.GC(ctx, nil)
	require.NoError(t, err)
	st, err := s.Stats(ctx)
	require.NoError(t, err)
	require.Zero(t, st.Manifests)
	require.Zero(t, st.Chunks)
	require.Zero(t, st.Payload)
	require.Zero(t, st.Garbage)
	files, err := os.ReadDir(s.packDir())
	require.NoError(t, err)
	require.Less(t, len(files), 2+len(s.packs.Sizes()), "%v", files)
	require.LessOrEqual(t, len(s.packs.Sizes()), 1)
}

// put stores a stream and a record of its sum.
func (p *powerLoss) put(s *Store, parts ...part) Manifest {
	t, ctx := p.t, context.Background()
	sum := blake3.Sum256(join(nil, parts...))
	p.mu.Lock()
	p.putting = append(p.putting, sum)
	p.mu.Unlock()
	in, err := s.NewIngest(ctx, IngestOptions{Kind: KindImage})
	require.NoError(t, err)
	for _, q := range parts {
		require.NoError(t, in.Hint(Hint{Path: q.path, Size: int64(len(q.data)), Prev: q.prev}))
		_, err := in.Write(q.data)
		require.NoError(t, err)
	}
	m, err := in.Commit(ctx, func(tx *Tx, m Manifest) error { return tx.Put("names", fmt.Sprint(m.ID), sum[:]) })
	require.NoError(t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sums[m.ID] = sum
	p.putting = nil
	return m
}

// group writes values in transactions that share a group with that of a stream, if there is one.
func (p *powerLoss) group(s *Store, stream ...part) {
	t := p.t
	release := jam(s)
	var all sync.WaitGroup
	large := 0
	if len(stream) > 0 {
		large = 1
		all.Go(func() { p.put(s, stream...) })
		waitLine(t, s, 0, large)
	}
	var keys []string
	for i := range 4 {
		keys = append(keys, fmt.Sprint(len(p.values)+i))
	}
	p.mu.Lock()
	p.grouping = keys
	p.mu.Unlock()
	for i, key := range keys {
		all.Go(func() { require.NoError(t, s.Update(context.Background(), true, putGroup(key, key))) })
		waitLine(t, s, i+1, large)
	}
	release()
	all.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.values, p.grouping = append(p.values, keys...), nil
}

// verifyGroup verifies the values that group wrote; p.mu is held.
func (p *powerLoss) verifyGroup(t *testing.T, there map[string]string) {
	t.Helper()
	for _, key := range p.values {
		require.Equal(t, key, there[key])
	}
	if more := len(there) - len(p.values); more != 0 {
		require.Equal(t, len(p.grouping), more, "a group is there as a whole or not at all")
	}
}

func (p *powerLoss) delete(s *Store, ids ...ID) {
	p.mu.Lock()
	p.deleting = ids
	p.mu.Unlock()
	require.NoError(p.t, s.Update(context.Background(), true, func(tx *Tx) error {
		for _, id := range ids {
			if err := errors.Join(tx.DeleteManifest(id), tx.Delete("names", fmt.Sprint(id))); err != nil {
				return err
			}
		}
		return nil
	}))
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		delete(p.sums, id)
	}
	p.deleting = nil
}

// TestPowerLoss takes the power away between any two steps of everything that a store does: a third of them, or with
// $SNAPFS_LONG all.
func TestPowerLoss(t *testing.T) {
	ctx := context.Background()
	base := t.TempDir()
	seed := testseed.Of(t)
	p := &powerLoss{
		t: t, pick: rand.New(rand.NewPCG(seed, 1)), img: filepath.Join(base, "img"), work: filepath.Join(base,
			"work"), long: os.Getenv("SNAPFS_LONG") != "",
		seen: map[string]int{}, sums: map[ID][32]byte{},
	}
	mnt := filepath.Join(base, "mnt")
	require.NoError(t, os.MkdirAll(filepath.Join(p.work, "mnt"), 0o700))
	require.NoError(t, os.MkdirAll(mnt, 0o700))
	require.NoError(t, os.WriteFile(p.img, nil, 0o600))
	require.NoError(t, os.Truncate(p.img, 160<<20))
	command(t, "mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=0", p.img)
	command(t, "mount", "-o", "loop,discard", p.img, mnt)
	t.Cleanup(func() {
		for _, m := range []string{filepath.Join(p.work, "mnt"), mnt} {
			_ = unix.Unmount(m, unix.MNT_DETACH) // that of a copy is mounted only if the test failed
		}
	})
	dir := filepath.Join(mnt, "store")
	var s *Store
	open := func(phase string) {
		p.enter(phase)
		var err error
		s, err = Open(dir, Options{Points: p.step})
		require.NoError(t, err)
	}
	shut := func(phase string) {
		p.enter(phase)
		require.NoError(t, s.Close())
	}
	open("make")
	defer func() { _ = s.Close() }()
	r := rand.New(rand.NewPCG(100, 101))
	files := make([][]byte, 12)
	for i := range files {
		files[i] = text(r, 3000+r.IntN(20_000))
	}
	files[0] = noise(r, 200<<10)
	var last Manifest
	var ids []ID
	version := func() {
		var parts []part
		at := int64(0)
		for i := range files {
			q := part{path: fmt.Sprint(i), data: files[i]}
			if last.ID != 0 {
				q.prev = []Range{{last.ID, at, int64(len(files[i]))}}
			}
			at += int64(len(files[i]))
			parts = append(parts, q)
		}
		last = p.put(s, parts...)
		ids = append(ids, last.ID)
		for i := range files {
			if r.IntN(2) == 0 {
				files[i] = bytes.Clone(files[i])
				copy(files[i][r.IntN(len(files[i])):], fmt.Sprint("edit ", r.Uint64()))
			}
		}
	}
	p.enter("first commit")
	version()
	p.enter("commit")
	version()
	version()
	shut("close")
	open("open")
	p.enter("delete")
	version()
	version()
	p.delete(s, ids[0], ids[1], ids[2])
	p.enter("group")
	p.group(s)
	p.enter("group with a stream")
	p.group(s, part{"group", []byte("shares its transaction with values"), nil})
	p.enter("collect")
	_, err := s.GC(ctx, nil)
	require.NoError(t, err)
	p.enter("optimize")
	_, err = s.Optimize(ctx, nil)
	require.NoError(t, err)
	p.enter("big manifest")
	big := p.big(s, r)
	p.enter("abort")
	in, err := s.NewIngest(ctx, IngestOptions{Kind: KindImage})
	require.NoError(t, err)
	require.NoError(t, in.Hint(Hint{Path: "x", Size: 1 << 20}))
	_, err = in.Write(noise(r, 1<<20))
	require.NoError(t, err)
	in.Abort()
	p.enter("rewrite journal")
	require.NoError(t, s.rewriteJournal(ctx, true))
	p.enter("shrink index")
	require.NoError(t, s.shrinkIndex(ctx))
	shut("close again")
	p.enter("rebuild")
	_, err = RebuildIndex(ctx, dir, RebuildOptions{points: p.step})
	require.NoError(t, err)
	open("open rebuilt")
	version()
	p.enter("collect all")
	p.delete(s, append(ids[3:len(ids)-1], big)...)
	_, err = s.GC(ctx, nil)
	require.NoError(t, err)
	p.enter("repair")
	p.repair(s, last.ID)
	shut("end")
	t.Log(p.looks, "looks")
}

// big stores a manifest of several parts.
func (p *powerLoss) big(s *Store, r *rand.Rand) ID {
	var pool [][]byte
	for range 3000 {
		pool = append(pool, noise(r, 12))
	}
	var parts []part
	for range 45_000 {
		parts = append(parts, part{path: "p", data: pool[r.IntN(len(pool))]})
	}
	return p.put(s, parts...).ID
}

// repair damages what the newest manifest alone needs, and has it isolated.
func (p *powerLoss) repair(s *Store, last ID) {
	t, ctx := p.t, context.Background()
	m, err := s.manifest(last)
	require.NoError(t, err)
	rec, _, err := s.locate(m.runs[len(m.runs)-1].first)
	require.NoError(t, err)
	p.mu.Lock()
	p.damaged = last
	p.mu.Unlock()
	flip(t, filepath.Join(s.packDir(), pack.Name(rec.Pack)), rec.End()-1)
	command(t, "sync", filepath.Join(s.packDir(), pack.Name(rec.Pack)))
	s.blocks.clear()
	problems, err := s.Check(ctx, CheckOptions{ReadData: true, Repair: true})
	require.NoError(t, err)
	require.NotEmpty(t, problems)
}
