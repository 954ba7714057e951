package fs

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// TestStatus is the table of errors.
func TestStatus(t *testing.T) {
	a := &adapter{log: slog.New(slog.DiscardHandler)}
	for _, c := range []struct {
		err  error
		want fuse.Status
	}{
		{nil, fuse.OK},
		{unix.ENOSPC, fuse.Status(unix.ENOSPC)},
		{&os.PathError{Op: "open", Path: "x", Err: unix.EMLINK}, fuse.Status(unix.EMLINK)},
		{unix.ENOSYS, fuse.Status(unix.EOPNOTSUPP)},
		{errors.ErrUnsupported, fuse.Status(unix.EOPNOTSUPP)},
		{os.ErrNotExist, fuse.ENOENT},
		{context.Canceled, fuse.EINTR},
		{errors.New("strange"), fuse.EIO},
		{syscall.Errno(unix.EDQUOT), fuse.Status(unix.EDQUOT)},
	} {
		if got := a.status(c.err); got != c.want {
			t.Errorf("%v: got %v, want %v", c.err, got, c.want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { a.status(unix.ENOENT) }); n > 0 {
		t.Errorf("%v allocations for a plain errno", n)
	}
}
