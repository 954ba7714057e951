package chunkstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// part is one hinted part of a test stream.
type part struct {
	path string
	data []byte
	prev []Range
}

// openTest opens a store that is checked and closed with the test.
func openTest(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	t.Cleanup(func() {
		requireClean(t, s)
		require.NoError(t, s.Close())
	})
	return s
}

// requireClean checks a store, unless it is closed.
func requireClean(t *testing.T, s *Store) {
	t.Helper()
	problems, err := s.Check(context.Background(), CheckOptions{ReadData: true})
	if !errors.Is(err, ErrClosed) {
		require.NoError(t, err)
		require.Empty(t, problems)
	}
}

// put stores a stream of parts behind a header.
func put(t *testing.T, s *Store, header []byte, parts ...part) Manifest {
	t.Helper()
	m, err := tryPut(s, header, parts...)
	require.NoError(t, err)
	return m
}

func tryPut(s *Store, header []byte, parts ...part) (Manifest, error) {
	ctx := context.Background()
	in, err := s.NewIngest(ctx, IngestOptions{Kind: KindImage, HeaderSize: len(header)})
	if err != nil {
		return Manifest{}, err
	}
	defer in.Abort()
	for _, p := range parts {
		if err := in.Hint(Hint{Path: p.path, Size: int64(len(p.data)), Prev: p.prev}); err != nil {
			return Manifest{}, err
		}
		if _, err := in.Write(p.data); err != nil {
			return Manifest{}, err
		}
	}
	if err := in.Header(header); err != nil {
		return Manifest{}, err
	}
	return in.Commit(ctx, nil)
}

// readAll reads a manifest, both ways.
func readAll(t *testing.T, s *Store, id ID) []byte {
	t.Helper()
	r, err := s.OpenManifest(context.Background(), id)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	var b bytes.Buffer
	n, err := r.WriteTo(&b)
	require.NoError(t, err)
	require.Equal(t, r.Size(), n)
	again, err := io.ReadAll(io.NewSectionReader(r, 0, r.Size()))
	require.NoError(t, err)
	require.True(t, bytes.Equal(b.Bytes(), again), "WriteTo and ReadAt differ")
	return again
}

func text(r *rand.Rand, n int) []byte {
	words := make([]string, 500)
	for i := range words {
		words[i] = fmt.Sprintf("w%d", r.Uint32N(1e6))
	}
	var b bytes.Buffer
	for b.Len() < n {
		b.WriteString(words[r.IntN(len(words))])
		b.WriteByte(" \n"[r.IntN(2)])
	}
	return b.Bytes()[:n]
}

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func join(header []byte, parts ...part) []byte {
	all := bytes.Clone(header)
	for _, p := range parts {
		all = append(all, p.data...)
	}
	return all
}

func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	s := openTest(t, dir)
	header := noise(r, 96)
	first := []part{
		{path: "a.go", data: text(r, 10<<10)},
		{path: "b.bin", data: noise(r, 1<<20)},
		{path: "empty", data: nil},
		{path: "c.txt", data: text(r, 700<<10)},
		{path: "", data: text(r, 3000)},
	}
	m1 := put(t, s, header, first...)
	require.Equal(t, join(header, first...), readAll(t, s, m1.ID))

	// The same again adds no chunk.
	m2 := put(t, s, header, first...)
	require.Equal(t, m1.Digest, m2.Digest)
	require.Zero(t, m2.New)

	// A small edit becomes a small delta.
	edited := bytes.Clone(first[0].data)
	copy(edited[5000:], "one line edited")
	before, err := s.Stats(context.Background())
	require.NoError(t, err)
	m3 := put(t, s, header, part{"a.go", edited, []Range{{m1.ID, 96, 10 << 10}}})
	require.Equal(t, join(header, part{data: edited}), readAll(t, s, m3.ID))
	after, err := s.Stats(context.Background())
	require.NoError(t, err)
	require.Less(t, after.Payload-before.Payload, int64(150))

	require.NoError(t, s.Close())
	s = openTest(t, dir)
	require.Equal(t, join(header, first...), readAll(t, s, m1.ID))
	require.Equal(t, join(header, part{data: edited}), readAll(t, s, m3.ID))
	list, err := s.Manifests(context.Background())
	require.NoError(t, err)
	require.Equal(t, []Manifest{m1, m2, m3}, list)
}

func TestEmptyStream(t *testing.T) {
	s := openTest(t, t.TempDir())
	m := put(t, s, nil)
	require.Empty(t, readAll(t, s, m.ID))
}

func TestRecords(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s := openTest(t, dir)
	require.NoError(t, s.Update(ctx, true, func(tx *Tx) error {
		for _, k := range []string{"b", "a", "c", ""} {
			if err := tx.Put("names", k, []byte("v"+k)); err != nil {
				return err
			}
		}
		return tx.Put("name", "x", nil)
	}))
	failed := errors.New("no")
	require.ErrorIs(t, s.Update(ctx, true, func(tx *Tx) error {
		if err := tx.Put("names", "d", nil); err != nil {
			return err
		}
		return failed
	}), failed)
	require.NoError(t, s.Close())
	s = openTest(t, dir)
	require.NoError(t, s.View(ctx, func(tx *Tx) error {
		var got []string
		if err := tx.Scan("names", "a", func(k string, v []byte) (bool, error) {
			got = append(got, k+"="+string(v))
			return k != "b", nil
		}); err != nil {
			return err
		}
		require.Equal(t, []string{"a=va", "b=vb"}, got)
		_, err := tx.Get("names", "d")
		require.ErrorIs(t, err, ErrNotFound)
		require.ErrorIs(t, tx.Put("names", "d", nil), ErrReadOnly)
		return nil
	}))
}

// TestLocked holds that a store is open once, whatever becomes of its file LOCK. A copy is another store.
func TestLocked(t *testing.T) {
	dir := t.TempDir()
	openTest(t, dir)
	_, err := Open(dir, Options{})
	var le *LockedError
	require.ErrorAs(t, err, &le)
	require.Equal(t, os.Getpid(), le.PID)
	path := filepath.Join(dir, lockName)
	for what, change := range map[string]func() error{
		"removed":  func() error { return os.Remove(path) },
		"replaced": func() error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
		"emptied":  func() error { return os.Truncate(path, 0) },
	} {
		require.NoError(t, change(), what)
		for _, readOnly := range []bool{false, true} {
			_, err := Open(dir, Options{ReadOnly: readOnly})
			require.ErrorIs(t, err, ErrLocked, what)
		}
		_, err := RebuildIndex(t.Context(), dir, RebuildOptions{})
		require.ErrorIs(t, err, ErrLocked, what)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))
	openTest(t, copied)
}

// TestLockOfAnother holds that the lock passes on by its descriptors, as those of a process that was killed and cannot end,
// and that its release ends it for all copies. Descriptors of another store are no lock.
func TestLockOfAnother(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	l, err := lockStore(dir, nil)
	require.NoError(t, err)
	copies := func() (files []*os.File) {
		for _, f := range (&Store{lock: l}).LockFiles() {
			fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
			require.NoError(t, err)
			files = append(files, os.NewFile(uintptr(fd), f.Name()))
		}
		return files
	}
	had, kept, wrong := copies(), copies(), copies()
	no, err := lockStore(other, wrong)
	require.NoError(t, err)
	require.NoError(t, no.release())
	require.ErrorIs(t, wrong[0].Close(), os.ErrClosed)
	next, err := lockStore(dir, had)
	require.NoError(t, err)
	_, err = lockStore(dir, nil)
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, next.release())
	next, err = lockStore(dir, nil)
	require.NoError(t, err)
	require.NoError(t, next.release())
	for _, f := range append(kept, l.file, l.dir) {
		require.NoError(t, f.Close())
	}
}
