package extract

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

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
	names []string // those to come
}

// walk makes the directories and hands everything else out.
func (x *extraction) walk(ctx context.Context, top *dir, root *squashfs.Entry, names []string) error {
	w := window{x: x, size: firstWindow}
	slices.Sort(names)
	stack := []frame{{top, root, names}}
	if err := x.strangers(top, names); err != nil {
		return err
	}
	for len(stack) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		f := &stack[len(stack)-1]
		if len(f.names) == 0 {
			if err := x.leave(f.d); err != nil {
				return err
			}
			stack = stack[:len(stack)-1]
			continue
		}
		name := f.names[0]
		f.names = f.names[1:]
		below, err := x.visit(ctx, &w, f, name)
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

// visit makes a directory, which it returns, or a job of a name.
func (x *extraction) visit(ctx context.Context, w *window, f *frame, name string) (below frame, err error) {
	if !validName(name) {
		return frame{}, failed(f.d, "", fmt.Errorf("%w: a directory with the name %q", squashfs.ErrCorrupt, name))
	}
	e, err := x.src.Entry(ctx, f.e, name)
	if err != nil {
		return frame{}, failed(f.d, name, err)
	}
	if e == nil {
		return frame{}, nil
	}
	if e.Name = name; e.Attr.Mode&unix.S_IFMT != unix.S_IFDIR {
		return frame{}, w.add(ctx, x.jobOf(f.d, e))
	}
	d, err := x.makeDir(f.d, e)
	if d == nil || err != nil {
		return frame{}, err
	}
	below = frame{d: d, e: e}
	if below.names, err = x.src.Names(ctx, e); err != nil {
		return frame{}, failed(d, "", err)
	}
	slices.Sort(below.names)
	return below, x.strangers(d, below.names)
}

// validName reports whether a name is one element of a path.
func validName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// jobOf makes the job of a name.
func (x *extraction) jobOf(d *dir, e *squashfs.Entry) job {
	d.hold()
	j := job{d: d, e: e}
	if x.order != nil && e.Attr.Mode&unix.S_IFMT == unix.S_IFREG && e.Attr.Size > 0 {
		j.order = x.order.Order(e)
	}
	if e.Attr.Nlink > 1 {
		j.l = x.linkOf(d, e)
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
	w.size = min(2*w.size, maxWindow)
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
