package frame

import (
	"bytes"
	"fmt"
	"math/rand"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/cdc"
	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/sample"
)

var levelNames = [levels]string{"quick", "better", "best"}

func TestCodecRoundTrip(t *testing.T) {
	c := NewCodec()
	base := sample.Prose(1, 300_000)
	big := sample.Noise(3, 5<<20)
	cases := map[string]struct{ src, dict []byte }{
		"empty":           {nil, nil},
		"byte":            {[]byte{7}, nil},
		"255":             {sample.Prose(2, 255), nil},
		"256":             {sample.Prose(2, 256), nil},
		"text":            {base, nil},
		"noise":           {sample.Noise(9, 300_000), nil},
		"zeros":           {make([]byte, MaxInput), nil},
		"empty with dict": {nil, base},
		"tiny dict":       {base, []byte("a")},
		"one block":       {sample.Edited(1, base, 2)[:1<<16-1], base},
		"two blocks":      {sample.Edited(1, base, 2)[:1<<16], base},
		"more blocks":     {sample.Edited(1, base, 2)[:200_000], base[100_000:]},
		"edit":            {sample.Edited(1, base, 3), base},
		"small edit":      {sample.Edited(1, base[:10_000], 1), base[:10_000]},
		"unlike":          {base, sample.Noise(4, 100_000)},
		"largest":         {sample.Edited(5, big[4<<20:], 4)[:MaxInput], big},
	}
	for name, tc := range cases {
		for l := range levels {
			frame := c.Encode([]byte("before"), tc.src, tc.dict, l)
			require.Equal(t, "before", string(frame[:6]))
			got, err := c.Decode([]byte("out"), frame[6:], tc.dict, len(tc.src))
			require.NoError(t, err, "%s, %s", name, levelNames[l])
			require.Equal(t, "out", string(got[:3]))
			require.True(t, bytes.Equal(tc.src, got[3:]), "%s, %s", name, levelNames[l])
			if len(tc.src) > 0 {
				_, err = c.Decode(nil, frame[6:], tc.dict, len(tc.src)-1)
				require.ErrorIs(t, err, corrupt.Err, "%s is longer than allowed", name)
			}
		}
	}
}

// TestCodecReference: with its magic number, a frame is one that a plain zstd decoder reads.
func TestCodecReference(t *testing.T) {
	c := NewCodec()
	dict := sample.Prose(1, 50_000)
	src := sample.Edited(2, dict, 4)
	d, err := zstd.NewReader(nil, zstd.WithDecoderDictRaw(0, dict))
	require.NoError(t, err)
	defer d.Close()
	got, err := d.DecodeAll(append([]byte(Magic), c.Encode(nil, src, dict, Better)...), nil)
	require.NoError(t, err)
	require.True(t, bytes.Equal(src, got))
}

// TestCodecDelta: what a dictionary is for, up to the documented reach.
func TestCodecDelta(t *testing.T) {
	c := NewCodec()
	ten := sample.Prose(1, 10_000)
	far := sample.Noise(2, Best.dictMax())
	chunk := cdc.MaxSize
	tests := []struct {
		name      string
		src, dict []byte
		l         Level
		max       int
	}{
		{"one line of 10 KB", sample.Edited(1, ten, 1), ten, Quick, 120},
		{"one line of 10 KB", sample.Edited(1, ten, 1), ten, Better, 120},
		{"one line of 10 KB", sample.Edited(1, ten, 1), ten, Best, 120},
		{"chunk at the start of the reach", far[len(far)-Quick.dictMax():][:chunk/4], far, Quick, chunk / 50},
		{"chunk at the start of the reach", far[len(far)-Better.dictMax():][:chunk], far, Better, chunk / 50},
		{"chunk at the start of the reach", far[:chunk], far, Best, chunk / 50},
	}
	for _, tc := range tests {
		// Input in the very memory of the dictionary would hide that part of it.
		got := len(c.Encode(nil, bytes.Clone(tc.src), tc.dict, tc.l))
		require.Less(t, got, tc.max, "%s, %s", tc.name, levelNames[tc.l])
	}
}

func TestCodecConcurrent(t *testing.T) {
	c := NewCodec()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 20 {
				seed := int64(g*100 + i)
				dict := sample.Prose(seed, 5000+i*1000)
				src := sample.Edited(seed, dict, 3)
				if i%3 == 0 {
					dict = nil
				}
				frame := c.Encode(nil, src, dict, Level(i%2))
				got, err := c.Decode(nil, frame, dict, len(src))
				if err != nil || !bytes.Equal(src, got) {
					t.Errorf("goroutine %d, frame %d: %v", g, i, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestCodecDamaged(t *testing.T) {
	const seed = 11
	r := rand.New(rand.NewSource(seed))
	c := NewCodec()
	dict := sample.Prose(1, 20_000)
	src := sample.Edited(2, dict, 10)
	frame := c.Encode(nil, src, dict, Better)
	for n := range len(frame) {
		_, err := c.Decode(nil, frame[:n], dict, len(src))
		require.ErrorIs(t, err, corrupt.Err, "cut at %d", n)
	}
	for _, extra := range [][]byte{
		{0}, frame, append([]byte(Magic), frame...), []byte("\x50\x2a\x4d\x18\x00\x00\x00\x00"),
	} {
		_, err := c.Decode(nil, append(bytes.Clone(frame), extra...), dict, 2*len(src))
		if err == nil {
			// A skippable frame behind adds nothing to the contents.
			require.Equal(t, 8, len(extra))
		}
	}
	for range 2000 {
		b := bytes.Clone(frame)
		b[r.Intn(len(b))] ^= byte(1 + r.Intn(255))
		got, err := c.Decode(nil, b, dict, len(src))
		if err != nil {
			require.ErrorIs(t, err, corrupt.Err)
		}
		require.LessOrEqual(t, len(got), len(src))
	}
}

func FuzzDecode(f *testing.F) {
	c := NewCodec()
	dict := sample.Prose(1, 2000)
	f.Add(c.Encode(nil, sample.Edited(1, dict, 2), dict, Better), true)
	f.Add(c.Encode(nil, make([]byte, 5000), nil, Quick), false)
	f.Fuzz(func(t *testing.T, frame []byte, withDict bool) {
		use := dict
		if !withDict {
			use = nil
		}
		got, err := c.Decode(nil, frame, use, 10_000)
		if err != nil {
			require.ErrorIs(t, err, corrupt.Err)
		}
		require.LessOrEqual(t, cap(got), 10_000)
	})
}

func BenchmarkEncode(b *testing.B) {
	c := NewCodec()
	for _, size := range []int{10 << 10, 64 << 10, 256 << 10} {
		dict := sample.Prose(1, size)
		src := sample.Edited(2, dict, 3)
		for l := range levels {
			for name, d := range map[string][]byte{"plain": nil, "delta": dict} {
				b.Run(fmt.Sprintf("%s/%s/%dKiB", name, levelNames[l], size>>10), func(b *testing.B) {
					var out []byte
					b.SetBytes(int64(len(src)))
					b.ReportAllocs()
					for b.Loop() {
						out = c.Encode(out[:0], src, d, l)
					}
					b.ReportMetric(float64(len(out)), "B/frame")
				})
			}
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	c := NewCodec()
	dict := sample.Prose(1, 64<<10)
	src := sample.Edited(2, dict, 3)
	for name, d := range map[string][]byte{"plain": nil, "delta": dict} {
		frame := c.Encode(nil, src, d, Better)
		out := make([]byte, 0, len(src))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Decode(out[:0], frame, d, len(src)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
