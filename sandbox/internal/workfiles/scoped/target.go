package scoped

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

// target is a name that is to be given to a new file. Close it.
type target struct {
	dir  int          // descriptor of its directory
	name string       // its last name, which is no link, or one that is to be replaced
	path string       // from the root
	old  *unix.Stat_t // what has it now; nil: nothing
	was  int          // descriptor of that, which does nothing; -1: none

	plain bool // see Root
}

func (t *target) close() {
	closing(t.dir)
	if t.was >= 0 {
		closing(t.was)
	}
}

// target finds the name that a file is written by: where the last one of a path is a symbolic link, what that leads to,
// be it there or not. With parents it makes the directories on the way.
func (r *Root) target(p string, noFollow, parents bool) (*target, error) {
	asked := p
	if strings.HasSuffix(p, "/") {
		return nil, fmt.Errorf("%w: %s names a directory", api.ErrInvalid, api.Quoted(p))
	}
	for range maxLinks {
		if parents {
			dir, _ := split(p)
			if err := r.makeAll(dir, 0o755); err != nil {
				return nil, err
			}
		}
		dir, name, err := r.parent(p)
		if err != nil {
			return nil, err
		}
		t := &target{dir: dir, name: name, path: p, was: -1, plain: r.Plain}
		link, err := t.look()
		switch {
		case errors.Is(err, unix.ENOENT):
			return t, nil
		case err != nil:
			t.close()
			return nil, Fault(asked, err)
		case link == "" || noFollow:
			return t, nil
		}
		t.close()
		above, _ := split(p)
		if p = link; !strings.HasPrefix(link, "/") {
			p = above + link
		}
		if len(p) > maxPath {
			return nil, Fault(asked, unix.ENAMETOOLONG)
		}
		if strings.HasSuffix(p, "/") {
			return nil, Fault(asked, unix.EISDIR)
		}
	}
	return nil, Fault(asked, unix.ELOOP)
}

// look finds out what has the name now, and where it leads if that is a symbolic link.
func (t *target) look() (link string, err error) {
	if t.was, err = openIn(t.dir, t.name, unix.O_PATH|unix.O_NOFOLLOW, below); err != nil {
		return "", err
	}
	t.old = new(unix.Stat_t)
	if err := unix.Fstat(t.was, t.old); err != nil || t.old.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", err
	}
	buf := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(t.was, "", buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// makeAll makes a directory and those on the way that are missing.
func (r *Root) makeAll(p string, mode uint32) error {
	fd, err := r.open(p, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err == nil {
		closing(fd)
		return nil
	}
	if !errors.Is(err, unix.ENOENT) {
		return Fault(p, err)
	}
	for end := 0; end < len(p); {
		for end < len(p) && p[end] == '/' {
			end++
		}
		for end < len(p) && p[end] != '/' {
			end++
		}
		fd, err := r.open(p[:end], unix.O_PATH|unix.O_DIRECTORY, 0)
		if errors.Is(err, unix.ENOENT) {
			if err = r.mkdir(p[:end], mode); err == nil || errors.Is(err, unix.EEXIST) {
				fd, err = r.open(p[:end], unix.O_PATH|unix.O_DIRECTORY, 0)
			}
		}
		if err != nil {
			return Fault(p[:end], err)
		}
		closing(fd)
	}
	return nil
}

// mkdir makes a directory.
func (r *Root) mkdir(p string, mode uint32) error {
	dir, name, err := r.parent(p)
	if err != nil {
		return err
	}
	defer closing(dir)
	return unix.Mkdirat(dir, name, mode)
}
