package sandbox

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"snapfs/internal/userns"
)

// lacking says of an error what this process lacks for what the kernel has refused; otherwise is what it may be if it
// lacks nothing. Other errors pass.
func lacking(err error, otherwise string) error {
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return err
	}
	lacks := otherwise
	switch {
	case !userns.Initial():
		lacks = "the daemon runs in a user namespace, where the kernel lets nobody keep what workspaces need (trusted " +
			"attributes): run it outside, and let this user use its socket ('snapfs help serve', --allow)"
	case !hasAdmin():
		lacks = "the daemon lacks CAP_SYS_ADMIN: run it as root, in a container with --cap-add SYS_ADMIN --device /dev/fuse"
	case !mayOpenFUSE():
		lacks = "the daemon may not open " + fuseDevice + ": run the container with --device " + fuseDevice
	}
	if lacks == "" {
		return err
	}
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, lacks, err)
}

// hasAdmin reports whether this process has CAP_SYS_ADMIN.
func hasAdmin() bool {
	var caps [2]unix.CapUserData
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &caps[0])
	return err != nil || caps[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// mayOpenFUSE reports whether this process may use the FUSE device.
func mayOpenFUSE() bool {
	fd, err := unix.Open(fuseDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	return unix.Close(fd) == nil
}
