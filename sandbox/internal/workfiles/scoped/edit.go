package scoped

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

// Edit replaces a text in a file; temp is as for Put. It reads and writes the file piece by piece.
func (r *Root) Edit(ctx context.Context, q api.EditFileRequest, temp string) (api.EditFileResult, error) {
	var done api.EditFileResult
	if q.Old == "" || q.Old == q.New {
		return done, fmt.Errorf("%w: the text to replace is empty, or the same as the new one", api.ErrInvalid)
	}
	t, err := r.target(q.Path, q.NoFollow, false)
	if err != nil {
		return done, err
	}
	defer t.close()
	if t.old == nil {
		return done, Fault(q.Path, unix.ENOENT)
	}
	if err := isRegular(t.old, q.Path); err != nil {
		return done, err
	}
	if err := t.mayPut(false); err != nil {
		return done, err
	}
	if t.old.Size > maxEdit {
		return done, fmt.Errorf("%w: %s has %d bytes: files of at most %d are edited", api.ErrInvalid, api.Quoted(q.Path),
			t.old.Size, maxEdit)
	}
	from, st, err := regular(t.was, q.Path)
	if err != nil {
		return done, err
	}
	defer func() { _ = from.Close() }() // nothing was written
	t.old = st
	d, err := t.draft(temp, 0)
	if err != nil {
		return done, err
	}
	defer d.drop()
	e := &editor{old: []byte(q.Old), new: []byte(q.New), from: io.LimitReader(from, maxEdit+1)}
	if _, err := d.copy(ctx, e); err != nil {
		return done, Fault(q.Path, err)
	}
	switch {
	case e.found == 0:
		return done, fmt.Errorf("%w: %s does not have the text that is to be replaced", api.ErrConflict, api.Quoted(q.Path))
	case e.found > 1 && !q.All:
		return done, fmt.Errorf("%w: %s has the text that is to be replaced %d times: say more of it, or replace all",
			api.ErrConflict, api.Quoted(q.Path), e.found)
	}
	if err := t.unchanged(); err != nil {
		return done, err
	}
	if err := ctx.Err(); err != nil {
		return done, err
	}
	done.Replaced = e.found
	done.File, err = d.publish(false)
	return done, err
}

// unchanged fails if the file of a target is not as it was.
func (t *target) unchanged() error {
	var now unix.Stat_t
	err := unix.Fstatat(t.dir, t.name, &now, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return Fault(t.path, err)
	}
	if err != nil || now.Ino != t.old.Ino || now.Size != t.old.Size || now.Ctim != t.old.Ctim || now.Mtim != t.old.Mtim {
		return fmt.Errorf("%w: %s was changed meanwhile: read it again", api.ErrConflict, api.Quoted(t.path))
	}
	return nil
}

// editor reads a text with all places of old replaced by new.
type editor struct {
	old, new []byte
	from     io.Reader

	found int    // how often old was there
	text  []byte // read and not yet looked through
	out   []byte // to be given next
	ended bool   // from has no more
}

// Read implements io.Reader.
func (e *editor) Read(p []byte) (int, error) {
	for len(e.out) == 0 {
		if e.ended && len(e.text) == 0 {
			return 0, io.EOF
		}
		if err := e.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, e.out)
	e.out = e.out[n:]
	return n, nil
}

// next looks through some more of the text.
func (e *editor) next() error {
	for !e.ended && len(e.text) < piece+len(e.old) {
		room := make([]byte, piece)
		n, err := e.from.Read(room)
		e.text = append(e.text, room[:n]...)
		if errors.Is(err, io.EOF) {
			e.ended = true
		} else if err != nil {
			return err
		}
	}
	switch i := bytes.Index(e.text, e.old); {
	case i == 0:
		e.found++
		e.out, e.text = e.new, e.text[len(e.old):]
	case i > 0:
		e.out, e.text = e.text[:i:i], e.text[i:]
	case e.ended:
		e.out, e.text = e.text, nil
	default: // the last bytes may begin the text
		keep := len(e.text) - len(e.old) + 1
		e.out, e.text = e.text[:keep:keep], bytes.Clone(e.text[keep:])
	}
	return nil
}
