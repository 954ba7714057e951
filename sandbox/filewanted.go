package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"snapfs/internal/treefilter"
	"snapfs/layers"
	"snapfs/sandbox/api"
)

// openFilter reads which part of the trees is to be compared.
func (d *fileDiff) openFilter() (err error) {
	if d.filter, err = filterOf(d.req.Part); d.filter == nil || err != nil {
		return err
	}
	trees := []*layers.Tree{d.cmp.New(), d.cmp.Old()}
	d.wanted, err = d.filter.Lookup(func(dir string) ([]byte, error) { return ignoreFile(d.ctx, dir, trees...) })
	if err != nil {
		return err
	}
	return findPaths(d.req.Part, d.wanted, d.filter, trees...)
}

// wants reports whether a path is of the part that is compared.
func (d *fileDiff) wants(path string, isDir bool) (bool, error) {
	if d.filter == nil {
		return true, nil
	}
	return d.wanted.Keeps(path, isDir)
}

// dir notes the change of a directory. One that came from, or went to, what is left out has come, or gone.
func (d *fileDiff) dir(c Change) error {
	to, err := d.wants(c.Path, true)
	from := to
	if err == nil && c.OldPath != "" {
		from, err = d.wants(c.OldPath, true)
	}
	if err != nil || !from && !to {
		return err
	}
	if c.OldPath != "" && from != to {
		if to {
			c.Kind, c.OldPath, c.OldMode = string(rune(layers.Added)), "", 0
		} else {
			c.Kind, c.Path, c.OldPath = string(rune(layers.Deleted)), c.OldPath, ""
		}
	}
	d.out = append(d.out, fileChange{Change: c})
	return nil
}

// findPaths refuses a part with paths that none of some trees has, or that its patterns leave out.
func findPaths(p Part, look *treefilter.Lookup, f *treefilter.Filter, trees ...*layers.Tree) error {
	for _, path := range p.Paths {
		path, err := treefilter.Clean(path)
		if err != nil {
			return err
		}
		if path == "" {
			continue
		}
		var there *layers.TreeFile
		for _, t := range trees {
			if there != nil {
				break
			}
			if there, err = t.Lstat(path); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
		kept, err := look.Keeps(path, there != nil && there.Mode&unix.S_IFMT == unix.S_IFDIR)
		switch {
		case err != nil:
			return err
		case there == nil:
			return fmt.Errorf("%w: no path %s in the tree", ErrNotFound, api.Quoted(path))
		case !kept:
			return foundAll(f)
		}
	}
	return nil
}

// ignoreFile reads the .gitignore file of a directory of the first of some trees that has the directory.
func ignoreFile(ctx context.Context, dir string, trees ...*layers.Tree) ([]byte, error) {
	for _, t := range trees {
		at, err := t.Lstat(dir)
		if err != nil {
			return nil, err
		}
		if at == nil || at.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		path := treefilter.IgnoreFile
		if dir != "" {
			path = dir + "/" + path
		}
		f, err := t.Lstat(path)
		if f == nil || err != nil || f.Mode&unix.S_IFMT != unix.S_IFREG {
			return nil, err
		}
		if f.Size > treefilter.MaxIgnoreFile {
			return nil, treefilter.ErrTooMany
		}
		var text bytes.Buffer
		err = f.CopyTo(ctx, &text)
		return text.Bytes(), err
	}
	return nil, nil
}
