package chunkstore

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/sample"
	"snapfs/internal/zdeflate"
)

// looseObject makes a loose object of git out of a file's contents.
func looseObject(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	inner := append(fmt.Appendf(nil, "blob %d\x00", len(data)), data...)
	require.NoError(t, zdeflate.Zlib(&b, inner, zdeflate.Params{Level: 1, MemLevel: 8, WindowBits: 15}))
	return b.Bytes()
}

// TestLooseObjectsAreFiles checks that the contents of a git object and of a file are stored once, whichever comes
// first and however large they are, and that checks and rebuilds of the index keep the object.
func TestLooseObjectsAreFiles(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	var parts []part
	var want bytes.Buffer
	fresh := int64(0)
	add := func(path string, data []byte) {
		parts = append(parts, part{path: path, data: data})
		_, _ = want.Write(data) // cannot fail
	}
	for i, size := range []int{300, 5000, 100_000, 700_000} {
		first, second := sample.Prose(int64(10+i), size), sample.Prose(int64(20+i), size)
		add(fmt.Sprintf(".git/objects/%02d/aa", i), looseObject(t, first))
		add(fmt.Sprintf("a/file%d.c", i), first)
		add(fmt.Sprintf("b/file%d.c", i), second)
		add(fmt.Sprintf("c.git/objects/%02d/bb", i), looseObject(t, second))
		fresh += 2 * int64(size)
	}
	m := put(t, s, []byte("header"), parts...)
	require.Equal(t, fresh, m.New, "contents are stored once")
	require.Equal(t, int64(len("header")+want.Len()), m.Size)

	read := func(s *Store) {
		t.Helper()
		require.True(t, bytes.Equal(append([]byte("header"), want.Bytes()...), readAll(t, s, m.ID)))
		r, err := s.OpenManifest(t.Context(), m.ID)
		require.NoError(t, err)
		p := make([]byte, 1000)
		for off := int64(len("header")); off+1000 < m.Size; off += 3777 {
			_, err := r.ReadAt(p, off)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want.Bytes()[off-6:off+994], p), "at %d", off)
		}
		require.NoError(t, r.Close())
		problems, err := s.Check(t.Context(), CheckOptions{ReadData: true})
		require.NoError(t, err)
		require.Empty(t, problems)
	}
	read(s)
	_, err := s.Optimize(t.Context(), nil)
	require.NoError(t, err)
	read(s)
	require.NoError(t, s.Close())
	_, err = RebuildIndex(t.Context(), dir, RebuildOptions{})
	require.NoError(t, err)
	read(openTest(t, dir))
}

// TestAdoptedOrder checks that a chunk that is first met in a git object is compressed beside those of the file's
// neighbours.
func TestAdoptedOrder(t *testing.T) {
	s := openTest(t, t.TempDir())
	const files = 40
	var objects, tree []part
	for i := range files {
		data := sample.Prose(int64(i), 20_000)
		objects = append(objects, part{path: fmt.Sprintf(".git/objects/00/%02d", i*17%files), data: looseObject(t, data)})
		tree = append(tree, part{path: fmt.Sprintf("src/%02d.go", i), data: data})
	}
	m := put(t, s, nil, append(objects, tree...)...)
	list, err := s.manifest(m.ID)
	require.NoError(t, err)
	require.Len(t, list.transforms, files)
	last := -1
	records := 0
	for i := range files {
		at := list.stored - int64(20_000*(files-i))
		sg, err := s.segment(list, list.segmentAt(at))
		require.NoError(t, err)
		rec, _, err := s.locate(sg.nums[sg.chunkAt(at)])
		require.NoError(t, err)
		if int(rec.Off) != last {
			records++
		}
		last = int(rec.Off)
	}
	require.LessOrEqual(t, records, files*20_000/blockSize+2, "files of a directory lie in the same blocks")
}

// TestPackedObjectsAreFiles checks that the files of a work tree take no space in a pack of git.
func TestPackedObjectsAreFiles(t *testing.T) {
	s := openTest(t, t.TempDir())
	pack := []byte("PACK\x00\x00\x00\x02\x00\x00\x00\x32")
	var parts []part
	size := int64(0)
	for i := range 50 {
		data := sample.Prose(int64(i), 3000+i*100)
		size += int64(len(data))
		var b bytes.Buffer
		require.NoError(t, zdeflate.Zlib(&b, data, zdeflate.Params{Level: 6, MemLevel: 8, WindowBits: 15}))
		pack = append(pack, 3<<4|0x80|byte(len(data)&15), 0x80|byte(len(data)>>4&0x7f), byte(len(data)>>11))
		pack = append(pack, b.Bytes()...)
		parts = append(parts, part{path: fmt.Sprintf("src/%d.c", i), data: data})
	}
	pack = append(pack, sample.Noise(1, 20)...)
	m := put(t, s, nil, append([]part{{path: ".git/objects/pack/pack-1.pack", data: pack}}, parts...)...)
	require.Less(t, m.New, size+50*20, "all but the headers of objects is stored once")
	all := readAll(t, s, m.ID)
	require.True(t, bytes.Equal(pack, all[:len(pack)]))
}

// TestCancelledWhileInflating checks that an ingest ends between two streams of a file.
func TestCancelledWhileInflating(t *testing.T) {
	s := openTest(t, t.TempDir())
	for _, file := range [][]byte{looseObject(t, sample.Prose(1, 5000)), looseObject(t, sample.Prose(1, 5000))[:1000]} {
		ctx, cancel := context.WithCancel(t.Context())
		in, err := s.NewIngest(ctx, IngestOptions{Kind: KindImage})
		require.NoError(t, err)
		require.NoError(t, in.Hint(Hint{Path: "a", Size: int64(len(file))}))
		_, err = in.Write(file) // is held back as a whole
		require.NoError(t, err)
		cancel()
		require.ErrorIs(t, in.endPart(), context.Canceled)
		in.Abort()
	}
}

// TestCancelledWhileWaiting checks that an ingest that waits for its turn to inflate much ends with its context.
func TestCancelledWhileWaiting(t *testing.T) {
	s := openTest(t, t.TempDir())
	s.inflating <- struct{}{} // another ingest's
	defer func() { <-s.inflating }()
	file := looseObject(t, sample.Noise(1, 1<<20))
	ctx, cancel := context.WithCancel(t.Context())
	in, err := s.NewIngest(ctx, IngestOptions{Kind: KindImage})
	require.NoError(t, err)
	defer in.Abort()
	require.NoError(t, in.Hint(Hint{Path: "a", Size: int64(len(file))}))
	_, err = in.Write(file)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- in.endPart() }()
	cancel()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(time.Minute):
		require.Fail(t, "it waits for its turn")
	}
}

// TestShortBesideLong checks that a short run does not wait for long ones that take long.
func TestShortBesideLong(t *testing.T) {
	s := openTest(t, t.TempDir())
	data := looseObject(t, sample.Prose(1, 50_000))
	m := put(t, s, nil, part{path: "a", data: data})
	for range cap(s.transforms.long) {
		s.transforms.long <- struct{}{}
		defer func() { <-s.transforms.long }()
	}
	read := make(chan []byte, 1)
	go func() { read <- readAll(t, s, m.ID) }()
	select {
	case got := <-read:
		require.True(t, bytes.Equal(data, got))
	case <-time.After(time.Minute):
		require.Fail(t, "it waits for long runs")
	}
}
