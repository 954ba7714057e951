package sandbox

import (
	"maps"
	"path"

	"golang.org/x/sys/unix"

	"snapfs/internal/gitpatch"
	"snapfs/layers"
)

// What a patch does not have of a change, in Change.Lost. Times are never in a patch, and not listed; nor is who owns
// what is new.
const (
	lostOwner   = "owner"
	lostMode    = "permissions"
	lostXattrs  = "attributes"
	lostSpecial = "special file"
	lostDir     = "empty directory"
	lostPath    = "long path"
	lostGit     = ".git"
)

// lose notes what a patch will not have of a change.
func (d *fileDiff) lose(c *fileChange) error {
	if d.long > 0 { // they are in a directory that was renamed
		c.Lost, d.long = append(c.Lost, lostPath), 0
	}
	old, now := c.old, c.now
	if old == nil && now == nil {
		var err error
		if old, now, err = d.dirs(c); err != nil {
			return err
		}
	}
	for _, f := range []*layers.TreeFile{c.old, c.now} {
		if f != nil && gitMode(f) == 0 {
			c.Lost = append(c.Lost, lostSpecial)
			break
		}
	}
	if now == nil {
		return d.loseParent(c)
	}
	if old != nil && (old.UID != now.UID || old.GID != now.GID) {
		c.Lost = append(c.Lost, lostOwner)
	}
	if loseMode(old, now) {
		c.Lost = append(c.Lost, lostMode)
	}
	var before map[string]string
	after, err := now.Xattrs()
	if err == nil && old != nil {
		before, err = old.Xattrs()
	}
	if !maps.Equal(before, after) {
		c.Lost = append(c.Lost, lostXattrs)
	}
	return err
}

// dirs looks at both sides of the change of a directory, and notes it if it is empty.
func (d *fileDiff) dirs(c *fileChange) (old, now *layers.TreeFile, err error) {
	from := c.oldPath()
	isDir := func(mode uint32) bool { return mode&unix.S_IFMT == unix.S_IFDIR }
	if c.Kind != string(rune(layers.Added)) && isDir(c.OldMode) {
		if old, err = d.cmp.Old().Lstat(from); err != nil {
			return nil, nil, err
		}
	}
	tree, at := d.cmp.Old(), from
	if c.Kind != string(rune(layers.Deleted)) && isDir(c.Mode) {
		tree, at = d.cmp.New(), c.Path
		if now, err = tree.Lstat(at); err != nil {
			return nil, nil, err
		}
	}
	if old != nil && now != nil && c.OldPath == "" {
		return old, now, nil
	}
	names, err := tree.List(at)
	if err == nil && len(names) == 0 {
		c.Lost = append(c.Lost, lostDir)
	}
	return old, now, err
}

// loseParent notes that a deletion leaves an empty directory: git will remove that.
func (d *fileDiff) loseParent(c *fileChange) error {
	parent := path.Dir(c.Path)
	if parent == "." || d.given["/"+parent] != 0 {
		return nil
	}
	d.given["/"+parent] = layers.Deleted // it is told once; no path of the comparison begins so
	f, err := d.cmp.New().Lstat(parent)
	if err != nil || f == nil || f.Mode&unix.S_IFMT != unix.S_IFDIR {
		return err
	}
	names, err := d.cmp.New().List(parent)
	if err == nil && len(names) == 0 {
		c.Lost = append(c.Lost, lostDir)
	}
	return err
}

// loseMode reports whether a file will have other permissions than it should after a patch; old may be nil.
func loseMode(old, now *layers.TreeFile) bool {
	kind := now.Mode & unix.S_IFMT
	if kind == unix.S_IFLNK {
		return false
	}
	was, is := uint32(0), now.Mode&0o7777
	if old != nil && old.Mode&unix.S_IFMT == kind {
		was = old.Mode & 0o7777
	}
	if was == is || was != 0 && kind != unix.S_IFREG {
		return was != is
	}
	if was != 0 && gitMode(old) == gitMode(now) {
		return true // git does not touch them
	}
	// git gives what is new, or becomes a program, the permissions that the umask leaves.
	plain := is == 0o644 || is == 0o664
	if kind == unix.S_IFDIR || gitMode(now) == gitpatch.Executable {
		plain = is == 0o755 || is == 0o775
	}
	return !plain && (kind == unix.S_IFREG || kind == unix.S_IFDIR)
}
