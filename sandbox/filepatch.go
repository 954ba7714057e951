package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/internal/gitpatch"
	"snapfs/layers"
	"snapfs/sandbox/api"
)

// hides reports whether a path is left out of patches: what belongs to a repository is that one's to change. Applied
// to another, it would take over names of commits, and no commits.
func (d *fileDiff) hides(path string) bool {
	if !d.req.Patch || d.req.GitDir {
		return false
	}
	for name := range strings.SplitSeq(path, "/") {
		if strings.EqualFold(name, ".git") { // git refuses all of them
			return true
		}
	}
	return false
}

// tell calls fn for all changes that were found.
func (d *fileDiff) tell(fn func(Change) error) error {
	if d.req.Contents != nil {
		return d.tellContents(fn)
	}
	for i := range d.out {
		c := &d.out[i]
		c.hidden = d.hides(c.Path) || d.hides(c.OldPath)
	}
	var preamble []byte
	if d.req.Patch {
		var err error
		if preamble, err = d.check(); err != nil {
			return err
		}
	}
	for _, c := range d.out {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		if err := d.compare(&c); err != nil {
			return err
		}
		if len(c.Patch) > 0 {
			c.Preamble, preamble = preamble, nil
		}
		if err := fn(c.Change); err != nil {
			return err
		}
	}
	return d.ctx.Err()
}

// check refuses a patch that cannot be made, before anything of it is told, and gives what goes before one that
// patch(1) would apply in part. It notes which files are binary.
func (d *fileDiff) check() (preamble []byte, err error) {
	var why string
	emptied, err := d.fits()
	if err != nil {
		return nil, err
	}
	if emptied || d.displaces() {
		why = "has directories where files were, or files where directories were"
	} else if d.linked() {
		why = "changes several names of one file"
	} else if d.longNamed() {
		why = "has names that leave no room for those of temporary files"
	}
	for i := range d.out {
		c := &d.out[i]
		if c.hidden || c.same {
			continue
		}
		for _, f := range []*layers.TreeFile{c.old, c.now} {
			switch bin, err := d.isBinary(f); {
			case err != nil:
				return nil, err
			case !bin:
			case !d.req.Binary:
				return nil, fmt.Errorf("%w: %s is a binary file: ask for a patch with binary files, or leave it out",
					ErrInvalid, api.Quoted(c.Path))
			case f.Size > gitpatch.MaxBinary:
				return nil, fmt.Errorf("%w: %s has more than %d MiB, too much for a patch: leave it out, or export the "+
					"snapshot", ErrInvalid, api.Quoted(c.Path), gitpatch.MaxBinary>>20)
			default:
				c.binary = true
				why = "has binary files"
			}
		}
	}
	if why != "" {
		preamble = gitpatch.Guard(why)
	}
	return preamble, nil
}

// displaces reports whether a file comes to be where a directory was, or the other way round.
func (d *fileDiff) displaces() bool {
	for _, c := range d.out {
		if c.Kind == string(rune(layers.Retyped)) && !c.hidden &&
			(c.Mode&unix.S_IFMT == unix.S_IFDIR || c.OldMode&unix.S_IFMT == unix.S_IFDIR) {
			return true
		}
	}
	files := map[string]bool{} // that are there no more, or only now
	for _, c := range d.out {
		if c.hidden {
			continue
		}
		if c.old != nil && c.now == nil || c.old == nil && c.now != nil || c.OldPath != "" {
			files[c.Path] = true
			files[c.OldPath] = true
		}
	}
	delete(files, "")
	for path := range maps.Keys(files) {
		for i := range len(path) {
			if path[i] == '/' && files[path[:i]] {
				return true
			}
		}
	}
	return false
}

// linked reports whether two names of one file change: patch(1) knows files by their inodes, and takes one name for
// gone when the other is.
func (d *fileDiff) linked() bool {
	met := map[uint64]bool{}
	for _, c := range d.out {
		if c.hidden || c.old == nil || c.old.Nlink < 2 {
			continue
		}
		if met[c.old.Ino] {
			return true
		}
		met[c.old.Ino] = true
	}
	return false
}

// longNamed reports whether there are names that are too long for patch(1).
func (d *fileDiff) longNamed() bool {
	return slices.ContainsFunc(d.out, func(c fileChange) bool {
		return !c.hidden && (longName(c.Path) || longName(c.OldPath))
	})
}

// longName reports whether a name is so long that git and patch(1) cannot put behind it what makes it that of a temporary
// file.
func longName(name string) bool {
	const added = 16 // bytes; ".oXXXXXX" in patch 2.7
	return len(path.Base(name)) > unix.NAME_MAX-added || len(name) > layers.MaxPath-added
}

// errBinary ends the reading of a file that is binary.
var errBinary = errors.New("binary")

// isBinary reports whether a patch has a file as a binary one. It reads it as far as it must.
func (d *fileDiff) isBinary(f *layers.TreeFile) (bool, error) {
	if m := gitMode(f); m == 0 || m == gitpatch.Link {
		return false, nil
	}
	if f.Size > gitpatch.MaxText {
		return true, nil
	}
	var t gitpatch.Text
	err := f.CopyTo(d.ctx, writerFunc(func(p []byte) (int, error) {
		if n, err := t.Write(p); err != nil || t.Is() {
			return n, err
		}
		return 0, errBinary
	}))
	if errors.Is(err, errBinary) {
		return true, nil
	}
	return false, err
}

// writerFunc is a function that is an io.Writer.
type writerFunc func(p []byte) (int, error)

// Write implements io.Writer.
func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// compare compares what is in the files of a change.
func (d *fileDiff) compare(c *fileChange) error {
	if c.hidden {
		c.Lost = []string{lostGit}
		return nil
	}
	if d.req.Patch {
		if err := d.lose(c); err != nil {
			return err
		}
	}
	if !d.req.Stat && !d.req.Patch || gitMode(c.old) == 0 && gitMode(c.now) == 0 { // a directory, a device, a pipe or a socket
		return nil
	}
	from := c.oldPath()
	x, err := gitFile(from, c.old, c.same)
	if err != nil {
		return err
	}
	y, err := gitFile(c.Path, c.now, c.same)
	if err != nil {
		return err
	}
	c.Stat = &FileStat{}
	if c.same && x.Mode == y.Mode && from == c.Path { // an owner, a time, an attribute
		return nil
	}
	if !x.Large && !y.Large && x.Mode == y.Mode && from == c.Path && bytes.Equal(x.Data, y.Data) { // by now
		return nil
	}
	patch, st := gitpatch.Section(x, y, gitpatch.Options{StatOnly: !d.req.Patch || x.Large || y.Large})
	if d.req.Patch && st.Binary && !c.binary { // what check has decided does not hold for it
		return fmt.Errorf("%w: %s has just become a binary file: diff again, or take a snapshot and compare that",
			ErrConflict, api.Quoted(c.Path))
	}
	c.Patch = patch
	c.Stat = &FileStat{Binary: st.Binary, Additions: st.Additions, Deletions: st.Deletions}
	return nil
}

// gitMode is how git knows a file: 0 for what it knows nothing of, and for nil.
func gitMode(f *layers.TreeFile) uint32 {
	switch {
	case f == nil:
		return 0
	case f.Mode&unix.S_IFMT == unix.S_IFLNK:
		return gitpatch.Link
	case f.Mode&unix.S_IFMT != unix.S_IFREG:
		return 0
	case f.Mode&unix.S_IXUSR != 0:
		return gitpatch.Executable
	}
	return gitpatch.Regular
}

// gitFile is a side of a section. Contents that are the same on both sides are not read.
func gitFile(name string, f *layers.TreeFile, same bool) (gitpatch.File, error) {
	g := gitpatch.File{Name: name, Mode: gitMode(f)}
	if g.Mode == gitpatch.Link {
		target, err := f.Target()
		g.Data = []byte(target)
		return g, err
	}
	if g.Mode == 0 || same {
		return g, nil
	}
	if g.Large = f.Size > gitpatch.MaxBinary; g.Large {
		return g, nil
	}
	var err error
	g.Data, err = f.Read()
	return g, err
}
