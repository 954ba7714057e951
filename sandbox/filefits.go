package sandbox

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/layers"
	"snapfs/sandbox/api"
)

// room finds out whether the old tree has room for the files that a patch makes.
type room struct {
	*fileDiff
	gone map[string]bool // files of the old tree that the patch removes
	dirs map[string]bool // directories above new files: whether the old tree has them
}

// fits refuses a patch that makes a file where the old tree has something else which the patch leaves there, such as a
// pipe, or a directory with a file that is left out: git would end in the middle. emptied tells that a file comes to be
// where a directory was.
func (d *fileDiff) fits() (emptied bool, err error) {
	r := room{d, map[string]bool{}, map[string]bool{"": true}}
	for _, c := range d.out {
		if !c.hidden && gitMode(c.old) != 0 {
			r.gone[c.oldPath()] = true
		}
	}
	for _, c := range d.out {
		if c.hidden || gitMode(c.now) == 0 || gitMode(c.old) != 0 && c.OldPath == "" {
			continue
		}
		if err := d.ctx.Err(); err != nil {
			return false, err
		}
		up := ""
		if i := strings.LastIndexByte(c.Path, '/'); i >= 0 {
			up = c.Path[:i]
		}
		there, err := r.dir(up, c.Path)
		if err != nil {
			return false, err
		}
		if !there {
			continue
		}
		was, err := d.cmp.Old().Lstat(c.Path)
		switch {
		case err != nil:
			return false, err
		case was == nil:
		case was.Mode&unix.S_IFMT == unix.S_IFDIR:
			emptied = true
			err = r.empties(c.Path, c.Path)
		case !r.gone[c.Path]:
			err = inTheWay(c.Path, c.Path)
		}
		if err != nil {
			return false, err
		}
	}
	return emptied, nil
}

// dir reports whether the old tree has a directory. What else it has there must go.
func (r room) dir(path, of string) (there bool, err error) {
	if there, met := r.dirs[path]; met {
		return there, nil
	}
	up := ""
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		up = path[:i]
	}
	if there, err = r.dir(up, of); err != nil {
		return false, err
	}
	var was *layers.TreeFile
	if there {
		if was, err = r.cmp.Old().Lstat(path); err != nil {
			return false, err
		}
	}
	there = was != nil && was.Mode&unix.S_IFMT == unix.S_IFDIR
	if was != nil && !there && !r.gone[path] {
		return false, inTheWay(path, of)
	}
	r.dirs[path] = there
	return there, nil
}

// empties refuses a directory of the old tree with what stays: a file, or a directory in which no file was. Those that
// lose their last file git removes.
func (r room) empties(dir, of string) error {
	names, err := r.cmp.Old().List(dir)
	if err != nil {
		return err
	}
	if len(names) == 0 && (dir != of || longName(dir)) { // git removes the latter, but writes to NAME~PID then
		return inTheWay(dir, of)
	}
	for _, name := range names {
		path := dir + "/" + name
		f, err := r.cmp.Old().Lstat(path)
		switch {
		case err != nil:
			return err
		case f == nil || r.gone[path]:
		case f.Mode&unix.S_IFMT == unix.S_IFDIR:
			err = r.empties(path, of)
		default:
			err = inTheWay(path, of)
		}
		if err != nil {
			return err
		}
	}
	return r.ctx.Err()
}

// inTheWay says that a patch has no room for a file.
func inTheWay(path, of string) error {
	if path == of {
		return fmt.Errorf("%w: the old %s stands in the way of the new one, and a patch cannot remove it: leave it out",
			ErrInvalid, api.Quoted(path))
	}
	return fmt.Errorf("%w: %s stands in the way of %s, and is not in the patch: leave out that, too, or neither",
		ErrInvalid, api.Quoted(path), api.Quoted(of))
}
