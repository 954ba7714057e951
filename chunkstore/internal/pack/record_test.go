package pack

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/sample"
)

var digest = []byte{1, 2, 3, 4}

// TestRecords encodes and parses records of all forms.
func TestRecords(t *testing.T) {
	one, many := []Member{{700, 3000}}, []Member{{9, 30}, {700, 0}, {1 << 40, 20}}
	for _, want := range []Record{
		{Kind: Delta, Members: one, Gen: 3, Bases: []uint64{12, 690}, Frame: []byte("f")},
		{Kind: Delta, Members: one, Gen: 3, Bases: []uint64{12, 690}, Digest: digest, Frame: []byte("f")},
		{Kind: Delta, Members: one, Gen: maxGen, Bases: []uint64{800}, Digest: digest, Frame: []byte("f")},
		{Kind: Delta, Members: one, Gen: maxGen, Bases: []uint64{800}, Frame: []byte("f")},
		{Kind: Block, Members: many, Frame: []byte("frame")},
		{Kind: Block, Members: many, Digest: digest, Frame: []byte("frame")},
		{Kind: Block, Members: many, Bases: []uint64{701}, Digest: digest, Frame: []byte("frame")},
		{Kind: Stored, Members: many, Frame: make([]byte, 50)},
		{Kind: Stored, Members: many, Digest: digest, Frame: make([]byte, 50)},
		{Kind: Journal, Members: []Member{}, Frame: []byte("entry")},
	} {
		b := AppendRecord(nil, &want)
		got, err := ParseRecord(b)
		require.NoError(t, err)
		require.EqualValues(t, len(b), got.Size)
		got.Size, got.whole = 0, nil
		require.Equal(t, want, *got)
	}
	for _, bad := range []Record{
		{Kind: Journal, Digest: digest},
		{Kind: Delta, Members: one, Gen: maxGen + 1, Bases: []uint64{1}},
		{Kind: Delta, Members: one, Gen: maxGen + 1, Bases: []uint64{1}, Digest: digest},
		{Kind: Delta, Members: one, Gen: 1, Digest: digest},
		{Kind: Block, Members: many, Bases: []uint64{1}},
		{Kind: prefixed, Members: one, Digest: digest},
		{Kind: prefixed + 1, Members: one, Digest: digest},
		{Kind: Stored, Members: one, Digest: digest},
	} {
		_, err := ParseRecord(AppendRecord(nil, &bad))
		require.ErrorIs(t, err, corrupt.Err)
	}
}

// TestBadRecords feeds damaged records to their parser.
func TestBadRecords(t *testing.T) {
	r := rand.New(rand.NewPCG(18, 19))
	for _, rec := range []*Record{
		{Kind: Delta, Members: []Member{{700, 3000}}, Gen: 3, Bases: []uint64{12, 690}},
		{Kind: Delta, Members: []Member{{700, 3000}}, Gen: 3, Bases: []uint64{12, 690}, Digest: digest},
		{Kind: Delta, Members: []Member{{700, 3000}}, Gen: 3, Bases: []uint64{690}, Digest: digest},
		{Kind: Block, Members: []Member{{7, 30}, {9, 40}}, Digest: digest},
		{Kind: Block, Members: []Member{{7, 30}, {9, 40}}, Bases: []uint64{1 << 30}, Digest: digest},
	} {
		rec.Frame = sample.Noise(18, 50)
		good := AppendRecord(nil, rec)
		_, err := ParseRecord(good)
		require.NoError(t, err)
		for range 10_000 {
			bad := bytes.Clone(good)
			bad[r.IntN(len(bad))] ^= byte(1 + r.IntN(255))
			_, err := ParseRecord(bad)
			require.ErrorIs(t, err, corrupt.Err)
			// With the checksum made right, what is parsed is at least in bounds.
			binary.LittleEndian.PutUint32(bad, crc32.Checksum(bad[4:], crcTable))
			if r, err := ParseRecord(bad); err == nil {
				require.LessOrEqual(t, r.RawSize(), MaxRaw)
				require.LessOrEqual(t, len(r.Bases), MaxBases)
			}
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(AppendRecord(nil, &Record{Kind: Block, Members: []Member{{1, 2}, {9, 1}}, Frame: []byte("abc")}))
	f.Add(AppendRecord(nil, &Record{Kind: Delta, Members: []Member{{9, 1}}, Gen: 2, Bases: []uint64{8}, Digest: digest}))
	f.Add(AppendRecord(nil, &Record{
		Kind: Block, Members: []Member{{1, 2}, {9, 1}}, Bases: []uint64{8}, Digest: digest, Frame: []byte("abc"),
	}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseRecord(b)
		if err != nil {
			return
		}
		if r.RawSize() > MaxRaw {
			t.Errorf("%d bytes", r.RawSize())
		}
		if len(r.Bases) > MaxBases || r.Kind == Block && len(r.Bases) > 1 {
			t.Errorf("%d bases", len(r.Bases))
		}
	})
}
