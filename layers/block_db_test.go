package layers

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
)

// pages fills p with what looks like pages of a database.
func pages(rnd *rand.Rand, p []byte) {
	for off := 0; off < len(p); off += 64 {
		row := fmt.Appendf(nil, "row %016x name-%d value-%d", rnd.Uint64(), rnd.IntN(1000), rnd.IntN(50))
		copy(p[off:], row)
	}
}

// TestBlockDatabase: of a database of which random pages change between snapshots only these are copied and stored.
func TestBlockDatabase(t *testing.T) {
	const touched = 40
	size := int64(16 << 20)
	if os.Getenv("SNAPFS_LONG") == "1" {
		size = 200 << 20
	}
	rnd := rand.New(rand.NewPCG(4, 4))
	dir := t.TempDir()
	data := make([]byte, size)
	pages(rnd, data)
	if err := os.WriteFile(filepath.Join(dir, "db"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	s := openStore(t)
	r := storeTree(t, s, dir)
	for round := range 5 {
		start := time.Now()
		for range touched {
			page := make([]byte, 4096)
			pages(rnd, page)
			off := rnd.Int64N(size/4096) * 4096
			binary.LittleEndian.PutUint64(page, uint64(off))
			copy(data[off:], page)
			if err := r.write("db", string(page), off); err != nil {
				t.Fatal(err)
			}
		}
		writes := time.Since(start) / touched
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(r.upper(), "db"), &st); err != nil {
			t.Fatal(err)
		}
		before, err := s.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m, took := r.freeze(s)
		after, err := s.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		payload := after.Payload - before.Payload
		t.Logf("round %d: %v a write, %d KiB in the upper, stored in %v: %d KiB new, %d KiB payload", round, writes, st.Blocks/2, took, m.New>>10, payload>>10)
		if st.Blocks*512 > touched<<blockShift+1<<16 {
			t.Errorf("%d KiB in the upper", st.Blocks/2)
		}
		if m.New > touched*(256<<10) || payload > touched*(16<<10)+64<<10 {
			t.Errorf("%d KiB new, %d KiB payload for %d pages", m.New>>10, payload>>10, touched)
		}
	}
	r.wantContents("db", data)
	if problems, err := s.Check(t.Context(), chunkstore.CheckOptions{ReadData: true}); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}
