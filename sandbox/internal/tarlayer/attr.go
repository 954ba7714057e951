package tarlayer

import (
	"archive/tar"
	"errors"
	"fmt"
	"math"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/layers"
	"snapfs/sandbox/api"
)

// xattrPrefix begins PAX records of extended attributes.
const xattrPrefix = "SCHILY.xattr."

// attributes gives an inode what an entry tells; d is it, if it is a directory, whose times are set later.
func (u *unpacker) attributes(id layers.NodeID, d *dir, h *tar.Header, typ uint32) error {
	if h.Uid < 0 || int64(h.Uid) >= math.MaxUint32 || h.Gid < 0 || int64(h.Gid) >= math.MaxUint32 {
		return fmt.Errorf("%w: owner %d:%d", api.ErrInvalid, h.Uid, h.Gid)
	}
	times, err := timesOf(h)
	if err != nil {
		return err
	}
	xattrs := map[string]string{}
	for key, value := range h.PAXRecords {
		if name, ok := strings.CutPrefix(key, xattrPrefix); ok && name != "" {
			xattrs[name] = value
		}
	}
	return u.set(id, d, inode{
		uid: uint32(h.Uid), gid: uint32(h.Gid), mode: uint32(h.Mode & 0o7777), link: typ == unix.S_IFLNK, times: times, xattrs: xattrs,
	})
}

// inode is what a file gets beside its contents.
type inode struct {
	uid, gid uint32
	mode     uint32
	link     bool
	times    times
	xattrs   map[string]string
}

// set sets owner, attributes and permissions, in this order: each may take away from the next. Last come the times.
func (u *unpacker) set(id layers.NodeID, d *dir, a inode) error {
	if !a.link { // a directory may have been listed before; files inherit from theirs
		had, err := u.o.ListXattr(id)
		if err != nil {
			return err
		}
		for _, name := range had {
			if _, ok := a.xattrs[name]; !ok {
				if err := u.o.RemoveXattr(id, name); err != nil {
					return fmt.Errorf("attribute %s: %w", api.Quoted(name), err)
				}
			}
		}
	}
	if _, err := u.o.SetAttr(u.caller, id, layers.SetAttr{Valid: layers.SetUID | layers.SetGID, UID: a.uid, GID: a.gid}); err != nil {
		return err
	}
	for name, value := range a.xattrs {
		if err := u.o.SetXattr(id, name, []byte(value), 0); err != nil {
			return xattrError(name, err)
		}
	}
	var s layers.SetAttr
	if !a.link {
		s.Valid, s.Mode = layers.SetMode, a.mode
	}
	if d != nil {
		d.times, d.touched = a.times, true
	} else {
		s.Valid |= layers.SetAtime | layers.SetMtime
		s.Atime, s.Mtime = a.times.access, a.times.change
	}
	_, err := u.o.SetAttr(u.caller, id, s)
	return err
}

// xattrError says of an attribute why the host does not take it.
func xattrError(name string, err error) error {
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ERANGE), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.E2BIG):
		return fmt.Errorf("%w: attribute %s: %w", api.ErrInvalid, api.Quoted(name), err)
	}
	return fmt.Errorf("attribute %s: %w", api.Quoted(name), err)
}

// times of an entry; the second is that of its contents.
type times struct{ access, change layers.Time }

// timesOf reads the times of an entry.
func timesOf(h *tar.Header) (times, error) {
	t := times{change: layers.Time{Sec: h.ModTime.Unix(), Nsec: uint32(h.ModTime.Nanosecond())}}
	t.access = t.change
	if !h.AccessTime.IsZero() {
		t.access = layers.Time{Sec: h.AccessTime.Unix(), Nsec: uint32(h.AccessTime.Nanosecond())}
	}
	const most = 1 << 40 // seconds; no file system has later ones
	for _, sec := range []int64{t.access.Sec, t.change.Sec} {
		if sec < -most || sec > most {
			return times{}, fmt.Errorf("%w: a time of %d seconds", api.ErrInvalid, sec)
		}
	}
	return t, nil
}
