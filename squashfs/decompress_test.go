package squashfs

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// TestZstdTwins checks that both zstd decoders return the same bytes, and refuse what is too long or damaged.
func TestZstdTwins(t *testing.T) {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	rng := rand.New(rand.NewPCG(3, 5))
	for _, size := range []int{1, 100, 8192, 131072, 1 << 20} {
		want := make([]byte, size)
		for i := range want {
			want[i] = byte(rng.IntN(7))
		}
		packed := enc.EncodeAll(want, nil)
		for name, unpack := range map[string]decompressor{"built": unpackZstd, "go": unpackZstdGo} {
			got := make([]byte, size)
			if n, err := unpack(got, packed); err != nil || n != size || !bytes.Equal(got, want) {
				t.Errorf("%s: %d of %d bytes, %v", name, n, size, err)
			}
			if _, err := unpack(got[:size-1], packed); err == nil {
				t.Errorf("%s: %d bytes fit into %d", name, size, size-1)
			}
			if _, err := unpack(got, packed[:len(packed)-1]); err == nil {
				t.Errorf("%s: a frame cut off was unpacked", name)
			}
		}
	}
}

// TestReadAllocatesNothing checks that a read from the cache allocates no memory.
func TestReadAllocatesNothing(t *testing.T) {
	m := soundModel()
	m.asBlock(bomb(minBlockSize))
	img := m.build()
	im, err := Open(bytes.NewReader(img), int64(len(img)), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{mFile, mTail} {
		n, err := im.Inode(m.refs[i])
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 10)
		read := func() {
			if _, err := n.ReadAt(p, 7); err != nil {
				t.Fatal(err)
			}
		}
		read()
		if got := testing.AllocsPerRun(100, read); got != 0 {
			t.Errorf("inode %d: %v allocations for a read", i, got)
		}
	}
}
