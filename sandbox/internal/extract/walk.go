package extract

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// Bounds of windows, in jobs, and of batches, in jobs and bytes.
const (
	firstWindow = 1 << 9
	maxWindow   = 1 << 15
	batchJobs   = 32
	batchBytes  = 4 << 20
)

// maxAlike is how many directories with one inode number may lie in each other. Homes of early versions have pairs.
const maxAlike = 16

// Bounds of what is described at once.
const (
	describeAtOnce = 1 << 10 // names of one directory
	describeAll    = 1 << 12 // of all directories that the walk is in
	describePart   = 1 << 5  // by one goroutine before it looks for more
)

// job is a name to be made that is no directory. It keeps its dir under way.
type job struct {
	d     *dir
	e     *squashfs.Entry
	order uint64
	l     *linked // of an inode with several names; nil: it has one
}

// frame is a directory that the walk is in.
type frame struct {
	d     *dir
	e     *squashfs.Entry
	names []string    // those to come
	known []described // the first of names
}

// described is what a source says of a name.
type described struct {
	e     *squashfs.Entry // nil: nothing, or err
	order uint64
	err   error
}

// walk makes the directories and hands everything else out.
func (x *extraction) walk(ctx context.Context, top *dir, root *squashfs.Entry, names []string) error {
	w := window{x: x, size: firstWindow}
	if err := x.room.names.Take(ctx, firstWindow); err != nil {
		return err
	}
	if err := x.orderNames(top, names); err != nil {
		return err
	}
	stack := []frame{{d: top, e: root, names: names}}
	for len(stack) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		f := &stack[len(stack)-1]
		if len(f.names) == 0 {
			if err := x.leave(f.d); err != nil {
				return err
			}
			if ino := f.e.Attr.Ino; x.above[ino] > 0 {
				x.above[ino]--
			}
			stack = stack[:len(stack)-1]
			continue
		}
		below, err := x.visit(ctx, &w, f)
		if err != nil {
			return err
		}
		if below.d != nil {
			stack = append(stack, below)
		}
	}
	if err := w.flush(ctx); err != nil {
		return err
	}
	for _, l := range x.links { // they have fewer names than they claim
		if err := x.leave(l.first); err != nil {
			return err
		}
	}
	return nil
}

// visit makes a directory, which it returns, or a job of the next name.
func (x *extraction) visit(ctx context.Context, w *window, f *frame) (below frame, err error) {
	if len(f.known) == 0 {
		x.describe(ctx, f)
	}
	k := f.known[0]
	f.known[0] = described{} // it is not kept with the memory of the others
	f.names, f.known = f.names[1:], f.known[1:]
	x.described--
	if k.err != nil || k.e == nil {
		return frame{}, k.err
	}
	if k.e.Attr.Mode&unix.S_IFMT != unix.S_IFDIR {
		return frame{}, w.add(ctx, x.jobOf(f.d, k))
	}
	d, err := x.makeDir(f.d, k.e)
	if d == nil || err != nil {
		return frame{}, err
	}
	return x.enter(ctx, d, k.e)
}

// enter begins with a directory that was made. Damage may have it contain itself.
func (x *extraction) enter(ctx context.Context, d *dir, e *squashfs.Entry) (f frame, err error) {
	if e.Attr.Ino != 0 {
		if x.above[e.Attr.Ino]++; x.above[e.Attr.Ino] > maxAlike {
			return frame{}, failed(d, "", fmt.Errorf("%w: a directory contains itself", squashfs.ErrCorrupt))
		}
	}
	f = frame{d: d, e: e}
	if f.names, err = x.src.Names(ctx, e); err != nil {
		return frame{}, failed(d, "", err)
	}
	return f, x.orderNames(d, f.names)
}

// orderNames sorts the names of a directory.
func (x *extraction) orderNames(d *dir, names []string) error {
	slices.Sort(names)
	for i, name := range names {
		if i > 0 && name == names[i-1] {
			return failed(d, name, fmt.Errorf("%w: a directory has the name twice", squashfs.ErrCorrupt))
		}
	}
	return x.strangers(d, names)
}

// describe asks the source for the next names of a directory, by several goroutines if there are many.
func (x *extraction) describe(ctx context.Context, f *frame) {
	n := max(1, min(len(f.names), describeAtOnce, describeAll-x.described))
	f.known = make([]described, n)
	x.described += n
	var next atomic.Int64
	work := func() {
		for {
			from := int(next.Add(describePart)) - describePart
			for i := from; i < min(from+describePart, n); i++ {
				f.known[i] = x.describeName(ctx, f, f.names[i])
			}
			if from+describePart >= n {
				return
			}
		}
	}
	var helpers sync.WaitGroup
	for range min(x.opts.workers()-1, (n-1)/describePart) {
		helpers.Go(work)
	}
	work()
	helpers.Wait()
}

// describeName asks the source for one name of a directory.
func (x *extraction) describeName(ctx context.Context, f *frame, name string) (k described) {
	if !validName(name) {
		k.err = failed(f.d, "", fmt.Errorf("%w: a directory with the name %q", squashfs.ErrCorrupt, name))
		return k
	}
	if k.err = ctx.Err(); k.err != nil {
		return k
	}
	if k.e, k.err = x.src.Entry(ctx, f.e, name); k.err != nil || k.e == nil {
		k.err = failed(f.d, name, k.err)
		return k
	}
	k.e.Name = name
	if x.order != nil && k.e.Attr.Mode&unix.S_IFMT == unix.S_IFREG && k.e.Attr.Size > 0 {
		k.order = x.order.Order(k.e)
	}
	return k
}

// validName reports whether a name is one element of a path.
func validName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// jobOf makes the job of a name.
func (x *extraction) jobOf(d *dir, k described) job {
	d.hold()
	j := job{d: d, e: k.e, order: k.order}
	if k.e.Attr.Nlink > 1 {
		j.l = x.linkOf(d, k.e)
	}
	return j
}

// strangers notes the names in a directory that was there before and that are not the tree's. They stay.
func (x *extraction) strangers(d *dir, names []string) error {
	if !d.was {
		return nil
	}
	fd, err := x.dirs.acquire(d)
	if err != nil {
		return err
	}
	defer x.dirs.release(d)
	there, err := readNames(fd)
	if err != nil {
		return failed(d, "", err)
	}
	for _, name := range there {
		if _, known := slices.BinarySearch(names, name); !known && (d.parent != nil || name != x.reserved) {
			x.skip(d, name, "extra", os.ErrExist)
		}
	}
	return nil
}

// readNames lists an open directory.
func readNames(fd int) ([]string, error) {
	own, err := retry(func() (int, error) { return unix.Openat(fd, ".", openDir, 0) })
	if err != nil {
		return nil, err
	}
	d := os.NewFile(uintptr(own), ".")
	defer func() { _ = d.Close() }() // nothing was written
	return d.Readdirnames(-1)
}

// window gathers jobs.
type window struct {
	x    *extraction
	jobs []job
	size int
}

// add takes a job in, and hands the window out if it is full.
func (w *window) add(ctx context.Context, j job) error {
	if w.jobs = append(w.jobs, j); len(w.jobs) < w.size {
		return nil
	}
	if grown := min(2*w.size, maxWindow); w.x.room.names.Try(int64(grown - w.size)) {
		w.size = grown
	}
	return w.flush(ctx)
}

// flush sorts the jobs and hands them out.
func (w *window) flush(ctx context.Context) error {
	jobs := w.jobs
	w.jobs = nil
	slices.SortStableFunc(jobs, func(a, b job) int { return cmp.Compare(a.order, b.order) })
	for len(jobs) > 0 {
		n, bytes := 0, int64(0)
		for n < len(jobs) && n < batchJobs && bytes < batchBytes {
			bytes += jobs[n].e.Attr.Size
			n++
		}
		select {
		case w.x.batches <- jobs[:n:n]:
		case <-ctx.Done():
			return ctx.Err()
		}
		jobs = jobs[n:]
	}
	return nil
}
