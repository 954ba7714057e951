package chunkstore

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/cdc"
)

// TestCorpusIngest reports how fast the directory in $SNAPFS_TREE is stored with the quick policy, in bytes per second
// of processor time (user and system, of all threads): cutting and hashing alone, new contents, new contents read from
// files, and contents that the store has.
func TestCorpusIngest(t *testing.T) {
	tree := os.Getenv("SNAPFS_TREE")
	if tree == "" {
		t.Skip("SNAPFS_TREE is not set")
	}
	var parts []part
	total := 0
	require.NoError(t, filepath.WalkDir(tree, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(tree, path)
		parts = append(parts, part{rel, b, nil})
		total += len(b)
		return err
	}))
	t.Logf("%d files, %.1f MB", len(parts), float64(total)/1e6)
	measure := func(what string, fn func()) {
		start, cpu := time.Now(), cpuTime(t)
		fn()
		used := cpuTime(t) - cpu
		t.Logf("%-22s %7.1f MB/s of cpu, cpu %v, wall %v", what, float64(total)/1e6/used.Seconds(),
			used.Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
	}
	measure("cut and hash", func() {
		var last hash
		c := cdc.New(func(b []byte) error { last = hashOf(b); return nil })
		for _, p := range parts {
			require.NoError(t, c.Begin(int64(len(p.data))))
			_, err := c.Write(p.data)
			require.NoError(t, err)
		}
		require.NoError(t, c.Flush())
		require.NotZero(t, last)
	})
	s, err := Open(filepath.Join(t.TempDir(), "a"), Options{})
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	var m Manifest
	measure("new, from memory", func() {
		m, err = tryPut(s, nil, parts...)
		require.NoError(t, err)
	})
	st, err := s.Stats(t.Context())
	require.NoError(t, err)
	t.Logf("payload %d", st.Payload)
	measure("known, moved", func() {
		_, err = tryPut(s, nil, parts...)
		require.NoError(t, err)
	})
	off := int64(0)
	for i, p := range parts {
		parts[i].prev = []Range{{m.ID, off, int64(len(p.data))}}
		off += int64(len(p.data))
	}
	measure("known, same paths", func() {
		_, err = tryPut(s, nil, parts...)
		require.NoError(t, err)
	})
	s2, err := Open(filepath.Join(t.TempDir(), "b"), Options{})
	require.NoError(t, err)
	defer func() { _ = s2.Close() }()
	files := func() {
		in, err := s2.NewIngest(context.Background(), IngestOptions{Kind: KindImage})
		require.NoError(t, err)
		defer in.Abort()
		buf := make([]byte, 1<<20)
		for _, p := range parts {
			f, err := os.Open(filepath.Join(tree, p.path))
			require.NoError(t, err)
			require.NoError(t, in.Hint(Hint{Path: p.path, Size: int64(len(p.data))}))
			for left := len(p.data); left > 0; {
				n, err := io.ReadFull(f, buf[:min(left, len(buf))])
				require.NoError(t, err)
				_, err = in.Write(buf[:n])
				require.NoError(t, err)
				left -= n
			}
			require.NoError(t, f.Close())
		}
		_, err = in.Commit(context.Background(), nil)
		require.NoError(t, err)
	}
	measure("new, from files", files)
	measure("known, from files", files)
}
