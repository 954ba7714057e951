package layers

import (
	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// unreadable is the storage of a layer of which nothing can be read.
type unreadable struct{ backend }

func newUnreadable() *Lower {
	l := &Lower{key: "unreadable", be: unreadable{}}
	l.refs.Store(1)
	return l
}

func (unreadable) find(*part, string) (found, error)      { return found{}, unix.EIO }
func (unreadable) stat(*part) (Attr, error)               { return Attr{}, unix.EIO }
func (unreadable) list(*part, func(rawEntry) error) error { return unix.EIO }
func (unreadable) xattrs(*part) ([]squashfs.Xattr, error) { return nil, unix.EIO }
