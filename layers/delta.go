package layers

import "errors"

// What follows is for who writes a layer that comes from elsewhere, an image's, into an upper without lowers: names and
// directories that hide what will lie below.

// Whiteout leaves a whiteout under a name that does not show in a directory. EEXIST: it does.
func (o *Overlay) Whiteout(parent NodeID, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	return o.Noting(nil).mutateShared(func(t mutation) error {
		p, err := t.dir(parent)
		if err != nil {
			return err
		}
		defer t.unlock(p)
		var covered bool
		var h hold
		err = t.read(func() error {
			if err := o.upperDir(p); err != nil {
				return err
			}
			if covered, err = o.vacant(p, name); err == nil {
				h, err = o.upper.store.dir(p.top)
			}
			return err
		})
		if err != nil {
			return err
		}
		defer h.release()
		if covered { // by one that is there already
			return nil
		}
		return o.upper.whiteout(nameIn(h.fd, name))
	})
}

// SetOpaque has a directory hide what layers below its own have in its place.
func (o *Overlay) SetOpaque(dir NodeID) error {
	return o.Noting(nil).mutateShared(func(t mutation) error {
		p, err := t.dir(dir)
		if err != nil {
			return err
		}
		defer t.unlock(p)
		var h hold
		err = t.read(func() error {
			if err := o.upperDir(p); err != nil {
				return err
			}
			if len(p.below) > 0 {
				return errors.New("a directory of several layers cannot become opaque")
			}
			h, err = o.upper.store.dir(p.top)
			return err
		})
		if err != nil {
			return err
		}
		defer h.release()
		return nameIn(h.fd, ".").setxattr(xattrOpaque, []byte("y"), 0)
	})
}
