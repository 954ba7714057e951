package chunkstore

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/stretchr/testify/require"

	"snapfs/internal/testseed"
)

func deleteManifest(t *testing.T, s *Store, ids ...ID) {
	t.Helper()
	require.NoError(t, s.Update(context.Background(), true, func(tx *Tx) error {
		for _, id := range ids {
			if err := tx.DeleteManifest(id); err != nil {
				return err
			}
		}
		return nil
	}))
}

// history stores versions of a set of files, each a little different from the one before.
func history(t *testing.T, s *Store, r *rand.Rand, versions int) (ids []ID, want [][]byte) {
	t.Helper()
	files := make([][]byte, 15)
	where := make([]Range, len(files))
	for i := range files {
		files[i] = text(r, 2000+r.IntN(30_000))
	}
	files[0] = noise(r, 300<<10)
	for range versions {
		var parts []part
		at := int64(0)
		for i, f := range files {
			p := part{path: fmt.Sprintf("dir/%d.txt", i), data: f}
			if where[i].Manifest != 0 {
				p.prev = []Range{where[i]}
			}
			where[i] = Range{Off: at, Len: int64(len(f))}
			at += int64(len(f))
			parts = append(parts, p)
		}
		m := put(t, s, nil, parts...)
		for i := range where {
			where[i].Manifest = m.ID
		}
		ids = append(ids, m.ID)
		want = append(want, join(nil, parts...))
		for i := range files {
			if r.IntN(2) == 0 {
				next := bytes.Clone(files[i])
				copy(next[r.IntN(len(next)):], fmt.Sprintf("edit %d", r.Uint32()))
				files[i] = next
			}
		}
	}
	return ids, want
}

// TestCheckDeleted: a manifest that is deleted while the store is checked is no problem, even if the cache still has it.
func TestCheckDeleted(t *testing.T) {
	s := openTest(t, t.TempDir())
	ids, _ := history(t, s, rand.New(rand.NewPCG(5, 6)), 2)
	m, err := s.manifest(ids[0])
	require.NoError(t, err)
	deleteManifest(t, s, ids...)
	_, err = s.GC(t.Context(), nil)
	require.NoError(t, err)
	_, epoch, _ := s.manifests.get(ids[0])
	s.manifests.put(ids[0], m, m.cost(), epoch)
	c := &checker{s: s, known: roaring64.New()}
	c.listed(ids[0])
	require.Empty(t, c.problems)
}

func TestCollect(t *testing.T) {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(3, 4))
	dir := t.TempDir()
	s := openTest(t, dir)
	ids, want := history(t, s, r, 12)

	u, err := s.Usage(ctx, ids[11])
	require.NoError(t, err)
	require.Equal(t, u.Stored, u.Unique+u.Shared)
	require.Equal(t, int64(len(want[11])), u.Logical)

	// Nothing to collect.
	st, err := s.GC(ctx, nil)
	require.NoError(t, err)
	require.Zero(t, st.Chunks)

	// A reader keeps what it reads.
	reader, err := s.OpenManifest(ctx, ids[3])
	require.NoError(t, err)
	deleteManifest(t, s, ids[:11]...)
	stats, err := s.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, int64(1), stats.Manifests)
	st, err = s.GC(ctx, nil)
	require.NoError(t, err)
	require.NotZero(t, st.Chunks)
	var b bytes.Buffer
	_, err = reader.WriteTo(&b)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want[3], b.Bytes()))
	require.NoError(t, reader.Close())

	_, err = s.GC(ctx, nil)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want[11], readAll(t, s, ids[11])))
	stats, err = s.Stats(ctx)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	s = openTest(t, dir)
	require.True(t, bytes.Equal(want[11], readAll(t, s, ids[11])))

	// What is left takes little more than if it alone had been stored.
	fresh := openTest(t, t.TempDir())
	put(t, fresh, nil, part{"x", want[11], nil})
	alone, err := fresh.Stats(ctx)
	require.NoError(t, err)
	t.Logf("left %+v, alone %+v", stats, alone)
	require.Less(t, stats.Payload+stats.Garbage, alone.Payload*13/10)

	// Collected contents can be stored again.
	m := put(t, s, nil, part{"y", want[0], nil})
	require.True(t, bytes.Equal(want[0], readAll(t, s, m.ID)))
	deleteManifest(t, s, m.ID, ids[11])
	held := s.packBytes()
	st, err = s.GC(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, held-s.packBytes(), st.Dropped)
	require.NotZero(t, st.Dropped)
	stats, err = s.Stats(ctx)
	require.NoError(t, err)
	require.Zero(t, stats.Chunks)
	require.Zero(t, stats.Payload)
	require.Zero(t, stats.Garbage)
}

// TestCollectTwin stores the same contents twice at a time and collects the one that the hash leads to: the other is
// sound, and a repair lets equal contents find it again.
func TestCollectTwin(t *testing.T) {
	ctx := context.Background()
	s := openTest(t, t.TempDir())
	data := text(rand.New(rand.NewPCG(8, 9)), 20_000)
	begin := func() *Ingest {
		in, err := s.NewIngest(ctx, IngestOptions{Kind: KindImage})
		require.NoError(t, err)
		require.NoError(t, in.Hint(Hint{Path: "f", Size: int64(len(data))}))
		_, err = in.Write(data)
		require.NoError(t, err)
		require.NoError(t, in.pipe.drain()) // its chunk is looked up
		return in
	}
	a, b := begin(), begin()
	defer a.Abort()
	defer b.Abort()
	first, err := a.Commit(ctx, nil)
	require.NoError(t, err)
	second, err := b.Commit(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, s.Update(ctx, true, func(tx *Tx) error { return tx.DeleteManifest(second.ID) }))
	_, err = s.GC(ctx, nil)
	require.NoError(t, err)
	requireClean(t, s)
	_, err = s.lookup(hashOf(data))
	require.ErrorIs(t, err, ErrNotFound, "the test wants the hash of the twin to be gone")
	problems, err := s.Check(ctx, CheckOptions{ReadData: true, Repair: true})
	require.NoError(t, err)
	require.Empty(t, problems)
	_, err = s.lookup(hashOf(data))
	require.NoError(t, err)
	require.Equal(t, data, readAll(t, s, first.ID))
}

// TestCollectWithWriters collects all the time while others store, read and delete.
func TestCollectWithWriters(t *testing.T) {
	ctx := context.Background()
	s := openTest(t, t.TempDir())
	pool := make([][]byte, 30)
	r := rand.New(rand.NewPCG(5, 6))
	for i := range pool {
		pool[i] = text(r, 1000+r.IntN(40_000))
	}
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(7, uint64(w)))
			type kept struct {
				id   ID
				want []byte
			}
			var mine []kept
			for range 25 {
				var parts []part
				for range 1 + r.IntN(10) {
					data := pool[r.IntN(len(pool))]
					if r.IntN(3) == 0 {
						data = bytes.Clone(data)
						copy(data[r.IntN(len(data)):], fmt.Sprint(r.Uint32()))
					}
					parts = append(parts, part{path: "f", data: data})
				}
				if len(mine) > 0 {
					k := mine[r.IntN(len(mine))]
					parts[0].prev = []Range{{k.id, 0, int64(len(k.want))}}
				}
				m, err := tryPut(s, nil, parts...)
				if err != nil {
					t.Error(err)
					return
				}
				mine = append(mine, kept{m.ID, join(nil, parts...)})
				if len(mine) > 5 {
					i := r.IntN(len(mine))
					if err := s.Update(ctx, true,
						func(tx *Tx) error { return tx.DeleteManifest(mine[i].id) }); err != nil {
						t.Error(err)
						return
					}
					mine = append(mine[:i], mine[i+1:]...)
				}
				k := mine[r.IntN(len(mine))]
				rd, err := s.OpenManifest(ctx, k.id)
				if err != nil {
					t.Error(err)
					return
				}
				var b bytes.Buffer
				_, err = rd.WriteTo(&b)
				_ = rd.Close()
				if err != nil || !bytes.Equal(b.Bytes(), k.want) {
					t.Errorf("manifest %d: %v, %d bytes instead of %d", k.id, err, b.Len(), len(k.want))
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	rounds := 0
	for {
		select {
		case <-done:
			t.Logf("%d collections", rounds)
			return
		default:
		}
		_, err := s.GC(ctx, nil)
		if err != nil {
			t.Error(err)
			<-done
			return
		}
		if rounds++; rounds%8 == 0 {
			time.Sleep(5 * time.Millisecond) // let the writers advance
		}
	}
}

// TestRewriteUnmarked: where a full disk kept a collection from marking, the steps that follow leave what there is.
func TestRewriteUnmarked(t *testing.T) {
	s := openTest(t, t.TempDir())
	r := rand.New(rand.NewPCG(testseed.Of(t), 1))
	ids, want := history(t, s, r, 3)
	c := &collection{s: s, policy: automatic, progress: func(int64, int64) {}}
	for _, step := range []func(context.Context) error{c.sweep, c.rewrite, c.compact, c.purge} {
		require.NoError(t, step(t.Context()))
	}
	for i, id := range ids {
		require.Equal(t, want[i], readAll(t, s, id))
	}
}
