package layers

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// PrepareUpper gives the root of an empty directory, which is to be the upper of a kernel overlayfs, the attributes of
// the root of the stack below, topmost first. It may be called again after a crash.
func PrepareUpper(dir string, below []*Lower) error {
	v, err := openView(below)
	if err != nil {
		return err
	}
	defer func() { _ = v.Close() }() // it cannot fail
	s, err := openDirStore(dir, 0)
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }() // O_PATH
	root := v.o.root.top
	a, err := root.backend().stat(root)
	if err != nil {
		return err
	}
	xattrs, err := root.backend().xattrs(root)
	if err != nil {
		return err
	}
	p := nameIn(s.root, ".")
	if err := copyAttrs(p, a, xattrs); err != nil {
		return fmt.Errorf("prepare %s: %w", dir, err)
	}
	return dropXattr(p, xattrIno) // the kernel does not keep it up to date
}

// UpperChanged reports whether the upper of a kernel overlayfs, opened by OpenSealed, shows anything else than the stack
// below, topmost first. Of a stack without layers it does.
func UpperChanged(upper *Lower, below []*Lower) (bool, error) {
	if len(below) == 0 {
		return true, nil
	}
	v, err := openView([]*Lower{upper, below[0]})
	if err != nil {
		return false, err
	}
	defer func() { _ = v.Close() }() // it cannot fail
	top := rootPart(v.o.stack[0])
	err = top.backend().list(top, func(rawEntry) error { return errFound })
	if errors.Is(err, errFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return rootsDiffer(top, rootPart(v.o.stack[1]))
}

// FinishUpper makes the upper of a kernel overlayfs that has ended, opened by OpenSealed, a layer like any other: it notes
// the link counts of merged directories, which the kernel does not keep, in their inode info. below is the stack that the
// overlayfs showed, topmost first. A directory that has no room for the note goes without. Contents are not looked at,
// times stay what they were. It can be interrupted and be called again, and does nothing then for what is done. The caller
// sees to that it reaches the disk.
func FinishUpper(ctx context.Context, upper *Lower, below []*Lower) error {
	if upper.dir == nil {
		return errors.New("finish an upper: it is no directory")
	}
	v, err := openView(append([]*Lower{upper}, below...))
	if err != nil {
		return err
	}
	defer func() { _ = v.Close() }() // it cannot fail
	root := v.o.root
	level := []upperDir{{part: root.top, below: root.below}}
	for len(level) > 0 {
		found := make([][]upperDir, len(level))
		err := atOnce(ctx, len(level), func(i int) (err error) {
			found[i], err = v.o.finishDir(&level[i])
			return err
		})
		if err != nil {
			return fmt.Errorf("finish an upper: %w", err)
		}
		level = nil
		for _, dirs := range found {
			level = append(level, dirs...)
		}
	}
	return nil
}

// upperDir is a directory of the topmost layer of a view, with what the layers below have in its place.
type upperDir struct {
	part  *part
	below []*part
}

// finishDir writes the inode info of a directory, and gives the directories in it.
func (o *Overlay) finishDir(d *upperDir) (dirs []upperDir, err error) {
	s := d.part.dirStore()
	h, err := s.dir(d.part)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.part.path(), err)
	}
	defer h.release()
	var names, subdirs []string
	err = eachName(h.fd, func(name string, _ uint64, typ uint32) error {
		names = append(names, name)
		if isDir(typ) || typ == 0 {
			subdirs = append(subdirs, name)
		}
		return nil
	})
	if err == nil && len(d.below) > 0 {
		err = o.noteSubdirs(d, nameIn(h.fd, "."), names)
	}
	for _, name := range subdirs {
		if err != nil {
			break
		}
		var f found
		if f, err = s.examine(nameIn(h.fd, name)); err != nil || !isDir(f.attr.Mode) {
			continue
		}
		sub := upperDir{part: d.part.child(name, f)}
		sub.below, err = o.belowOf(d.part, d.below, name, f)
		dirs = append(dirs, sub)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.part.path(), err)
	}
	return dirs, nil
}

// noteSubdirs writes the inode info of a merged directory with these names in it, if it is not there yet.
func (o *Overlay) noteSubdirs(d *upperDir, self location, names []string) error {
	subs, err := o.subdirsBelow(d.below, names)
	if err != nil {
		return err
	}
	host, err := self.hostStat()
	if err != nil {
		return err
	}
	was, ok, err := readInodeInfo(self)
	if err != nil {
		return err
	}
	r := was
	if !ok {
		r = inodeInfo{ino: rootIno, ctime: noCtime}
		if d.part.parent != nil {
			if r.ino, err = d.part.dirStore().number(host.Ino); err != nil {
				return err
			}
		}
	}
	r.subs = subs
	if ok && r == was {
		return nil
	}
	if r.ctime == noCtime { // from now on the host's is that of this note
		r.ctime = packTime(host.Ctime)
	}
	err = self.setxattr(xattrIno, r.encode(true), 0)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.E2BIG) {
		return nil // programs have filled it with attributes: without a note nobody counts its links
	}
	return err
}

// belowOf gives what the layers below have of a name of the topmost layer, in which find has found f in the directory
// top, of which the layers below have the others.
func (o *Overlay) belowOf(top *part, below []*part, name string, f found) ([]*part, error) {
	var s scan
	if s.take(top, name, f) {
		return nil, nil
	}
	switch r := f.redirect; {
	case r != "" && r[0] == '/':
		err := o.follow(&s, top.layer, r)
		return s.parts[1:], err
	case len(below) == 0:
		return nil, nil
	case r != "":
		name = r
	}
	_, err := o.searchFor(&s, &node{top: below[0], below: below[1:], typ: unix.S_IFDIR}, 0, name)
	if errors.Is(err, squashfs.ErrCorrupt) {
		err = nil // what is there cannot be read through this layer either
	}
	return s.parts[1:], err
}

// atOnce calls fn for 0 to n-1, as many at a time as there are processors, until one fails.
func atOnce(ctx context.Context, n int, fn func(i int) error) error {
	workers := min(n, runtime.GOMAXPROCS(0))
	var next atomic.Int64
	work := func() error {
		for {
			i := int(next.Add(1)) - 1
			if i >= n {
				return nil
			}
			err := ctx.Err()
			if err == nil {
				err = fn(i)
			}
			if err != nil {
				next.Store(int64(n))
				return err
			}
		}
	}
	if workers < 2 {
		return work()
	}
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() { errs[w] = work() })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
