package mountpoint

import "golang.org/x/sys/unix"

// Options are for Attach. They do what the options of mount(8) do.
type Options struct {
	FSName   string // shown as the source in /proc/mounts
	ReadOnly bool
	NoSUID   bool
	NoDev    bool
	NoExec   bool
	NoAtime  bool
	MaxRead  int // the largest READ, in bytes
	Owner    *Owner
	// AllowOther opens the mount of a user to others; ErrAllowOther if the administrator does not let users do that. Mounts of
	// root, and of root of a user namespace, are open in any case.
	AllowOther bool
}

// switchable is an option that is on or off, as three interfaces have it.
type switchable struct {
	name string  // mount(8)
	flag uintptr // mount(2)
	attr uint64  // mount_setattr(2)
}

// switches are the options that are on.
func (opts Options) switches() []switchable {
	var on []switchable
	for _, s := range []struct {
		on bool
		switchable
	}{
		{opts.ReadOnly, switchable{"ro", unix.MS_RDONLY, unix.MOUNT_ATTR_RDONLY}},
		{opts.NoSUID, switchable{"nosuid", unix.MS_NOSUID, unix.MOUNT_ATTR_NOSUID}},
		{opts.NoDev, switchable{"nodev", unix.MS_NODEV, unix.MOUNT_ATTR_NODEV}},
		{opts.NoExec, switchable{"noexec", unix.MS_NOEXEC, unix.MOUNT_ATTR_NOEXEC}},
		{opts.NoAtime, switchable{"noatime", unix.MS_NOATIME, unix.MOUNT_ATTR_NOATIME}},
	} {
		if s.on {
			on = append(on, s.switchable)
		}
	}
	return on
}

// AllAttributes are the attributes of mount_setattr(2) that options decide about. Those of access times are one field.
const AllAttributes = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC |
	unix.MOUNT_ATTR__ATIME

// Attributes are the options that are on, as mount_setattr(2) has them.
func (opts Options) Attributes() uint64 {
	var attrs uint64
	for _, s := range opts.switches() {
		attrs |= s.attr
	}
	return attrs
}
