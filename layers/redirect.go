package layers

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// setRedirect notes in the upper where the layers below have a merged directory or a metacopy's data, unless that is
// noted already. It is called before the rename. Of what lies so deep that no image could hold the path it gives EXDEV:
// programs that rename copy then.
func (o *Overlay) setRedirect(n *node) error {
	path, err := o.lowerPath(n)
	if err != nil {
		return err
	}
	if len(path) > longestRedirect {
		return unix.EXDEV
	}
	p, h, err := n.location()
	if err != nil {
		return err
	}
	defer h.release()
	return o.upper.store.putRedirect(p, path)
}

// longestRedirect is the longest redirect, in bytes: an image has no room for a longer attribute.
const longestRedirect = 1<<16 - 1

// lowerPath is the path that leads to n's parts below in the merged layers below the upper: that of the overlay, but
// for the renames that the upper has recorded as redirects. Redirects of the layers below lead on from there.
func (o *Overlay) lowerPath(n *node) (string, error) {
	var way []string // from n upwards
	size := 0
	join := func(top string) string {
		b := append(make([]byte, 0, len(top)+size), top...)
		for i := len(way) - 1; i >= 0; i-- {
			b = append(append(b, '/'), way[i]...)
		}
		return string(b)
	}
	for ; n.parent != nil; n = n.parent {
		name := n.name
		if n.top.layer == o.upper.layer {
			p, h, err := n.location()
			if err != nil {
				return "", err
			}
			r, err := o.upper.store.redirect(p)
			h.release()
			switch {
			case err != nil:
				return "", err
			case r != "" && r[0] == '/':
				return join(r), nil
			case r != "":
				name = r
			}
		}
		way = append(way, name)
		size += 1 + len(name)
	}
	return join(""), nil
}

// pinRedirect is setRedirect for a metacopy that gets a second name.
func (o *Overlay) pinRedirect(n *node) error {
	if len(n.below) == 0 || !isReg(n.typ) {
		return nil
	}
	return o.setRedirect(n)
}

// redirect reads an inode's redirect; "" if it has none.
func (s *dirStore) redirect(p location) (string, error) {
	v, err := p.getxattr(xattrRedirect)
	if !errors.Is(err, unix.ENODATA) {
		return string(v), err
	}
	v, err = p.getxattr(xattrFar)
	if errors.Is(err, unix.ENODATA) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return s.readFar(v)
}

// putRedirect writes a redirect: into the kernel's attribute, or where the host has no room for the path there (ext4
// keeps less than 4,096 bytes of attributes), into a side file, whose number is kept in xattrFar, 8 bytes, little
// endian. The kernel's overlayfs does not follow the latter.
func (s *dirStore) putRedirect(p location, path string) error {
	if old, err := s.redirect(p); err != nil || old == path {
		return err
	}
	if len(path) > longestRedirect {
		return unix.ENAMETOOLONG // nobody would follow it
	}
	err := p.setxattr(xattrRedirect, []byte(path), 0)
	if err == nil {
		return dropXattr(p, xattrFar)
	}
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.E2BIG) && !errors.Is(err, unix.ERANGE) {
		return err
	}
	number := make([]byte, 8)
	_, _ = rand.Read(number) // never fails
	if err := s.writeFar(number, path); err != nil {
		return err
	}
	if err := p.setxattr(xattrFar, number, 0); err != nil {
		return err
	}
	return dropXattr(p, xattrRedirect)
}

// dropRedirect removes an inode's redirect, if it has one.
func dropRedirect(p location) error {
	return errors.Join(dropXattr(p, xattrRedirect), dropXattr(p, xattrFar))
}

func (s *dirStore) farName(number []byte) string { return filepath.Join(s.side, farBase(number)) }

const farPrefix = "redirect-"

func farBase(number []byte) string {
	return farPrefix + strconv.FormatUint(binary.LittleEndian.Uint64(number), 16)
}

// writeFar makes a side file durable before anything names it.
func (s *dirStore) writeFar(number []byte, path string) error {
	if err := os.Mkdir(s.side, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	fd, err := openat(unix.AT_FDCWD, s.farName(number), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := pwriteFull(fd, []byte(path), 0); err != nil {
		return err
	}
	return unix.Fsync(fd)
}

func (s *dirStore) readFar(number []byte) (string, error) {
	if len(number) != 8 {
		return "", fmt.Errorf("a redirect with a number of %d bytes", len(number))
	}
	name := s.farName(number)
	if s.orphans {
		name = nameIn(s.root, farBase(number)).proc()
	}
	path, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read a redirect: %s", err) //nolint:errorlint // damage, whatever errno it came with
	}
	return string(path), nil
}
