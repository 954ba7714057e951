package layers

import (
	"bytes"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
)

// xattrCapability holds the capabilities of an executable file.
const xattrCapability = "security.capability"

// A host takes a file's capabilities away whenever its contents change, by whatever program. That is right where a
// program writes, and wrong where the kernel writes its pages back, or a copy-up brings data: pages are no news,
// capabilities were taken when the program wrote them, and those that are there now were set afterwards. So such a
// change sets them again, between begin and end. Meanwhile the host shows none, and callers are told what the table
// says: a kernel that believed the host would not ask for their removal before the next write, and they would come back
// after it.

// capabilities is the table of the files whose contents or capabilities are being changed.
type capabilities struct {
	mu lockorder.Mutex[lockorder.Capabilities]
	m  map[*node]*capability // guarded by mu
}

// capability is what one file has, whatever the host shows.
type capability struct {
	users int // guarded by capabilities.mu
	// host is held while the host's attribute is read or changed, and what is known of it with it.
	host lockorder.Mutex[lockorder.Capability]

	// Changed with both locks held, so that either is enough for reading.
	known bool
	value []byte // nil: none
}

// capabilityPool spares the writes of pages an allocation each.
var capabilityPool = sync.Pool{New: func() any { return new(capability) }}

// enter gives a file's entry, until leave.
func (t *capabilities) enter(n *node) *capability {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.m[n]
	if c == nil {
		c, _ = capabilityPool.Get().(*capability)
		if t.m == nil {
			t.m = map[*node]*capability{}
		}
		t.m[n] = c
	}
	c.users++
	return c
}

func (t *capabilities) leave(n *node, c *capability) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.users--; c.users == 0 {
		delete(t.m, n)
		c.known, c.value = false, nil
		capabilityPool.Put(c)
	}
}

// note says what a file has from now on. c.host is held.
func (t *capabilities) note(c *capability, value []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.known, c.value = true, value
}

// of gives what a file has; known is false if the host shows that.
func (t *capabilities) of(n *node) (value []byte, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.m[n]; c != nil {
		return bytes.Clone(c.value), c.known
	}
	return nil, false
}

// begin notes what n has before its contents change other than by a program's write. p is its inode in the upper.
func (t *capabilities) begin(n *node, p location) *capability {
	c := t.enter(n)
	c.host.Lock()
	defer c.host.Unlock()
	t.learn(n, c, p)
	return c
}

// learn reads what a file has, if that is not known. c.host is held.
func (t *capabilities) learn(n *node, c *capability, p location) {
	if c.known {
		return
	}
	var value []byte
	if !n.bare.Load() {
		value, _ = p.getxattr(xattrCapability) // what cannot be read cannot be set again either
	}
	t.note(c, value)
}

// end follows begin, and gives n back what the host has taken.
func (o *Overlay) end(n *node, c *capability, p location) {
	defer o.caps.leave(n, c)
	c.host.Lock()
	defer c.host.Unlock()
	if c.value == nil {
		return
	}
	if err := p.setxattr(xattrCapability, c.value, 0); err != nil {
		o.log.Warn("a file that was written lost its capabilities", "err", err)
	}
}

// keepCapability runs fn, which changes the contents of n other than by a program's write.
func (o *Overlay) keepCapability(n *node, p location, fn func() error) error {
	c := o.caps.begin(n, p)
	defer o.end(n, c, p)
	return fn()
}

// setCapability is setxattr(2) with a value, and removexattr(2) without.
func (o *Overlay) setCapability(n *node, p location, value []byte, flags int) error {
	c := o.caps.enter(n)
	defer o.caps.leave(n, c)
	c.host.Lock()
	defer c.host.Unlock()
	o.caps.learn(n, c, p)
	switch { // the host cannot tell while pages are written
	case c.value != nil && flags&unix.XATTR_CREATE != 0:
		return unix.EEXIST
	case c.value == nil && (value == nil || flags&unix.XATTR_REPLACE != 0):
		return unix.ENODATA
	}
	return o.change(c, p, value)
}

// dropCapability takes n's capabilities away.
func (o *Overlay) dropCapability(n *node, p location) error {
	c := o.caps.enter(n)
	defer o.caps.leave(n, c)
	c.host.Lock()
	defer c.host.Unlock()
	return o.change(c, p, nil)
}

// change gives a file other capabilities, nil being none. c.host is held.
func (o *Overlay) change(c *capability, p location, value []byte) error {
	var err error
	if value == nil {
		err = dropXattr(p, xattrCapability)
	} else {
		err = p.setxattr(xattrCapability, value, 0)
	}
	if err == nil {
		o.caps.note(c, bytes.Clone(value))
	}
	return err
}

// loseCapability says that a program is changing n's contents, until done: the host takes what n has, and nothing
// brings it back.
func (o *Overlay) loseCapability(n *node, p location) (done func()) {
	c := o.caps.enter(n)
	c.host.Lock()
	defer c.host.Unlock()
	if p.translates() && !n.bare.Load() { // it is none to the host
		if err := dropXattr(p, xattrCapability); err != nil {
			o.log.Warn("a file that was written kept its capabilities", "err", err)
		}
	}
	o.caps.note(c, nil)
	return func() { o.caps.leave(n, c) }
}

// getxattr reads a raw attribute of n, whose inode in a directory layer is p.
func (o *Overlay) getxattr(n *node, p location, raw string) ([]byte, error) {
	if raw != xattrCapability {
		return p.getxattr(raw)
	}
	c := o.caps.enter(n) // what begins and ends while the host is asked has left a note
	defer o.caps.leave(n, c)
	v, err := p.getxattr(raw)
	if value, known := o.caps.of(n); known && value != nil {
		return value, nil
	} else if known {
		return nil, unix.ENODATA
	}
	return v, err
}

// listxattr lists n's raw attributes.
func (o *Overlay) listxattr(n *node, p location) ([]string, error) {
	c := o.caps.enter(n) // as in getxattr
	defer o.caps.leave(n, c)
	names, err := p.listxattr()
	if value, _ := o.caps.of(n); err == nil && value != nil && !slices.Contains(names, xattrCapability) {
		names = append(names, xattrCapability)
	}
	return names, err
}
