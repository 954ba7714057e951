package extract

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"snapfs/internal/failpoint"
	"snapfs/internal/lockorder"
	"snapfs/squashfs"
)

// Options are how a tree is written. The zero value is ready.
type Options struct {
	NoSync   bool                     // do not wait until the tree is on the disk
	Workers  int                      // that write files; 0: as many as processors, at least 2
	Progress func(files, bytes int64) // called by several goroutines, one at a time; may be nil
	// Do runs what works in the target, with the rights that it needs there; it includes the call of Open. Several
	// goroutines call it, and what runs in it calls the source by goroutines of its own. nil = this process's rights.
	Do     func(fn func() error) error
	Points failpoint.Func
}

// Result says what was written.
type Result struct {
	Directories int64 // the root included
	Files       int64 // regular files, those that were kept included
	Others      int64 // symbolic links, devices, pipes, sockets
	Links       int64 // further names of what is counted elsewhere
	Bytes       int64 // of file contents that were written, without holes
	Kept        int64 // files that an interrupted call had written
	Skipped     int64
	Skips       []Skip // the first maxSkips
}

// Skip is something that could not be done.
type Skip struct {
	Path string // relative to the target; "." is the target itself
	What string // owner, mode, times, xattr NAME, acl, device, name, link, extra
	Err  error
}

// maxSkips bounds the list of skips.
const maxSkips = 1000

// orderer is a Source that knows in which order its files are read fastest.
type orderer interface {
	// Order gives a number for a regular file that Entry has described: files with smaller numbers are read first.
	// Several goroutines may call it.
	Order(file *squashfs.Entry) uint64
}

// extraction is one call of Target.Extract.
type extraction struct {
	src   squashfs.Source
	order orderer // nil: any order
	opts  Options
	root  int
	// resume says that the target may have parts of the tree, trust that files of the right size and time are complete.
	resume, trust bool
	reserved      string // name of the marker

	dirs    dirs
	links   map[squashfs.InodeID]*linked // of inodes with names to come; the walk's
	batches chan []job
	room    room

	// The walk's.
	described int            // names that are described and not visited
	above     map[uint64]int // inode numbers of the directories that it is in

	files, others, linkCount, directories, bytes, kept atomic.Int64

	telling lockorder.Mutex[lockorder.ExtractTelling] // held while Progress is called, so that it never goes back

	skips struct {
		mu    lockorder.Mutex[lockorder.ExtractSkips]
		count int64  // guarded by mu
		list  []Skip // guarded by mu
	}
}

// do runs fn by Do.
func (o Options) do(fn func() error) error {
	if o.Do == nil {
		return fn()
	}
	return o.Do(fn)
}

// goDo starts a goroutine that works in the target.
func (x *extraction) goDo(g *errgroup.Group, fn func() error) {
	g.Go(func() error { return x.opts.do(fn) })
}

// workers is how many goroutines write files.
func (o Options) workers() int {
	if o.Workers > 0 {
		return o.Workers
	}
	return max(2, runtime.GOMAXPROCS(0))
}

// run writes everything but the attributes of the root.
func (x *extraction) run(ctx context.Context, root *squashfs.Entry, names []string) (*dir, error) {
	x.order, _ = x.src.(orderer)
	x.links = map[squashfs.InodeID]*linked{}
	x.above = map[uint64]int{}
	x.batches = make(chan []job, 2*x.opts.workers())
	x.room = newRoom()
	defer x.room.leave()
	x.dirs.room = x.room
	top, err := x.openRoot(root)
	if err != nil {
		return nil, err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(x.batches)
		return x.opts.do(func() error { return x.walk(ctx, top, root, names) })
	})
	for range x.opts.workers() {
		x.goDo(g, func() error {
			for batch := range x.batches {
				for i := range batch {
					if err := ctx.Err(); err != nil {
						return err
					}
					if err := x.do(ctx, &batch[i]); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	err = g.Wait()
	return top, errors.Join(err, x.dirs.closeAll(top))
}

// result gathers the counts.
func (x *extraction) result() Result {
	x.skips.mu.Lock()
	defer x.skips.mu.Unlock()
	return Result{
		Directories: x.directories.Load(), Files: x.files.Load(), Others: x.others.Load(), Links: x.linkCount.Load(),
		Bytes: x.bytes.Load(), Kept: x.kept.Load(), Skipped: x.skips.count, Skips: x.skips.list,
	}
}

// skip notes something that could not be done to a name in d; "" is d itself.
func (x *extraction) skip(d *dir, name, what string, err error) {
	x.skips.mu.Lock()
	defer x.skips.mu.Unlock()
	x.skips.count++
	if len(x.skips.list) < maxSkips {
		x.skips.list = append(x.skips.list, Skip{Path: d.path(name), What: what, Err: err})
	}
}

// failed puts the path before an error.
func failed(d *dir, name string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%s: %w", d.path(name), err)
}

// wrote counts a file, or with n below zero none, and its bytes.
func (x *extraction) wrote(files, bytes int64) {
	if x.opts.Progress != nil {
		x.telling.Lock()
		defer x.telling.Unlock()
	}
	f, b := x.files.Add(files), x.bytes.Add(bytes)
	if x.opts.Progress != nil {
		x.opts.Progress(f, b)
	}
}
