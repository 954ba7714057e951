package layers

import "snapfs/internal/hostspace"

// Statfs describes the host file system, as far as the overlay may take of it.
func (o *Overlay) Statfs() (Statfs, error) {
	o.tree.RLock()
	defer o.tree.RUnlock()
	fd := -1
	for _, l := range o.stack {
		if s := l.lower.dir; s != nil {
			fd = s.root
			break
		}
	}
	if fd < 0 {
		return Statfs{Bsize: 4096, Frsize: 4096, NameLen: maxName}, nil
	}
	st, err := hostspace.Fstatfs(fd)
	if err != nil {
		return Statfs{}, err
	}
	s := Statfs{
		Blocks: st.Blocks, Bfree: st.Bfree, Bavail: st.Bavail, Files: st.Files, Ffree: st.Ffree,
		Bsize: uint32(st.Bsize), NameLen: uint32(st.Namelen), Frsize: uint32(st.Frsize),
	}
	o.opts.Reserve.show(&s)
	if o.counts() {
		o.opts.Account.show(&s)
	}
	return s, nil
}
