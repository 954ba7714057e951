package layers

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// A redirect that the host has no room for in an attribute lies in a side file of the upper, and with that it goes. What
// is in the orphan directory for a successor has a link of that file there, too, which moves along with it.

// lead notes in an inode of the upper, which is about to move into the orphan directory, where its parts in the layers
// below are.
func (s *orphanTable) lead(from *dirStore, at location, path string) error {
	if err := from.putRedirect(at, path); err != nil {
		return err
	}
	return s.takeFar(from, at)
}

// takeFar links the side file with an inode's redirect, if it has one.
func (s *orphanTable) takeFar(from *dirStore, at location) error {
	number, err := at.getxattr(xattrFar)
	if errors.Is(err, unix.ENODATA) || err == nil && len(number) != 8 {
		return nil
	}
	if err != nil {
		return err
	}
	err = unix.Linkat(unix.AT_FDCWD, from.farName(number), s.root(), farBase(number), 0)
	if errors.Is(err, unix.EEXIST) { // it was to lose its name before
		return nil
	}
	if err == nil {
		s.far.Add(1)
	}
	return err
}

// farOf gives the name in the orphan directory of the redirect of what has a name there; "" if it has none.
func (s *orphanTable) farOf(name string) string {
	if s.far.Load() == 0 {
		return ""
	}
	number, err := nameIn(s.root(), name).getxattr(xattrFar)
	if err != nil || len(number) != 8 {
		return ""
	}
	return farBase(number)
}

// dropFar removes a redirect.
func (s *orphanTable) dropFar(name string) {
	if name != "" && unix.Unlinkat(s.root(), name, 0) == nil {
		s.far.Add(-1)
	}
}

// uselessFar gives those of the redirects that the process before has left which belong to none of the names in the orphan
// directory.
func (s *orphanTable) uselessFar(names, redirects []string) (useless []string) {
	s.far.Store(int64(len(redirects)))
	for _, name := range names {
		if far := s.farOf(name); far != "" {
			redirects = slices.DeleteFunc(redirects, func(r string) bool { return r == far })
		}
	}
	return redirects
}
