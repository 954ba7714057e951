package layers

import (
	"slices"

	"golang.org/x/sys/unix"
)

// With Options.Nested the overlay is the lower of a kernel overlayfs, which hides trusted.overlay.* from its callers and
// acts upon them. What users have stored under such names lies escaped in the layers, and is shown so: the kernel
// unescapes it again. A character device 0/0 that a user has made would hide its name there. It is shown as the empty
// regular file that stands for it, which is what users of the kernel's overlayfs see.

// nest shows what find has found as the lower of a kernel overlayfs has it.
func (f *found) nest() {
	if !f.whiteout && isWhiteoutDevice(f.attr.Mode, f.attr.Rdev) {
		f.attr.Mode = f.attr.Mode&^unix.S_IFMT | unix.S_IFREG
	}
}

// nestItems is nest for a listing, which tells of any character device that it is one. tree is held.
func (o *Overlay) nestItems(n *node, items []dirItem) error {
	for i := range items {
		if items[i].typ != unix.S_IFCHR {
			continue
		}
		h, err := o.search(n, 0, items[i].name)
		if err != nil {
			return o.report(err, n.top, items[i].name)
		}
		items[i].typ = h.attr.Mode & unix.S_IFMT
	}
	return nil
}

// Attributeless reports whether nothing in the overlay has, and ever will have, an attribute that callers see. Only of the
// lower of a kernel overlayfs is that found out, and only when all layers are in images: false is no answer.
func (o *Overlay) Attributeless() bool {
	if !o.opts.Nested {
		return false
	}
	o.tree.RLock()
	defer o.tree.RUnlock()
	return !slices.ContainsFunc(o.stack, func(l *layer) bool {
		return l.lower.image == nil || !l.lower.image.attributeless()
	})
}

// rawXattr is what the layers call an attribute of this overlay's callers.
func (o *Overlay) rawXattr(name string) string {
	if o.opts.Nested {
		return name
	}
	return escapeXattr(name)
}

// shownXattr is the inverse of rawXattr for names that are not the overlay's own.
func (o *Overlay) shownXattr(raw string) string {
	if o.opts.Nested {
		return raw
	}
	return unescapeXattr(raw)
}
