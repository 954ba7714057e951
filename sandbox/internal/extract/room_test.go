package extract_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/sandbox/internal/extract"
	"snapfs/squashfs"
)

// reading counts the bytes that are being read at a time, by all calls.
type reading struct {
	madeUp
	now, most *atomic.Int64
}

var errRead = errors.New("cannot be read")

func (r reading) Open(context.Context, *squashfs.Entry) (squashfs.File, error) { return r, nil }

func (r reading) ReadAt(p []byte, _ int64) (int, error) {
	n := r.now.Add(int64(len(p)))
	defer r.now.Add(int64(-len(p)))
	for was := r.most.Load(); n > was && !r.most.CompareAndSwap(was, n); was = r.most.Load() {
	}
	time.Sleep(20 * time.Millisecond) // others come meanwhile
	return 0, errRead
}

func (r reading) Extents() ([]squashfs.Extent, error) { return []squashfs.Extent{{Len: 16 << 20}}, nil }
func (r reading) Close() error                        { return nil }

// TestManyCalls: the buffers of all calls together are bounded, and each call goes on.
func TestManyCalls(t *testing.T) {
	const calls, buffer = 16, 4 << 20
	root := dirOf()
	for i := range 20 {
		name := fmt.Sprintf("f%02d", i)
		root.names = append(root.names, name)
		root.nodes[name] = &node{attr: squashfs.Attr{Mode: unix.S_IFREG | 0o644, Nlink: 1, Size: 16 << 20}}
	}
	src := reading{madeUp{root}, new(atomic.Int64), new(atomic.Int64)}
	dir := scratch(t)
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			o := extract.Options{NoSync: true, Workers: 8}
			if _, err := write(t.Context(), src, fmt.Sprintf("%s/got%d", dir, i), snapshot, o); !errors.Is(err, errRead) {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	all.Wait()
	shared := min(2*max(2, runtime.GOMAXPROCS(0)), 16)
	require.LessOrEqual(t, src.most.Load(), int64(calls+shared)*buffer)
}

// meeting is a source whose first two calls of Entry for files wait for each other.
type meeting struct {
	madeUp
	calls *atomic.Int64
	met   chan struct{}
}

func (m meeting) Entry(ctx context.Context, dir *squashfs.Entry, name string) (*squashfs.Entry, error) {
	if m.calls.Add(1) == 2 {
		close(m.met)
	}
	select {
	case <-m.met:
		return m.madeUp.Entry(ctx, dir, name)
	case <-time.After(time.Minute):
		return nil, errors.New("nobody else describes names")
	}
}

// TestManyNamesAtOnce: several goroutines describe the names of one directory.
func TestManyNamesAtOnce(t *testing.T) {
	root := dirOf()
	const names = 3000
	for i := range names {
		name := fmt.Sprintf("f%04d", i)
		root.names, root.nodes[name] = append(root.names, name), fileOf("x")
	}
	src := meeting{madeUp{root}, new(atomic.Int64), make(chan struct{})}
	r, err := write(t.Context(), src, scratch(t)+"/got", snapshot, extract.Options{NoSync: true, Workers: 2})
	require.NoError(t, err)
	require.Equal(t, int64(names), r.Files)
	require.Equal(t, int64(names), src.calls.Load())
}
