package scoped

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

// grep is one search for lines.
type grep struct {
	pattern *regexp.Regexp
	include string
	most    int
	fn      func(api.GrepMatch) error

	told int
	read int64
	done api.SearchResult
}

// Grep calls fn for the lines that match a regular expression.
func (r *Root) Grep(ctx context.Context, q api.GrepRequest, fn func(api.GrepMatch) error) (api.SearchResult, error) {
	g := &grep{include: strings.TrimLeft(q.Include, "/"), most: limit(q.Limit, grepDefault, grepMost), fn: fn}
	if err := g.compile(q); err != nil {
		return g.done, err
	}
	fd, err := r.look(q.Path, q.NoFollow)
	if err != nil {
		return g.done, err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		defer closing(fd)
		if err == nil {
			err = isRegular(&st, q.Path)
		}
		if err == nil {
			err = g.file(ctx, fd, shown(q.Path))
		}
		return g.end(q.Path, err)
	}
	w := &walk{dir: fd, hidden: q.Hidden}
	defer closing(w.dir)
	w.visit = func(at, name string, kind uint8) (bool, error) {
		if kind != unix.DT_REG || !g.includes(at, name) {
			return true, nil
		}
		fd, err := w.open(at, unix.O_PATH|unix.O_NOFOLLOW)
		if err == nil {
			defer closing(fd)
			err = g.file(ctx, fd, path.Join(shown(q.Path), at))
		}
		if err != nil && (passed(err) || errors.Is(err, api.ErrInvalid)) { // gone, or no regular file any more
			return false, nil
		}
		return false, err
	}
	err = w.run(ctx, "")
	g.done.Truncated = g.done.Truncated || w.cut
	return g.end(q.Path, err)
}

func (g *grep) end(path string, err error) (api.SearchResult, error) {
	if errors.Is(err, errEnough) {
		err = nil
	}
	return g.done, Fault(path, err)
}

// compile reads the patterns of a request.
func (g *grep) compile(q api.GrepRequest) (err error) {
	if len(q.Pattern) > maxPattern || q.Pattern == "" {
		return fmt.Errorf("%w: a pattern of %d bytes: 1 to %d", api.ErrInvalid, len(q.Pattern), maxPattern)
	}
	if g.include != "" {
		if err := validPattern(g.include); err != nil {
			return err
		}
	}
	pattern := q.Pattern
	if q.IgnoreCase {
		pattern = "(?i:" + pattern + ")"
	}
	if g.pattern, err = regexp.Compile(pattern); err != nil {
		return fmt.Errorf("%w: pattern %s: %w", api.ErrInvalid, api.Quoted(q.Pattern), err)
	}
	return nil
}

// includes reports whether a file is to be searched.
func (g *grep) includes(at, name string) bool {
	if g.include == "" {
		return true
	}
	if strings.Contains(g.include, "/") {
		name = at
	}
	match, _ := doublestar.Match(g.include, name) // it is valid
	return match
}

var lines = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, maxLine) }}

// file searches a file.
func (g *grep) file(ctx context.Context, fd int, at string) error {
	f, _, err := regular(fd, at)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written
	g.done.Files++
	in := lines.Get().(*bufio.Reader)
	defer lines.Put(in)
	defer in.Reset(nil)
	in.Reset(f)
	if head, _ := in.Peek(binaryHead); bytes.IndexByte(head, 0) >= 0 { // an error comes again
		return nil
	}
	for n := 1; ; n++ {
		if n%64 == 1 && ctx.Err() != nil {
			return ctx.Err()
		}
		line, err := in.ReadSlice('\n')
		g.read += int64(len(line))
		if len(line) > 0 {
			if err := g.line(at, n, line); err != nil {
				return err
			}
		}
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of a long line
			var rest []byte
			if ctx.Err() != nil {
				return ctx.Err()
			}
			rest, err = in.ReadSlice('\n')
			if g.read += int64(len(rest)); g.read > maxSearched {
				break
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if g.read > maxSearched {
			g.done.Truncated = true
			return errEnough
		}
		if err != nil {
			return Fault(at, err)
		}
	}
}

// line tells of a line that matches.
func (g *grep) line(at string, n int, line []byte) error {
	line = bytes.TrimRight(line, "\r\n")
	if !g.pattern.Match(line) {
		return nil
	}
	if g.told == g.most {
		g.done.Truncated = true
		return errEnough
	}
	g.told++
	return g.fn(api.GrepMatch{Path: at, RawPath: api.RawPath(at), Line: n, Text: textOf(line)})
}

// textOf is what is told of a line: UTF-8, and not too long.
func textOf(line []byte) string {
	if len(line) > maxText {
		end := maxText
		for end > maxText-utf8.UTFMax && !utf8.RuneStart(line[end]) {
			end--
		}
		line = line[:end]
	}
	return strings.ToValidUTF8(string(line), "\uFFFD")
}
