package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

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
	case !hasAdmin() && os.Geteuid() == 0:
		lacks = "the daemon lacks CAP_SYS_ADMIN: run it as root, in a container with --cap-add SYS_ADMIN --device /dev/fuse"
	case os.Geteuid() != 0 && !hasHelper():
		lacks = "users who are not root mount with fusermount3, which is missing: install the package fuse3"
	case !mayOpenFUSE() && !userns.Initial():
		lacks = "root of a user namespace may not open " + fuseDevice + ": it has to have mode 0666"
	case !userns.Initial():
		lacks = "root of a user namespace mounts only in a mount namespace of its own: unshare --user --mount"
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

// hasHelper reports whether there is the setuid program with which users mount.
func hasHelper() bool {
	_, err := exec.LookPath("fusermount3")
	return err == nil
}

// mayOpenFUSE reports whether this process may use the FUSE device.
func mayOpenFUSE() bool {
	fd, err := unix.Open(fuseDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	return unix.Close(fd) == nil
}
