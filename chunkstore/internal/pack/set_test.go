package pack

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/sample"
)

func openSet(t *testing.T, dir string, ends map[uint32]int64, readOnly bool) *Set {
	t.Helper()
	s, err := Open(dir, ends, readOnly, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// stored is a record of one chunk as it is.
func stored(num uint64, n int) []byte {
	data := sample.Noise(int64(num), n)
	return AppendRecord(nil, &Record{Kind: Stored, Members: []Member{{num, n}}, Frame: data})
}

// TestDrop: what a writer gives up is cut off when no other writer holds the pack, but for what the index names.
func TestDrop(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	dir := t.TempDir()
	s := openSet(t, dir, nil, false)
	var one, two Holds
	a, err := s.Append(stored(1, 1000), &one)
	require.NoError(t, err)
	require.Equal(t, Location{Pack: 1, Off: HeaderSize, Len: a.Len}, a)
	b, err := s.Append(stored(2, 2000), &two)
	require.NoError(t, err)
	require.Equal(t, a.End(), b.Off)
	require.NoError(t, s.Sync())
	_, ok := s.Retire(1)
	require.False(t, ok, "it is held")
	s.Named(1, a.End())
	require.False(t, s.Drop(&one, log), "the other writer still holds it")
	require.True(t, s.Reaches(b))
	require.True(t, s.Drop(&two, log))
	require.False(t, s.Reaches(b))
	require.Equal(t, map[uint32]int64{1: a.End()}, s.Sizes())
	r, err := s.Read(a)
	require.NoError(t, err)
	require.Equal(t, []Member{{1, 1000}}, r.Members)

	// A pack of which the index names nothing goes as a whole, and its number does not come again.
	size, ok := s.Retire(1)
	require.True(t, ok)
	require.Equal(t, a.End(), size)
	c, err := s.Append(stored(3, 10), &one)
	require.NoError(t, err)
	require.Equal(t, uint32(2), c.Pack)
	require.True(t, s.Drop(&one, log))
	require.NoFileExists(t, filepath.Join(dir, Name(2)))
	d, err := s.Append(stored(4, 10), &one)
	require.NoError(t, err)
	require.Equal(t, uint32(3), d.Pack)
	// Where it is not known what the index names, nothing goes.
	s.Freeze()
	s.Drop(&one, log)
	require.True(t, s.Reaches(d))
}

// TestOpenCuts: what the index does not name is cut off when a set is opened, unless that is for reading only.
func TestOpenCuts(t *testing.T) {
	dir := t.TempDir()
	s := openSet(t, dir, nil, false)
	var by Holds
	a, err := s.Append(stored(1, 1000), &by)
	require.NoError(t, err)
	b, err := s.Append(stored(2, 1000), &by)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, Name(9)), []byte("not named"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "other"), nil, 0o600))

	ends := map[uint32]int64{1: a.End()}
	require.True(t, openSet(t, dir, ends, true).Reaches(b))
	require.FileExists(t, filepath.Join(dir, Name(9)))
	s = openSet(t, dir, ends, false)
	require.False(t, s.Reaches(b))
	require.True(t, s.Reaches(a))
	require.NoFileExists(t, filepath.Join(dir, Name(9)))
	require.FileExists(t, filepath.Join(dir, "other"))
	c, err := s.Append(stored(3, 10), &by)
	require.NoError(t, err)
	require.Equal(t, a.End(), c.Off, "the pack goes on where the index ends")
	_, err = s.Read(Location{Pack: 7, Off: HeaderSize, Len: 10})
	require.ErrorIs(t, err, corrupt.Err)
}

// TestReadStored compares reading chunks to where they are wanted with reading the record.
func TestReadStored(t *testing.T) {
	s := openSet(t, t.TempDir(), nil, false)
	var by Holds
	data := sample.Noise(1, 3000)
	r := &Record{Kind: Stored, Members: []Member{{5, 1000}, {9, 2000}}, Frame: data}
	at, err := s.Append(AppendRecord(nil, r), &by)
	require.NoError(t, err)
	head := at.Len - int64(len(data))
	require.True(t, at.MaybeStored(head, 2))
	require.False(t, at.MaybeStored(0, 2))
	read := func(at Location, from, to int64) ([]byte, []Member, bool) {
		parts := [][]byte{make([]byte, head+from), make([]byte, to-from), make([]byte, int64(len(data))-to)}
		members, ok := s.ReadStored(at, head, parts)
		return parts[1], members, ok
	}
	for _, part := range [][2]int64{{0, 3000}, {0, 1000}, {1000, 3000}, {7, 2999}, {5, 5}} {
		got, members, ok := read(at, part[0], part[1])
		require.True(t, ok)
		require.Equal(t, r.Members, members)
		require.Equal(t, data[part[0]:part[1]], got)
	}
	// Another kind of record, and one that is damaged.
	r.Kind = Block
	other, err := s.Append(AppendRecord(nil, r), &by)
	require.NoError(t, err)
	_, _, ok := read(other, 0, 3000)
	require.False(t, ok)
	f, err := os.OpenFile(filepath.Join(s.dir, Name(1)), os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{data[len(data)-1] ^ 1}, at.End()-1)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	_, _, ok = read(at, 0, 10)
	require.False(t, ok)
}

// TestReadDuringWrites: what is stored can be read, and the set asked, while the host takes a write and does not
// answer.
func TestReadDuringWrites(t *testing.T) {
	var before func(point string)
	s, err := Open(t.TempDir(), nil, false, func(point string) {
		if before != nil {
			before(point)
		}
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	var by Holds
	a, err := s.Append(stored(1, 1000), &by)
	require.NoError(t, err)
	s.Named(1, a.End())
	for _, c := range []struct {
		point string
		write func()
	}{
		{"record appended", func() { _, _ = s.Append(stored(2, 1000), &by) }},
		{"pack synced", func() { _ = s.Sync() }},
		{"pack cut", func() { s.Drop(&by, slog.New(slog.DiscardHandler)) }},
		{"pack begun", func() { s.Retire(1); _, _ = s.Append(stored(3, 1000), &by) }},
		{"pack removed", func() { _ = s.Remove(2) }},
	} {
		reached, goOn, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
		before = func(point string) {
			if point == c.point {
				before = nil
				close(reached)
				<-goOn
			}
		}
		go func() { defer close(done); c.write() }()
		<-reached
		r, err := s.Read(a)
		require.NoError(t, err, c.point)
		require.Equal(t, []Member{{1, 1000}}, r.Members)
		require.Contains(t, s.Sizes(), uint32(1))
		close(goOn)
		<-done
	}
}

// TestOpenLast: what is appended comes behind all that there is, also if the last pack is full or lost.
func TestOpenLast(t *testing.T) {
	for _, size := range []int64{maxSize, 100} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, Name(1)), Header(magic, 1), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, Name(2)), Header(magic, 2), 0o600))
		require.NoError(t, os.Truncate(filepath.Join(dir, Name(2)), size))
		s := openSet(t, dir, map[uint32]int64{1: HeaderSize, 2: maxSize}, false)
		var by Holds
		at, err := s.Append(stored(1, 10), &by)
		require.NoError(t, err)
		require.Equal(t, uint32(3), at.Pack)
	}
}
