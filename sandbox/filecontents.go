package sandbox

import (
	"fmt"
	"io"

	"snapfs/internal/gitpatch"
	"snapfs/layers"
)

// tellContents calls fn for the changes that git would see, and writes what the files hold after each.
func (d *fileDiff) tellContents(fn func(Change) error) error {
	if d.req.Stat || d.req.Patch {
		return fmt.Errorf("%w: contents exclude counts and patches", ErrInvalid)
	}
	for _, c := range d.out {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		was, is := gitMode(c.old), gitMode(c.now)
		if c.old == nil && c.now == nil || c.same && was == is { // a directory; an owner, a time, an attribute
			continue
		}
		err := fn(c.Change)
		if err == nil && is != 0 {
			err = d.copyContents(c.now, is == gitpatch.Link)
		}
		if err != nil {
			return err
		}
	}
	return d.ctx.Err()
}

// copyContents writes what a file holds, or where a link leads.
func (d *fileDiff) copyContents(f *layers.TreeFile, link bool) error {
	if !link {
		return f.CopyTo(d.ctx, d.req.Contents)
	}
	target, err := f.Target()
	if err == nil {
		_, err = io.WriteString(d.req.Contents, target)
	}
	return err
}
