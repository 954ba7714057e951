package mountio

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// operation is the mean time of one operation.
type operation struct {
	Name   string  `json:"name"`
	Micros float64 `json:"micros"`
}

// OperationsCommand times single operations in the working directory, which must be the root of a fixture's tree.
func OperationsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "operations", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := &operator{buf: make([]byte, 4096)}
			if err := o.all(); err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(o.found)
		},
	}
}

// operator runs operations one after the other, on one thread.
type operator struct {
	buf   []byte
	found []operation
	err   error // the first
}

// time runs fn n times.
func (o *operator) time(name string, n int, fn func(i int) error) {
	if o.err != nil {
		return
	}
	start := time.Now()
	for i := range n {
		if err := fn(i); err != nil {
			o.err = fmt.Errorf("%s: %w", name, err)
			return
		}
	}
	o.found = append(o.found, operation{name, float64(time.Since(start).Nanoseconds()) / float64(n) / 1e3})
}

func names(format string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(format, i)
	}
	return out
}

func (o *operator) all() error {
	runtime.LockOSThread()
	small := make([]string, smallFiles)
	missing := make([]string, smallFiles)
	for i := range small {
		small[i] = smallName(i)
		missing[i] = small[i] + ".no"
	}
	var st unix.Stat_t
	stat := func(i int) error { return unix.Lstat(small[i%smallFiles], &st) }
	read := func(i int) error {
		fd, err := unix.Open(small[i%smallFiles], unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if n, err := unix.Read(fd, o.buf); n != len(o.buf) {
			return fmt.Errorf("read %d bytes: %w", n, err)
		}
		return unix.Close(fd)
	}
	absent := func(i int) error {
		if err := unix.Lstat(missing[i%smallFiles], &st); !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("found what is not there: %w", err)
		}
		return nil
	}
	o.time("stat first", smallFiles, stat)
	o.time("stat again", 10*smallFiles, stat)
	o.time("open+read+close first", smallFiles, read)
	o.time("open+read+close again", 2*smallFiles, read)
	o.time("missing name first", smallFiles, absent)
	o.time("missing name again", 2*smallFiles, absent)
	o.changes()
	return o.err
}

// changes are the operations that write.
func (o *operator) changes() {
	const n = 2000
	if err := unix.Mkdir("ops", 0o755); err != nil && o.err == nil {
		o.err = err
		return
	}
	f, g, w, d := names("ops/f%d", n), names("ops/g%d", n), names("ops/w%d", n), names("ops/d%d", n)
	open := func(path string, flags int, write bool) error {
		fd, err := unix.Open(path, flags|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		if err == nil && write {
			_, err = unix.Write(fd, o.buf)
		}
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
	o.time("create+close", n, func(i int) error { return open(f[i], unix.O_CREAT|unix.O_EXCL, false) })
	o.time("create+write 4K+close", n, func(i int) error { return open(w[i], unix.O_CREAT|unix.O_EXCL, true) })
	o.time("open+truncate+write+close", n, func(i int) error { return open(f[i], unix.O_TRUNC, true) })
	o.time("rename", n, func(i int) error { return unix.Rename(f[i], g[i]) })
	o.time("chmod", n, func(i int) error { return unix.Chmod(g[i], 0o600) })
	o.time("unlink", n, func(i int) error { return unix.Unlink(g[i]) })
	o.time("mkdir", n, func(i int) error { return unix.Mkdir(d[i], 0o755) })
	o.time("rmdir", n, func(i int) error { return unix.Rmdir(d[i]) })
	fd, err := unix.Open("ops/one", unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		o.err = errors.Join(o.err, err)
		return
	}
	defer func() { o.err = errors.Join(o.err, unix.Close(fd)) }()
	o.time("pwrite 4K", 4*n, func(i int) error { _, err := unix.Pwrite(fd, o.buf, int64(i%1024)*4096); return err })
	o.time("pread 4K", 4*n, func(i int) error { _, err := unix.Pread(fd, o.buf, int64(i%1024)*4096); return err })
	o.time("pwrite 4K + fsync", 100, func(i int) error {
		if _, err := unix.Pwrite(fd, o.buf, int64(i)*4096); err != nil {
			return err
		}
		return unix.Fsync(fd)
	})
}
