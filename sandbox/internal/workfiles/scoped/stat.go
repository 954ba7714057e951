package scoped

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

// Stat describes what a path leads to.
func (r *Root) Stat(q api.WorkFileRequest) (api.File, error) {
	fd, err := r.look(q.Path, q.NoFollow)
	if err != nil {
		return api.File{}, err
	}
	defer closing(fd)
	f, err := describe(fd, shown(q.Path))
	return f, Fault(q.Path, err)
}

// look opens what a path leads to without doing anything to it.
func (r *Root) look(path string, noFollow bool) (int, error) {
	if err := valid(path); err != nil {
		return -1, err
	}
	flags := uint64(unix.O_PATH)
	if noFollow {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := r.open(path, flags, 0)
	return fd, Fault(path, err)
}

// List calls fn for each name in a directory. A name on which something is mounted is told with its type only.
func (r *Root) List(ctx context.Context, q api.WorkFileRequest, fn func(api.File) error) error {
	if err := valid(q.Path); err != nil {
		return err
	}
	flags := uint64(unix.O_RDONLY | unix.O_DIRECTORY)
	if q.NoFollow {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := r.open(q.Path, flags, 0)
	if err != nil {
		if err == unix.ENOTDIR && r.isThere(q) { //nolint:errorlint // of the system call itself
			err = unix.EINVAL
		}
		return Fault(q.Path, err)
	}
	defer closing(fd)
	err = names(fd, func(name string, kind uint8) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		f, err := describeName(fd, name)
		switch {
		case err == unix.EXDEV: //nolint:errorlint // of the system call itself
			return fn(api.File{Path: name, RawPath: api.RawPath(name), Mode: uint32(kind) << 12})
		case err != nil && passed(err): // just removed
			return nil
		case err != nil:
			return Fault(name, err)
		}
		return fn(f)
	})
	return Fault(q.Path, err)
}

// isThere reports whether a path leads to something.
func (r *Root) isThere(q api.WorkFileRequest) bool {
	fd, err := r.look(q.Path, q.NoFollow)
	if err == nil {
		closing(fd)
	}
	return err == nil
}

// describeName describes a name in a directory.
func describeName(dir int, name string) (api.File, error) {
	fd, err := openIn(dir, name, unix.O_PATH|unix.O_NOFOLLOW, below)
	if err != nil {
		return api.File{}, err
	}
	defer closing(fd)
	return describe(fd, name)
}

// describe describes what a descriptor is of.
func describe(fd int, path string) (api.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return api.File{}, err
	}
	f := fileOf(&st, path)
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		buf := make([]byte, maxPath+1)
		n, err := unix.Readlinkat(fd, "", buf)
		if err != nil {
			return f, err
		}
		f.Target = string(buf[:n])
		f.RawTarget = api.RawPath(f.Target)
	}
	return f, nil
}

// fileOf is what attributes say of a file.
func fileOf(st *unix.Stat_t, path string) api.File {
	return api.File{
		Path: path, RawPath: api.RawPath(path), Mode: st.Mode, UID: st.Uid, GID: st.Gid, Links: uint32(st.Nlink),
		Size: st.Size, Device: st.Rdev, Modified: time.Unix(st.Mtim.Sec, st.Mtim.Nsec).UTC(),
	}
}
