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

func (unreadable) find(*obj, string) (found, error)      { return found{}, unix.EIO }
func (unreadable) stat(*obj) (Attr, error)               { return Attr{}, unix.EIO }
func (unreadable) list(*obj, func(rawEntry) error) error { return unix.EIO }
func (unreadable) xattrs(*obj) ([]squashfs.Xattr, error) { return nil, unix.EIO }
