package squashfs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
)

func TestValueRangeWidth(t *testing.T) {
	for _, c := range []struct {
		values []int64
		want   uint8
	}{
		{[]int64{7, 7}, 0},
		{[]int64{0, 127}, 1},
		{[]int64{0, 128}, 2},
		{[]int64{-128, 0}, 1},
		{[]int64{-129, 0}, 2},
		{[]int64{0, 999_999_999}, 4},
		{[]int64{0, math.MaxInt32 + 1}, 5},
		{[]int64{math.MinInt64, math.MaxInt64}, 8},
	} {
		var r valueRange
		for _, v := range c.values {
			r.add(v)
		}
		if got := r.width(); got != c.want {
			t.Errorf("%v need %d bytes, want %d", c.values, got, c.want)
		}
	}
}

// memory is an image of nothing but an extension section at base.
type memory struct{ b bytes.Buffer }

func (m *memory) Write(p []byte) (int, error) { return m.b.Write(p) }
func (m *memory) cut(string, uint64) error    { return nil }
func (m *memory) header([]byte) error         { return nil }
func randomTime(rng *rand.Rand, wide bool) Time {
	if wide {
		return Time{int64(rng.Uint64()), uint32(rng.IntN(1e9))}
	}
	return Time{1700000000 + rng.Int64N(1e6), uint32(rng.IntN(1e9))}
}

// makeExtension writes a section of n random inodes and returns it with the expected values.
func makeExtension(t testing.TB, rng *rand.Rand, n int, compressed, wide bool) ([]byte, *superblock, []spooledInode) {
	t.Helper()
	w := newWriter(nil, "", nil)
	t.Cleanup(w.spools.close)
	var records []spooledInode
	for i := range n {
		r := spooledInode{attr: Attr{Ino: uint64(i) * 3}}
		if wide {
			r.attr.Ino = rng.Uint64()
		}
		r.attr.Mtime, r.attr.Ctime, r.attr.Btime = randomTime(rng, wide), randomTime(rng, wide), randomTime(rng, wide)
		if rng.IntN(5) == 0 {
			e := extra{hasExtents: true, extents: []Extent{{rng.Int64N(1 << 40), 1 + rng.Int64N(1<<30)}}}
			if rng.IntN(2) == 0 {
				e.xattrs = []Xattr{{"system.posix_acl_access", bytes.Repeat([]byte{byte(i)}, rng.IntN(3000))}}
			}
			r.extra = appendExtra(nil, &e)
			w.extras++
			w.extraBytes += uint64(len(r.extra))
		}
		w.inodes++
		for c, v := range extValues(&r.attr) {
			w.ranges[c].add(v)
		}
		records = append(records, r)
	}
	x := newExtWriter(w, compressed)
	for i := range records {
		if err := x.add(uint32(i+1), &records[i]); err != nil {
			t.Fatal(err)
		}
	}
	sb := &superblock{inodes: uint32(n), bytesUsed: padding}
	m := &memory{}
	m.b.Write(make([]byte, padding))
	if _, err := (&tables{ext: x}).writeExtension(m, padding); err != nil {
		t.Fatal(err)
	}
	return m.b.Bytes(), sb, records
}

func open(t testing.TB, b []byte, sb *superblock) *extension {
	t.Helper()
	x, err := openExtension(bytes.NewReader(b), int64(len(b)), sb)
	if err != nil || x == nil {
		t.Fatalf("got %v, %v", x, err)
	}
	return x
}

func TestExtensionRoundTrip(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		b, sb, records := makeExtension(t, rng, 1+rng.IntN(6000), seed%2 == 1, seed%4 >= 2)
		x := open(t, b, sb)
		for i, r := range records {
			got := Attr{Mtime: Time{Sec: int64(clampTime(r.attr.Mtime))}}
			if err := x.attr(uint32(i+1), &got); err != nil || got != r.attr {
				t.Fatalf("seed %d, inode %d: got %+v, %v, want %+v", seed, i+1, got, err, r.attr)
			}
			var want extra
			if len(r.extra) > 0 {
				if err := want.decode(r.extra); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := x.extra(uint32(i + 1)); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, inode %d: got %+v, %v, want %+v", seed, i+1, got, err, want)
			}
		}
		if err := x.verify(context.Background(), func(v Violation) { t.Errorf("seed %d: %+v", seed, v) }); err != nil {
			t.Fatal(err)
		}
	}
}

// TestExtensionSize holds the section to what docs/FORMAT.md says of it.
func TestExtensionSize(t *testing.T) {
	b, _, _ := makeExtension(t, rand.New(rand.NewPCG(1, 1)), 5000, false, false)
	if per := (len(b) - padding) / 5000; per > 400 { // a fifth of the inodes has up to 3,000 bytes of attributes
		t.Errorf("%d bytes for an inode", per)
	}
}

// TestExtensionDamage flips every byte in turn: each is noticed, none makes anything but an error of the one class.
func TestExtensionDamage(t *testing.T) {
	good, sb, records := makeExtension(t, rand.New(rand.NewPCG(2, 1)), 20, false, false)
	var h extHeader
	head := good[padding:][:extHeaderSize+extColumns*extColumnSize]
	if err := h.decode(head, uint64(len(good)-padding)); err != nil {
		t.Fatal(err)
	}
	for at := padding; at < padding+int(h.length); at++ {
		b := bytes.Clone(good)
		b[at] ^= 0x40
		x, err := openExtension(bytes.NewReader(b), int64(len(b)), sb)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, errExtVersion) {
				t.Fatalf("byte %d: %v", at, err)
			}
			continue
		}
		found := false
		if err := x.verify(context.Background(), func(Violation) { found = true }); err != nil || !found {
			t.Fatalf("byte %d: not noticed, %v", at, err)
		}
		for i, r := range records {
			got := Attr{Mtime: Time{Sec: int64(clampTime(r.attr.Mtime))}}
			if err := x.attr(uint32(i+1), &got); err == nil && got != r.attr {
				t.Fatalf("byte %d, inode %d: false attributes", at, i+1)
			}
			if _, err := x.extra(uint32(i + 1)); err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatalf("byte %d, inode %d: %v", at, i+1, err)
			}
		}
	}
}

func TestExtensionRefused(t *testing.T) {
	good, sb, _ := makeExtension(t, rand.New(rand.NewPCG(3, 1)), 60, false, false)
	resum := func(b []byte) []byte {
		head := b[padding:][:extHeaderSize+extColumns*extColumnSize]
		clear(head[36:40])
		binary.LittleEndian.PutUint32(head[36:], crc32.Checksum(head, castagnoli))
		return b
	}
	for name, c := range map[string]struct {
		spoil func(b []byte) []byte
		want  error // nil: no section and no error
	}{
		"absent":        {func(b []byte) []byte { return b[:padding] }, nil},
		"zeros":         {func(b []byte) []byte { return append(b[:padding:padding], make([]byte, padding)...) }, nil},
		"version":       {func(b []byte) []byte { b[padding+8]++; return resum(b) }, errExtVersion},
		"checksum":      {func(b []byte) []byte { b[padding+36]++; return b }, ErrCorrupt},
		"cut":           {func(b []byte) []byte { return b[:padding+300] }, ErrCorrupt},
		"other image":   {func(b []byte) []byte { b[padding+24]++; return resum(b) }, ErrCorrupt},
		"other inodes":  {func(b []byte) []byte { b[padding+32]++; return resum(b) }, ErrCorrupt},
		"many columns":  {func(b []byte) []byte { b[padding+13]++; return resum(b) }, ErrCorrupt},
		"wide column":   {func(b []byte) []byte { b[padding+extHeaderSize+2] = 9; return resum(b) }, ErrCorrupt},
		"pages outside": {func(b []byte) []byte { b[padding+extHeaderSize+29] = 1; return resum(b) }, ErrCorrupt},
	} {
		b := c.spoil(bytes.Clone(good))
		x, err := openExtension(bytes.NewReader(b), int64(len(b)), sb)
		if x != nil || !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
			t.Errorf("%s: got %v, %v, want %v", name, x, err, c.want)
		}
	}
}

// BenchmarkExtensionAttr is what the section adds to a stat.
func BenchmarkExtensionAttr(b *testing.B) {
	image, sb, records := makeExtension(b, rand.New(rand.NewPCG(4, 1)), 20000, false, false)
	x := open(b, image, sb)
	var a Attr
	for i := 0; b.Loop(); i++ {
		if err := x.attr(uint32(i%len(records)+1), &a); err != nil {
			b.Fatal(err)
		}
	}
}
