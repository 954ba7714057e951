package scoped

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"snapfs/sandbox/api"
)

var pieces = sync.Pool{New: func() any { return new([piece]byte) }}

// Get writes a range of a regular file.
func (r *Root) Get(ctx context.Context, q api.GetFileRequest, w io.Writer) (api.File, error) {
	if q.Offset < 0 || q.Length < 0 {
		return api.File{}, fmt.Errorf("%w: a range from %d, %d bytes long", api.ErrInvalid, q.Offset, q.Length)
	}
	fd, err := r.look(q.Path, q.NoFollow)
	if err != nil {
		return api.File{}, err
	}
	defer closing(fd)
	f, st, err := regular(fd, q.Path)
	if err != nil {
		return api.File{}, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	left := q.Length
	if left == 0 {
		left = math.MaxInt64
	}
	room := pieces.Get().(*[piece]byte)
	defer pieces.Put(room)
	for at := q.Offset; left > 0; {
		if err := ctx.Err(); err != nil {
			return api.File{}, err
		}
		n, err := f.ReadAt(room[:min(left, piece)], at)
		if n > 0 {
			if _, err := w.Write(room[:n]); err != nil {
				return api.File{}, err
			}
		}
		at, left = at+int64(n), left-int64(n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return api.File{}, Fault(q.Path, err)
		}
	}
	return fileOf(st, shown(q.Path)), nil
}
