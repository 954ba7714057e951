package extract_test

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/sandbox/internal/extract"
	"snapfs/squashfs"
)

// counting counts the calls of ReadAt that are under way.
type counting struct {
	madeUp
	now, most *atomic.Int64
}

func (c counting) Open(context.Context, *squashfs.Entry) (squashfs.File, error) { return c, nil }

func (c counting) ReadAt(p []byte, _ int64) (int, error) {
	n := c.now.Add(1)
	defer c.now.Add(-1)
	for was := c.most.Load(); n > was && !c.most.CompareAndSwap(was, n); was = c.most.Load() {
	}
	time.Sleep(time.Millisecond) // others come meanwhile
	clear(p)
	return len(p), io.EOF
}

func (c counting) Extents() ([]squashfs.Extent, error) {
	// Four pieces in a hole of 16 MiB: little is written.
	var all []squashfs.Extent
	for i := range 4 {
		all = append(all, squashfs.Extent{Off: int64(i) * 4 << 20, Len: 1000})
	}
	return all, nil
}

func (c counting) Close() error { return nil }

// TestLargeFiles: however many large files there are at a time, the buffers for them are bounded by the workers, and
// progress is told once at a time and never goes back.
func TestLargeFiles(t *testing.T) {
	const workers, files = 4, 40
	root := dirOf()
	for i := range files {
		name := fmt.Sprintf("f%02d", i)
		root.names = append(root.names, name)
		root.nodes[name] = &node{attr: squashfs.Attr{Mode: unix.S_IFREG | 0o644, Nlink: 1, Size: 16 << 20}}
	}
	src := counting{madeUp{root}, new(atomic.Int64), new(atomic.Int64)}
	var telling atomic.Bool
	var lastFiles, lastBytes int64
	r, err := write(t.Context(), src, scratch(t)+"/got", snapshot, extract.Options{
		NoSync: true, Workers: workers,
		Progress: func(files, bytes int64) {
			if !telling.CompareAndSwap(false, true) || files < lastFiles || bytes < lastBytes {
				t.Errorf("progress of %d files, %d bytes after %d, %d", files, bytes, lastFiles, lastBytes)
			}
			lastFiles, lastBytes = files, bytes
			time.Sleep(100 * time.Microsecond)
			telling.Store(false)
		},
	})
	require.NoError(t, err)
	require.EqualValues(t, files*4000, r.Bytes)
	require.LessOrEqual(t, src.most.Load(), int64(2*workers))
}
