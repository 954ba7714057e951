// Package patient reads files that may lie on a file system which does not answer, such as one of FUSE whose server
// hangs. A system call cannot be taken back: its thread stays, and ends when the file system does. What waits for it need
// not, so each call is made by a goroutine of its own, and given up after a while.
package patient

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

// Wait runs fn, in another goroutine as a rule, and gives its error, or one of its own if that takes too long. Then late,
// unless it is nil, is called when fn has ended without an error. What fn uses is fn's own from then on.
type Wait func(fn func() error, late func()) error

// Forever is a Wait that does not give up.
func Forever(fn func() error, _ func()) error { return fn() }

// piece is how much is read by one system call at most, in bytes.
const piece = 1 << 20

// source is what a File reads; an *os.File as a rule.
type source interface {
	io.ReaderAt
	io.Closer
	Stat() (fs.FileInfo, error)
}

// File is an open file. Safe for concurrent use.
type File struct {
	f    source
	wait Wait
	info fs.FileInfo
	lost atomic.Pointer[error] // a read was given up
}

// Open opens a file, as open does, which is called with the rights that it needs. Errors name it if open's do.
func Open(wait Wait, open func() (*os.File, error)) (*File, error) {
	return newFile(wait, func() (source, error) { return open() })
}

func newFile(wait Wait, open func() (source, error)) (*File, error) {
	var f source
	var info fs.FileInfo
	err := wait(func() (err error) {
		if f, err = open(); err != nil {
			return err
		}
		if info, err = f.Stat(); err != nil {
			err = errors.Join(err, f.Close())
		}
		return err
	}, func() { _ = f.Close() }) // it was only read
	if err != nil {
		return nil, err
	}
	return &File{f: f, wait: wait, info: info}, nil
}

// Info is what the file was when it was opened.
func (f *File) Info() fs.FileInfo { return f.info }

// Size is how long it was then.
func (f *File) Size() int64 { return f.info.Size() }

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(p []byte, off int64) (n int, err error) {
	for {
		k, err := f.readPiece(p[n:min(len(p), n+piece)], off+int64(n))
		n += k
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

func (f *File) readPiece(p []byte, off int64) (int, error) {
	if err := f.lost.Load(); err != nil {
		return 0, *err
	}
	room := make([]byte, len(p)) // a read that is given up goes on to use it
	var n int
	var readErr error
	err := f.wait(func() error {
		n, readErr = f.f.ReadAt(room, off)
		return nil
	}, nil)
	if err != nil {
		f.lost.Store(&err)
		return 0, err
	}
	copy(p, room[:n])
	return n, readErr
}

// OpenBelow opens a file below a directory. No symbolic link is followed, and no mount is entered. do runs what opens it.
func (f *File) OpenBelow(name string, do func(fn func() error) error) (*File, error) {
	dir, ok := f.f.(*os.File)
	if !ok {
		return nil, fmt.Errorf("%w: no directory", api.ErrInvalid)
	}
	return Open(f.wait, func() (file *os.File, err error) {
		err = do(func() error {
			raw, err := dir.SyscallConn()
			if err != nil {
				return err
			}
			return errors.Join(raw.Control(func(at uintptr) {
				var fd int
				fd, err = unix.Openat2(int(at), name, &unix.OpenHow{
					Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC,
					Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
				})
				if err == nil {
					file = os.NewFile(uintptr(fd), name)
				}
			}), err)
		})
		return file, err
	})
}

// Close implements io.Closer. It never fails: the file was only read.
func (f *File) Close() error {
	_ = f.wait(f.f.Close, nil)
	return nil
}
