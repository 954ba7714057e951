package transform

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/sample"
	"snapfs/internal/goflate"
	"snapfs/internal/zdeflate"
)

// TestOverlappingEntries looks into a zip file whose entries claim to be five bytes long. Each is the start of a stored
// block that has the next one, so that all of them go on to the same end, which is too large.
func TestOverlappingEntries(t *testing.T) {
	const entries, fixed, block = 1000, 30, 5
	head := make([]byte, fixed)
	copy(head, zipMagic)
	head[8] = 8
	binary.LittleEndian.PutUint32(head[18:], block)
	binary.LittleEndian.PutUint32(head[22:], 100<<10)
	var file bytes.Buffer
	for range entries {
		file.Write(head)
		file.Write([]byte{0, fixed, 0, 0xff - fixed, 0xff})
	}
	file.Write(head)
	end := zdeflate.Params{Level: 6, MemLevel: 8, WindowBits: 15}
	require.NoError(t, zdeflate.Deflate(&file, make([]byte, 1<<20), end))
	file.Write(sample.Noise(1, 10_000))
	require.Empty(t, splitRuns(t, file.Bytes(), whole))

	f := &zipFormat{}
	inflated := 0
	for b := file.Bytes(); ; inflated++ {
		p, v := f.next(b, true, &guesser{})
		if v != found {
			break
		}
		require.Equal(t, int64(fixed+block), p.skip)
		b = b[p.skip:]
	}
	require.Less(t, inflated, maxMisses, "what many entries share is not inflated for each")
}

// TestSlowGo checks that what takes Go's encoder long is left as it is: each reader would have the work again.
func TestSlowGo(t *testing.T) {
	slow := sample.Noise(1, 60_000)
	for i := range slow {
		if i%6 < 4 {
			slow[i] = 'a' // every sixth position starts a chain of thousands of matches that are too short
		}
	}
	// With what is ordinary it is not too slow as a whole, but the part is.
	partly := append(sample.Prose(1, 800_000), slow...)
	for data, runs := range map[string]int{string(slow): 0, string(partly): 0, string(sample.Prose(1, 200_000)): 1} {
		const best, unknown = 2, 255
		file := bytes.NewBuffer([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, best, unknown})
		require.NoError(t, goflate.DeflateWithin(file, []byte(data), 9, anyWork))
		foot := binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(data)))
		file.Write(binary.LittleEndian.AppendUint32(foot, uint32(len(data))))
		require.Equal(t, runs, len(splitRuns(t, file.Bytes(), whole)))
	}
}

// TestContentsOfFile checks that what lies behind very long contents is left as it is, in each file anew.
func TestContentsOfFile(t *testing.T) {
	file := goZip(t, [][]byte{sample.Prose(1, 5000), sample.Prose(2, 5000), sample.Prose(3, 5000)})
	streams := 0
	r := NewSplitter(context.Background(), make(chan struct{}, 1), packedSize, func([]byte) error { return nil },
		func(_ Run, parts [][]byte) error {
			streams += len(parts) - 1
			return nil
		})
	for _, before := range []int64{0, maxContents - 10_000, maxContents, 0} {
		streams = 0
		r.Begin(int64(len(file)))
		_, err := r.Write(file[:minFile])
		require.NoError(t, err)
		r.guess.contents = before
		_, err = r.Write(file[minFile:])
		require.NoError(t, err)
		require.NoError(t, r.Flush())
		require.Equal(t, min(3, int(maxContents-before)/5001), streams, "%d", before)
	}
}

// TestSlowLong checks that a long stream that takes much work is left as it is, unless it is divided into pieces.
func TestSlowLong(t *testing.T) {
	for _, size := range []int{1 << 20, 4 << 20} {
		slow := sample.Noise(1, size)
		for i := range slow {
			slow[i] &= 3
		}
		e := zlibWith(6, 8)
		e.wrap = zlibFrame
		var stream bytes.Buffer
		require.NoError(t, e.deflate(&stream, slow, anyWork))
		pieces, ok := e.makes(stream.Bytes(), slow)
		require.True(t, !ok || pieces.Count() > 1, "%d bytes", size)
	}
}
