package sandbox_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"snapfs/chunkstore"
	"snapfs/sandbox"
)

// upkeepSize is how much the home of BenchmarkUpkeep has, and the pause after each snapshot: $SNAPFS_UPKEEP. Without a
// pause layers are sealed faster than they are stored.
func upkeepSize(b *testing.B) (records, chunks int, pause time.Duration) {
	b.Helper()
	size := os.Getenv("SNAPFS_UPKEEP")
	if size == "" {
		size = "20000,100000,20"
	}
	ms := 20
	if n, err := fmt.Sscanf(size, "%d,%d,%d", &records, &chunks, &ms); n < 2 {
		b.Fatalf("SNAPFS_UPKEEP=%s: want RECORDS,CHUNKS[,MILLISECONDS]: %v", size, err)
	}
	return records, chunks, time.Duration(ms) * time.Millisecond
}

// Of the manifests that fillUpkeep makes.
const (
	upkeepChunks = 1000 // of each
	upkeepBucket = "benchmark"
)

// fillUpkeep fills the store of a home that is not open: with records of some 300 bytes, and with manifests of tiny
// chunks, of which it deletes every third.
func fillUpkeep(b *testing.B, home string, records, chunks int) {
	b.Helper()
	ctx := b.Context()
	s, err := chunkstore.Open(filepath.Join(home, "store"), chunkstore.Options{MustExist: true})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}()
	r := rand.New(rand.NewPCG(1, 1))
	for n := 0; n < records; n += 2000 {
		if err := putRecords(ctx, s, r, n, min(records, n+2000)); err != nil {
			b.Fatal(err)
		}
	}
	var data [24]byte
	for n := 0; n < chunks; n += upkeepChunks {
		in, err := s.NewIngest(ctx, chunkstore.IngestOptions{Kind: chunkstore.KindDocument})
		if err != nil {
			b.Fatal(err)
		}
		for range upkeepChunks {
			for w := range 3 {
				binary.LittleEndian.PutUint64(data[w*8:], r.Uint64())
			}
			if err := in.Hint(chunkstore.Hint{Path: "f", Size: int64(len(data))}); err != nil {
				b.Fatal(err)
			}
			if _, err := in.Write(data[:]); err != nil {
				b.Fatal(err)
			}
		}
		m, err := in.Commit(ctx, nil)
		if err == nil && n/upkeepChunks%3 == 0 {
			err = s.Update(ctx, true, func(tx *chunkstore.Tx) error { return tx.DeleteManifest(m.ID) })
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// putRecords writes records from one number up to another, in one transaction.
func putRecords(ctx context.Context, s *chunkstore.Store, r *rand.Rand, from, to int) error {
	value := make([]byte, 0, 300)
	return s.Update(ctx, true, func(tx *chunkstore.Tx) error {
		for n := from; n < to; n++ {
			value = fmt.Appendf(value[:0], `{"workspace":"w%d","kind":"snapshotted","session":"default"`, n%1000)
			for len(value) < 280 {
				value = fmt.Appendf(value, `,"%d":"%016x"`, len(value), r.Uint64())
			}
			if err := tx.Put(upkeepBucket, fmt.Sprintf("%012d", n), value); err != nil {
				return err
			}
		}
		return nil
	})
}

// BenchmarkUpkeep takes snapshots of a mounted workspace, of one changed file each, while the store of its home, which
// is large, does each kind of upkeep. It reports how long the snapshots took, and beside them transactions of one small
// record.
func BenchmarkUpkeep(b *testing.B) {
	records, chunks, pause := upkeepSize(b)
	h, dir := benchHome(b)
	if err := h.Close(); err != nil {
		b.Fatal(err)
	}
	home, at := filepath.Join(dir, "home"), filepath.Join(dir, "m")
	start := time.Now()
	fillUpkeep(b, home, records, chunks)
	b.Logf("filled with %d records and %d chunks in %v", records, chunks, time.Since(start).Round(time.Second))
	h, err := sandbox.Open(b.Context(), home, sandbox.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			b.Error(err)
		}
	}()
	if _, err := h.Create(b.Context(), sandbox.CreateRequest{Name: "w"}); err != nil {
		b.Fatal(err)
	}
	if _, err := h.Mount(b.Context(), sandbox.MountRequest{Workspace: "w", Mountpoint: at, MakeMountpoint: true}); err != nil {
		b.Fatal(err)
	}
	store := sandbox.StoreOf(h)
	r := rand.New(rand.NewPCG(2, 2))
	// All records, so that the journal doubles and memtables fill; some at a time, since a snapshot also waits for the
	// transaction that is being written.
	rewrite := func(ctx context.Context) error {
		const some = 50
		for n := 0; n < records; n += some {
			if err := putRecords(ctx, store, r, n, min(records, n+some)); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
		return nil
	}
	for _, kind := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"nothing", func(context.Context) error { time.Sleep(30 * time.Second); return nil }},
		{"journal and tables", func(ctx context.Context) error {
			for range 3 {
				if err := rewrite(ctx); err != nil {
					return err
				}
			}
			time.Sleep(5 * time.Second)
			return nil
		}},
		{"collection", func(ctx context.Context) error {
			_, err := h.GC(ctx, sandbox.GCRequest{})
			return err
		}},
		{"optimizing", func(ctx context.Context) error {
			_, err := h.GC(ctx, sandbox.GCRequest{Optimize: true})
			return err
		}},
	} {
		b.Run(kind.name, func(b *testing.B) {
			ended := make(chan struct{})
			var snapshots, transactions []time.Duration
			var failed error
			go func() {
				defer close(ended)
				failed = kind.run(b.Context())
			}()
			small := make(chan struct{})
			go func() {
				defer close(small)
				for n := 0; ; n++ {
					start := time.Now()
					if err := store.Update(b.Context(), true, func(tx *chunkstore.Tx) error {
						return tx.Put(upkeepBucket, "small", fmt.Append(nil, n))
					}); err != nil {
						b.Error(err)
						return
					}
					transactions = append(transactions, time.Since(start))
					select {
					case <-ended:
						return
					case <-time.After(2 * time.Millisecond):
					}
				}
			}()
			w := newWriter(b)
			defer w.end()
			for n, over := 0, false; !over; n++ {
				w.write(b, fmt.Sprintf("%s/f%d", at, n%100))
				start := time.Now()
				if _, err := h.Snapshot(b.Context(), sandbox.SnapshotRequest{Workspace: "w"}); err != nil {
					b.Fatal(err)
				}
				snapshots = append(snapshots, time.Since(start))
				select {
				case <-ended:
					over = true
				case <-time.After(pause):
				}
			}
			<-small
			if failed != nil {
				b.Fatal(failed)
			}
			for _, m := range []struct {
				name string
				took []time.Duration
			}{{"snapshot", snapshots}, {"tx", transactions}} {
				slices.Sort(m.took)
				at := func(p int) float64 { return float64(m.took[(len(m.took)-1)*p/1000].Microseconds()) / 1000 }
				b.Logf("%s: %s: %d: p50 %.2f p99 %.2f p99.9 %.2f max %.2f ms",
					kind.name, m.name, len(m.took), at(500), at(990), at(999), at(1000))
				b.ReportMetric(at(999), m.name+"-p99.9-ms")
				b.ReportMetric(at(1000), m.name+"-max-ms")
			}
		})
	}
}
