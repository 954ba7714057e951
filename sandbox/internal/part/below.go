package part

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// Below is a directory of src as a tree; src itself if path is "". The path has no symbolic links.
func Below(src squashfs.Source, path string) squashfs.Source {
	if path == "" {
		return src
	}
	s := below{src, strings.Split(path, "/")}
	if o, ok := src.(orderer); ok {
		return struct {
			below
			orderer
		}{s, o}
	}
	return s
}

type below struct {
	squashfs.Source
	path []string
}

// Root implements squashfs.Source.
func (s below) Root(ctx context.Context) (*squashfs.Entry, error) {
	e, err := s.Source.Root(ctx)
	for _, name := range s.path {
		if e == nil || err != nil {
			break
		}
		e, err = s.Entry(ctx, e, name)
	}
	if e == nil && err == nil || err == nil && e.Attr.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = fmt.Errorf("%s: %w", strings.Join(s.path, "/"), unix.ENOENT)
	}
	if err != nil {
		return nil, err
	}
	root := *e
	root.Name = ""
	return &root, nil
}
