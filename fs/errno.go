package fs

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// status maps an error of the overlay to what the caller of the file system sees. go-fuse's ToStatus is not used: it
// does not unwrap, and turns what it does not know into ENOSYS, which the kernel takes as "never ask again".
func (a *adapter) status(err error) fuse.Status {
	if err == nil {
		return fuse.OK
	}
	errno, plain := err.(unix.Errno) //nolint:errorlint // the common case, apart because errors.As allocates
	if !plain {
		errno = a.wrapped(err)
	}
	if errno == unix.ENOSYS {
		errno = unix.EOPNOTSUPP
	}
	return fuse.Status(errno)
}

// wrapped finds the errno that an error carries or stands for. Whatever has no better name is an input/output error,
// and worth a line in the log, because the caller sees nothing of its text.
func (a *adapter) wrapped(err error) unix.Errno {
	var errno unix.Errno
	switch {
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return unix.EINTR
	case errors.Is(err, errors.ErrUnsupported):
		return unix.EOPNOTSUPP
	case errors.Is(err, fs.ErrNotExist):
		return unix.ENOENT
	case errors.Is(err, fs.ErrExist):
		return unix.EEXIST
	case errors.Is(err, fs.ErrPermission):
		return unix.EPERM
	}
	a.log.Error("request failed", slog.String("error", err.Error()))
	return unix.EIO
}
