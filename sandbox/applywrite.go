package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/internal/sparse"
	"snapfs/layers"
	"snapfs/sandbox/internal/threeway"
)

// layerWriter carries a plan out in an overlay that nobody mounts.
type layerWriter struct {
	ctx    context.Context
	o      *layers.Overlay
	caller layers.Caller
	dirs   map[string]layers.NodeID // that were looked up, by path
	refs   []layers.Forgotten
	stage  layers.NodeID     // a directory for what is being moved; 0: there is none
	staged map[string]string // names in it, by old path
}

func newLayerWriter(ctx context.Context, o *layers.Overlay) *layerWriter {
	return &layerWriter{
		ctx: ctx, o: o, staged: map[string]string{}, dirs: map[string]layers.NodeID{"": layers.RootNode},
		caller: layers.Caller{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), PID: uint32(os.Getpid())},
	}
}

// run carries out a plan.
func (w *layerWriter) run(p *threeway.Plan) error {
	defer func() { w.o.ForgetAll(w.refs) }()
	root, err := w.o.GetAttr(layers.RootNode)
	if err != nil {
		return err
	}
	for _, t := range p.Takes {
		if err := w.step(t.Path, func() error { return w.take(t) }); err != nil {
			return err
		}
	}
	w.dirs = map[string]layers.NodeID{"": layers.RootNode} // they have moved
	for _, put := range p.Puts {
		if err := w.step(put.Path, func() error { return w.put(put) }); err != nil {
			return err
		}
	}
	for _, s := range p.Sets {
		if err := w.step(s.Path, func() error { return w.set(s) }); err != nil {
			return err
		}
	}
	if w.stage != 0 {
		if err := w.o.Rmdir(layers.RootNode, stageName); err != nil {
			return err
		}
		if err := w.times(layers.RootNode, root); err != nil {
			return err
		}
	}
	for _, d := range p.Dirs {
		err := w.step(d.Path, func() error {
			id, err := w.find(d.Path)
			if err != nil {
				return err
			}
			return w.times(id, d.As.Stat())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// step does one thing, and says of an error where it happened.
func (w *layerWriter) step(path string, fn func() error) error {
	err := w.ctx.Err()
	if err == nil {
		if err = fn(); err != nil {
			err = fmt.Errorf("applying %q: %w", path, err)
		}
	}
	return err
}

// stageName is the name of the directory for what is being moved. It is gone before anybody sees the tree.
const stageName = ".snapfs-apply-7b0e3c52"

func (w *layerWriter) entry(e layers.Entry, err error) (layers.Entry, error) {
	if err == nil {
		w.refs = append(w.refs, layers.Forgotten{Node: e.Node, N: 1})
	}
	return e, err
}

// find looks a path up.
func (w *layerWriter) find(path string) (layers.NodeID, error) {
	if id, ok := w.dirs[path]; ok {
		return id, nil
	}
	dir, name := "", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dir, name = path[:i], path[i+1:]
	}
	in, err := w.find(dir)
	if err != nil {
		return 0, err
	}
	e, err := w.entry(w.o.Lookup(in, name))
	if err == nil && e.Attr.Mode&unix.S_IFMT == unix.S_IFDIR {
		w.dirs[path] = e.Node
	}
	return e.Node, err
}

// parent looks up the directory of a path.
func (w *layerWriter) parent(path string) (layers.NodeID, string, error) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return layers.RootNode, path, nil
	}
	in, err := w.find(path[:i])
	return in, path[i+1:], err
}

// take removes something, or moves it out of the way.
func (w *layerWriter) take(t threeway.Take) error {
	in, name, err := w.parent(t.Path)
	if err != nil {
		return err
	}
	switch {
	case t.Moved:
		if w.stage == 0 {
			e, err := w.entry(w.o.Mkdir(w.caller, layers.RootNode, stageName, 0o700))
			if err != nil {
				return err
			}
			w.stage = e.Node
		}
		as := fmt.Sprint(len(w.staged))
		w.staged[t.Path] = as
		return w.o.Rename(in, name, w.stage, as, unix.RENAME_NOREPLACE)
	case t.Dir:
		return w.o.Rmdir(in, name)
	}
	return w.o.Unlink(in, name)
}

// put makes something new, or moves it to its place.
func (w *layerWriter) put(p threeway.Put) error {
	in, name, err := w.parent(p.Path)
	if err != nil {
		return err
	}
	if p.New == nil {
		return w.o.Rename(w.stage, w.staged[p.Old], in, name, unix.RENAME_NOREPLACE)
	}
	if p.Link != "" {
		id, err := w.find(p.Link)
		if err == nil {
			_, err = w.entry(w.o.Link(id, in, name))
		}
		return err
	}
	a := p.New.Stat()
	var e layers.Entry
	switch a.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if e, err = w.entry(w.o.Mkdir(w.caller, in, name, a.Mode&0o7777)); err == nil {
			w.dirs[p.Path] = e.Node
		}
	case unix.S_IFLNK:
		var target string
		if target, err = p.New.Target(); err == nil {
			e, err = w.entry(w.o.Symlink(w.caller, in, name, target))
		}
	default:
		e, err = w.entry(w.o.Mknod(w.caller, in, name, a.Mode, a.Rdev))
	}
	if err != nil {
		return err
	}
	if a.Mode&unix.S_IFMT == unix.S_IFREG {
		if err := w.contents(e.Node, p.New); err != nil {
			return err
		}
	}
	xattrs, err := p.New.Xattrs()
	if err != nil {
		return err
	}
	wanted := map[string]*string{}
	inherited, err := w.o.ListXattr(e.Node)
	if err != nil {
		return err
	}
	for _, name := range inherited {
		wanted[name] = nil
	}
	for name, value := range xattrs {
		wanted[name] = &value
	}
	mode := a.Mode & 0o7777
	if err := w.attributes(e.Node, e.Attr, threeway.Set{Mode: &mode, Owner: &[2]uint32{a.UID, a.GID}, Xattrs: wanted}); err != nil {
		return err
	}
	return w.times(e.Node, a)
}

// capabilityXattr has the capabilities of a program.
const capabilityXattr = "security.capability"

// set changes something.
func (w *layerWriter) set(s threeway.Set) error {
	id, err := w.find(s.Path)
	if err != nil {
		return err
	}
	a, err := w.o.GetAttr(id)
	if err != nil {
		return err
	}
	var capability []byte // that goes when the contents or the owner change
	if s.Merged || s.Content || s.Owner != nil {
		if capability, err = w.o.GetXattr(id, capabilityXattr); err != nil && !errors.Is(err, unix.ENODATA) &&
			!errors.Is(err, unix.EOPNOTSUPP) {
			return err
		}
	}
	err = nil
	switch {
	case s.Merged:
		if err := w.size(id, 0); err != nil {
			return err
		}
		if _, err := sparse.NewWriter(nodeWriter{w.o, id}).Write(s.Text); err != nil {
			return err
		}
		err = w.size(id, uint64(len(s.Text)))
	case s.Content:
		if err = w.size(id, 0); err == nil {
			err = w.contents(id, s.From)
		}
	}
	if err != nil {
		return err
	}
	if err := w.attributes(id, a, s); err != nil {
		return err
	}
	if _, set := s.Xattrs[capabilityXattr]; len(capability) > 0 && !set {
		if err := w.o.SetXattr(id, capabilityXattr, capability, 0); err != nil {
			return fmt.Errorf("attribute %s: %w", capabilityXattr, err)
		}
	}
	if !s.Times {
		return nil
	}
	return w.times(id, s.From.Stat())
}

// contents writes what a file holds into an empty one.
func (w *layerWriter) contents(id layers.NodeID, f threeway.File) error {
	if err := f.CopyTo(w.ctx, sparse.NewWriter(nodeWriter{w.o, id})); err != nil {
		return err
	}
	return w.size(id, f.Stat().Size)
}

func (w *layerWriter) size(id layers.NodeID, size uint64) error {
	_, err := w.o.SetAttr(w.caller, id, layers.SetAttr{Valid: layers.SetSize, Size: size})
	return err
}

// times sets the times of access and change.
func (w *layerWriter) times(id layers.NodeID, a layers.Attr) error {
	_, err := w.o.SetAttr(w.caller, id, layers.SetAttr{
		Valid: layers.SetAtime | layers.SetMtime, Atime: a.Atime, Mtime: a.Mtime,
	})
	return err
}

// attributes sets owner, attributes and permissions, in this order: each may take away from the next.
func (w *layerWriter) attributes(id layers.NodeID, now layers.Attr, s threeway.Set) error {
	mode := s.Mode
	if s.Owner != nil && *s.Owner != [2]uint32{now.UID, now.GID} {
		if mode == nil {
			m := now.Mode & 0o7777
			mode = &m
		}
		_, err := w.o.SetAttr(w.caller, id, layers.SetAttr{
			Valid: layers.SetUID | layers.SetGID, UID: s.Owner[0], GID: s.Owner[1],
		})
		if err != nil {
			return err
		}
	}
	for name, value := range s.Xattrs {
		var err error
		if value != nil {
			err = w.o.SetXattr(id, name, []byte(*value), 0)
		} else {
			err = w.o.RemoveXattr(id, name)
		}
		if err != nil {
			return fmt.Errorf("attribute %s: %w", name, err)
		}
	}
	if mode == nil || now.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil
	}
	_, err := w.o.SetAttr(w.caller, id, layers.SetAttr{Valid: layers.SetMode, Mode: *mode})
	return err
}

// nodeWriter writes into a file of an overlay.
type nodeWriter struct {
	o  *layers.Overlay
	id layers.NodeID
}

// WriteAt implements io.WriterAt. At a limit an overlay writes less, and says why the next time.
func (n nodeWriter) WriteAt(data []byte, off int64) (done int, err error) {
	for done < len(data) && err == nil {
		var k int
		k, err = n.o.Write(n.id, data[done:], off+int64(done), nil)
		done += k
	}
	return done, err
}
