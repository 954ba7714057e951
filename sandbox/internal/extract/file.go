package extract

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
	"snapfs/squashfs"
)

// sharedSize is from which size on several goroutines write one file.
const sharedSize = 16 << 20

// do makes what a job names.
func (x *extraction) do(ctx context.Context, j *job) error {
	at, err := x.dirs.acquire(j.d)
	if err != nil {
		return err
	}
	defer x.dirs.release(j.d)
	if j.l != nil {
		return x.doLinked(ctx, j, func() (bool, error) {
			done, err := x.make(ctx, at, j)
			return done, failed(j.d, j.e.Name, err)
		})
	}
	if _, err := x.make(ctx, at, j); err != nil {
		return failed(j.d, j.e.Name, err)
	}
	return x.leave(j.d)
}

// make makes an inode; done is false if it was skipped.
func (x *extraction) make(ctx context.Context, at int, j *job) (done bool, err error) {
	if j.e.Attr.Mode&unix.S_IFMT == unix.S_IFREG {
		return x.makeFile(ctx, at, j)
	}
	return x.makeOther(at, j)
}

// makeFile makes a regular file.
func (x *extraction) makeFile(ctx context.Context, at int, j *job) (done bool, err error) {
	e := j.e
	if x.mayExist(j.d, e.Name) {
		kept, err := x.isThere(at, e)
		if kept || err != nil {
			return kept, err
		}
	}
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	// An ordinary user gives attributes only to files that it may write.
	mode := e.Attr.Mode&0o777 | 0o600
	fd, err := retry(func() (int, error) { return unix.Openat(at, e.Name, flags, mode) })
	if refusedName(err) {
		x.skip(j.d, e.Name, "name", err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() {
		if e := unix.Close(fd); err == nil {
			err = e
		}
	}()
	if e.Attr.Size > 0 {
		if err := x.contents(ctx, fd, e); err != nil {
			return false, err
		}
	}
	if err := x.attributes(fd, j.d, e.Name, e); err != nil {
		return false, err
	}
	x.wrote(1, 0)
	return true, nil
}

// isThere reports whether an interrupted extraction has completed a file, and removes what else has its name.
func (x *extraction) isThere(at int, e *squashfs.Entry) (bool, error) {
	var st unix.Stat_t
	err := unix.Fstatat(at, e.Name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	m := e.Attr.Mtime
	if x.trust && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size == e.Attr.Size &&
		st.Mtim.Sec == m.Sec && st.Mtim.Nsec == int64(m.Nsec) {
		x.kept.Add(1)
		x.wrote(1, 0)
		return true, nil
	}
	return false, unix.Unlinkat(at, e.Name, 0)
}

// contents writes the contents of a file, holes left out.
func (x *extraction) contents(ctx context.Context, fd int, e *squashfs.Entry) (err error) {
	f, err := x.src.Open(ctx, e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	extents, err := f.Extents()
	if err != nil {
		return err
	}
	size := e.Attr.Size
	p := pieces{extents: extents, size: size}
	if size < sharedSize {
		err = x.copyPieces(ctx, fd, f, &p)
	} else {
		err = x.copyShared(ctx, fd, f, &p)
	}
	if err != nil || p.end == size {
		return err
	}
	return unix.Ftruncate(fd, size)
}

// copyShared copies a large file with as many helpers as there are buffers to spare.
func (x *extraction) copyShared(ctx context.Context, fd int, f squashfs.File, p *pieces) error {
	g, ctx := errgroup.WithContext(ctx)
	for range x.opts.workers() - 1 {
		if !x.room.bytes.Try(bufferSize) {
			break
		}
		x.goDo(g, func() error { return x.copyWith(ctx, newBuffer(mostBuffer), fd, f, p) })
	}
	x.goDo(g, func() error { return x.copyPieces(ctx, fd, f, p) })
	return g.Wait()
}

// copyPieces copies pieces until there are no more.
func (x *extraction) copyPieces(ctx context.Context, fd int, f squashfs.File, p *pieces) error {
	buf, err := x.room.buffer(ctx, p.size)
	if err != nil {
		return err
	}
	return x.copyWith(ctx, buf, fd, f, p)
}

// copyWith is copyPieces with a buffer, which it gives back.
func (x *extraction) copyWith(ctx context.Context, buf *[]byte, fd int, f squashfs.File, p *pieces) error {
	defer x.room.giveBuffer(buf)
	for {
		off, n, err := p.next()
		if n == 0 || err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		b := (*buf)[:n]
		k, err := f.ReadAt(b, off)
		if k < n {
			if err == nil || errors.Is(err, io.EOF) {
				err = fmt.Errorf("%w: the contents end at %d", squashfs.ErrCorrupt, off+int64(k))
			}
			return err
		}
		if err := writeAll(fd, b, off); err != nil {
			return err
		}
		x.wrote(0, int64(n))
	}
}

// writeAll writes b at off. Writing at the end of a file is no seek.
func writeAll(fd int, b []byte, off int64) error {
	for len(b) > 0 {
		n, err := retry(func() (int, error) { return unix.Pwrite(fd, b, off) })
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrShortWrite
		}
		b, off = b[n:], off+int64(n)
	}
	return nil
}

// pieces divides the data of a file.
type pieces struct {
	size int64

	mu      lockorder.Mutex[lockorder.ExtractPieces]
	extents []squashfs.Extent // guarded by mu: what is left
	end     int64             // guarded by mu while goroutines copy: of the data so far
}

// next gives the next piece, which is in one extent; n is 0 after the last.
func (p *pieces) next() (off int64, n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.extents) > 0 {
		e := &p.extents[0]
		if e.Off < p.end || e.Len < 0 || e.Off > math.MaxInt64-e.Len {
			return 0, 0, fmt.Errorf("%w: extent of %d bytes at %d", squashfs.ErrCorrupt, e.Len, e.Off)
		}
		length := min(e.Len, bufferSize-e.Off%bufferSize, p.size-e.Off)
		if length <= 0 {
			p.extents = p.extents[1:]
			continue
		}
		off, n = e.Off, int(length)
		e.Off += length
		e.Len -= length
		p.end = off + length
		return off, n, nil
	}
	return 0, 0, nil
}
