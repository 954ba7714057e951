package scoped

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

// reason is what an errno means for who calls.
type reason struct {
	errnos []unix.Errno
	class  error
	says   string // "" for the words of the system
}

var reasons = []reason{
	{[]unix.Errno{unix.ENOENT, unix.ENOTDIR}, api.ErrNotFound, ""},
	{[]unix.Errno{unix.EXDEV}, api.ErrRefused, "something else is mounted there"},
	{[]unix.Errno{unix.EACCES, unix.EPERM}, api.ErrRefused, ""},
	{
		[]unix.Errno{
			unix.ELOOP, unix.ENAMETOOLONG, unix.EISDIR, unix.EINVAL, unix.ENXIO, unix.ENODEV, unix.EFBIG, unix.EOPNOTSUPP,
			unix.EOVERFLOW, unix.ESPIPE, unix.EILSEQ,
		}, api.ErrInvalid, "",
	},
	{[]unix.Errno{unix.EEXIST, unix.ENOTEMPTY, unix.EBUSY, unix.ETXTBSY, unix.EMLINK}, api.ErrConflict, ""},
	{[]unix.Errno{unix.EROFS}, api.ErrConflict, "the workspace is mounted read-only"},
	{[]unix.Errno{unix.EAGAIN, unix.ESTALE}, api.ErrConflict, "it keeps changing"},
	{[]unix.Errno{unix.ENOTCONN, unix.ECONNABORTED}, api.ErrConflict, "the workspace is not mounted any more"},
	{
		[]unix.Errno{unix.ENOSPC, unix.EDQUOT, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.ENOSYS},
		api.ErrUnavailable, "",
	},
}

// Fault gives an error of a system call its class and the path that it is about.
func Fault(path string, err error) error {
	var errno unix.Errno
	if err == nil || !errors.As(err, &errno) {
		return err
	}
	for _, r := range reasons {
		switch {
		case !slices.Contains(r.errnos, errno):
		case r.says != "":
			return fmt.Errorf("%w: %s: %s: %w", r.class, api.Quoted(path), r.says, errno)
		default:
			return fmt.Errorf("%w: %s: %w", r.class, api.Quoted(path), errno)
		}
	}
	return fmt.Errorf("%s: %w", api.Quoted(path), err)
}

// passed reports whether a search goes on after an error: what it was about is gone, or is not for it.
func passed(err error) bool {
	for _, errno := range []unix.Errno{
		unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EXDEV, unix.EACCES, unix.EPERM, unix.ENAMETOOLONG, unix.EAGAIN,
		unix.ESTALE,
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
