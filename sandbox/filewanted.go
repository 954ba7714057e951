package sandbox

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"

	"snapfs/internal/treefilter"
	"snapfs/layers"
)

// openFilter reads which part of the trees is to be compared.
func (d *fileDiff) openFilter() (err error) {
	if d.filter, err = filterOf(d.req.Part); d.filter == nil || err != nil {
		return err
	}
	for _, path := range d.req.Paths {
		if err := pathThere(path, d.cmp.New(), d.cmp.Old()); err != nil {
			return err
		}
	}
	d.wanted, err = d.filter.Lookup(d.ignoreFile)
	return err
}

// ignoreFile reads the .gitignore file of a directory of the new tree, or if that has none, of the old one.
func (d *fileDiff) ignoreFile(dir string) ([]byte, error) {
	for _, t := range []*layers.Tree{d.cmp.New(), d.cmp.Old()} {
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
		err = f.CopyTo(d.ctx, &text)
		return text.Bytes(), err
	}
	return nil, nil
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

// pathThere refuses a path that none of some trees has.
func pathThere(path string, trees ...*layers.Tree) error {
	f, err := treefilter.New(treefilter.Options{Paths: []string{path}})
	if f == nil || err != nil {
		return err
	}
	for _, t := range trees {
		at, err := t.Lstat(f.Missing())
		if at != nil || err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return foundAll(f)
}
