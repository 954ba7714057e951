package threeway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"

	"golang.org/x/sys/unix"

	"snapfs/internal/textmerge"
)

// permissions are the bits of a mode that chmod changes.
const permissions = 0o7777

// modify plans the change of what From has changed where it is, or where it was moved to.
func (p *planner) modify(path string) error {
	base, ok := p.f.base(path)
	if !ok {
		return nil
	}
	wanted, err := p.From.Lstat(path)
	if wanted == nil || err != nil {
		return err
	}
	at, old, now, err := p.both(base)
	if err != nil {
		return err
	}
	switch {
	case now == nil && isDir(wanted): // it comes back if something in it does
		return nil
	case now == nil:
		if p.conflict(DeletedChanged, path, "changed in FROM, deleted in the target") {
			return p.putNew(path)
		}
		return nil
	case kind(now) != kind(wanted):
		if !p.conflict(Types, at, "changed in FROM, of another type in the target") {
			return nil
		}
		if err := p.takeTree(at, now); err != nil {
			return err
		}
		return p.putNew(path)
	}
	set := Set{Path: p.final(base), From: wanted}
	if anew, err := p.contents(&set, at, old, wanted, now); err != nil || anew {
		if err == nil {
			if err = p.takeTree(at, now); err == nil {
				err = p.putFile(path, wanted)
			}
		}
		return err
	}
	if err := p.attributes(&set, at, old, wanted, now); err != nil {
		return err
	}
	p.set(set)
	return nil
}

// set notes a change, if it is one.
func (p *planner) set(s Set) {
	if s.Mode != nil || s.Owner != nil || len(s.Xattrs) > 0 || s.Merged || s.Content || s.Times {
		p.plan.Sets = append(p.plan.Sets, s)
	}
}

// contents decides what a file holds; anew says that it has to be made anew, as From has it.
func (p *planner) contents(set *Set, at string, old, wanted, now File) (anew bool, err error) {
	if isDir(wanted) {
		return false, nil
	}
	times := wanted.Stat().Mtime != old.Stat().Mtime && now.Stat().Mtime == old.Stat().Mtime
	if linked := wanted.Stat().Nlink > 1 || now.Stat().Nlink > 1; linked && wanted.Stat().Ino != old.Stat().Ino {
		// It is another file now, perhaps another name of one; the one that was there stays what it is.
		if changed, err := p.differs(old, now); !changed || err != nil {
			return true, err
		}
	}
	same, err := Same(p.ctx, old, wanted)
	if err != nil || same {
		set.Times = same && times
		return false, err
	}
	kept, err := Same(p.ctx, old, now)
	if err != nil {
		return false, err
	}
	if kept {
		if !isReg(wanted) { // links and devices cannot be written
			return true, nil
		}
		set.Content, set.Times = true, true
		return false, nil
	}
	if equal, err := Same(p.ctx, wanted, now); err != nil || equal {
		return false, err
	}
	if isReg(wanted) {
		if merged, err := p.text(set, at, old, wanted, now); err != nil || merged {
			return false, err
		}
	}
	if !p.conflict(BothChanged, at, what(wanted)) {
		return false, nil
	}
	if !isReg(wanted) {
		return true, nil
	}
	set.Content, set.Times = true, true
	return false, nil
}

func what(f File) string {
	switch kind(f) {
	case unix.S_IFREG:
		return "binary"
	case unix.S_IFLNK:
		return "symbolic link"
	}
	return "device"
}

// maxMerged bounds the bytes of the merged texts of a plan. What is beyond is taken whole from one side or is a conflict, as
// other data is.
const maxMerged = 256 << 20

// text merges what both sides have written; done if that is settled, with a conflict or without. Without a base nothing
// of the texts is the same.
func (p *planner) text(set *Set, at string, old, wanted, now File) (done bool, err error) {
	var texts [3][]byte
	for i, f := range []File{old, wanted, now} {
		if f == nil {
			continue
		}
		if f.Stat().Size > textmerge.MaxBytes {
			return false, nil
		}
		if texts[i], err = f.Read(); err != nil {
			return false, err
		}
		if !textmerge.IsText(texts[i]) {
			return false, nil
		}
	}
	o := textmerge.Options{OurName: p.OurName, TheirName: p.TheirName}
	switch p.Resolve {
	case Ours:
		o.Favor = textmerge.Ours
	case Theirs:
		o.Favor = textmerge.Theirs
	}
	if p.mergedBytes+int64(len(texts[1])+len(texts[2])) > maxMerged {
		return false, nil
	}
	r, err := textmerge.Merge(p.ctx, texts[0], texts[2], texts[1], o)
	if err != nil {
		return false, err
	}
	if r.Conflicts > 0 && p.Resolve == Stop {
		p.conflict(BothChanged, at, "text")
		return true, nil
	}
	if !bytes.Equal(r.Text, texts[2]) {
		set.Text, set.Merged = r.Text, true
		p.mergedBytes += int64(len(r.Text))
	}
	p.plan.Merged++
	return true, nil
}

// attributes decides about permissions, owner and attributes. Without a base, old is nil.
func (p *planner) attributes(set *Set, at string, old, wanted, now File) error {
	w, n := wanted.Stat(), now.Stat()
	was := w
	known := old != nil
	if known {
		was = old.Stat()
	}
	if kind(wanted) != unix.S_IFLNK { // those of a link mean nothing
		if m := w.Mode & permissions; p.takes(known, was.Mode&permissions, m, n.Mode&permissions, Modes, at, "permissions") {
			set.Mode = &m
		}
	}
	o := [2]uint32{w.UID, w.GID}
	if p.takes(known, [2]uint32{was.UID, was.GID}, o, [2]uint32{n.UID, n.GID}, Owners, at, "owner") {
		set.Owner = &o
	}
	var all [3]map[string]string
	for i, f := range []File{old, wanted, now} {
		if f != nil {
			var err error
			if all[i], err = f.Xattrs(); err != nil {
				return err
			}
		}
	}
	var names []string
	for _, m := range all {
		for name := range m {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	value := func(i int, name string) any {
		if v, ok := all[i][name]; ok {
			return v
		}
		return nil
	}
	for _, name := range slices.Compact(names) {
		v := value(1, name)
		if !known && v == nil {
			continue // only the target has it
		}
		was := value(0, name)
		if !p.takes(known || value(2, name) == nil, was, v, value(2, name), Attributes, at, name) {
			continue
		}
		if set.Xattrs == nil {
			set.Xattrs = map[string]*string{}
		}
		set.Xattrs[name] = nil
		if s, ok := v.(string); ok {
			set.Xattrs[name] = &s
		}
	}
	return nil
}

// takes decides about one property: whether that of From is to be taken.
func (p *planner) takes(known bool, was, wanted, now any, kind, at, what string) bool {
	switch {
	case wanted == now, known && wanted == was:
		return false
	case known && now == was:
		return true
	}
	return p.conflict(kind, at, what)
}

// differs reports whether an entity is not what it was, but for its place and its times, and what is in directories.
func (p *planner) differs(old, now File) (bool, error) {
	a, b := old.Stat(), now.Stat()
	if a.Mode&unix.S_IFMT != b.Mode&unix.S_IFMT {
		return true, nil
	}
	same, err := p.alike(old, now)
	return !same, err
}

// alike reports whether two files are the same, but for times.
func (p *planner) alike(x, y File) (bool, error) {
	if same, err := sameAttributes(x, y); !same || err != nil {
		return false, err
	}
	return Same(p.ctx, x, y)
}

// sameAttributes reports whether two files have the same mode, owner and attributes.
func sameAttributes(x, y File) (bool, error) {
	a, b := x.Stat(), y.Stat()
	if a.Mode != b.Mode || a.UID != b.UID || a.GID != b.GID {
		return false, nil
	}
	xs, err := x.Xattrs()
	if err != nil {
		return false, err
	}
	ys, err := y.Xattrs()
	if err != nil {
		return false, err
	}
	if len(xs) != len(ys) {
		return false, nil
	}
	for name, v := range xs {
		if w, ok := ys[name]; !ok || v != w {
			return false, nil
		}
	}
	return true, nil
}

// Same reports whether two files of one type hold the same: data, where a link leads, what device it is. Of directories
// it looks at nothing. The errors are those of the files, and that of ctx.
func Same(ctx context.Context, x, y File) (bool, error) {
	a, b := x.Stat(), y.Stat()
	switch a.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return true, nil
	case unix.S_IFLNK:
		s, err := x.Target()
		if err != nil {
			return false, err
		}
		t, err := y.Target()
		return s == t, err
	case unix.S_IFREG:
		if a.Size != b.Size {
			return false, nil
		}
		if s, ok := x.(sharer); ok {
			if shared, err := s.Shares(y); shared || err != nil {
				return shared, err
			}
		}
		return equalData(ctx, x, y)
	}
	return a.Rdev == b.Rdev, nil
}

// sharer is a File that knows of another one to have the same data without reading it.
type sharer interface {
	Shares(other File) (bool, error)
}

// errDiffer ends a comparison.
var errDiffer = errors.New("they differ")

// equalData compares what two regular files hold.
func equalData(ctx context.Context, x, y File) (bool, error) {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := x.CopyTo(ctx, w)
		w.CloseWithError(err)
		done <- err
	}()
	buf := make([]byte, 0, 64<<10)
	err := y.CopyTo(ctx, compareWriter{r, &buf})
	if err == nil {
		if n, _ := r.Read(make([]byte, 1)); n > 0 {
			err = errDiffer
		}
	}
	_ = r.CloseWithError(errDiffer) // it cannot fail
	other := <-done
	switch {
	case errors.Is(err, errDiffer):
		return false, nil
	case err != nil:
		return false, err
	case other != nil && !errors.Is(other, errDiffer):
		return false, other
	}
	return true, nil
}

// compareWriter compares what is written to it with what a reader gives.
type compareWriter struct {
	r   io.Reader
	buf *[]byte
}

// Write implements io.Writer.
func (c compareWriter) Write(data []byte) (int, error) {
	*c.buf = slices.Grow((*c.buf)[:0], len(data))[:len(data)]
	if _, err := io.ReadFull(c.r, *c.buf); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, errDiffer
	} else if err != nil {
		return 0, err
	}
	if !bytes.Equal(data, *c.buf) {
		return 0, errDiffer
	}
	return len(data), nil
}
