package e2e

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/sandbox"
)

// TestGuardedMountpoint holds that a directory on which a workspace should be mounted takes no writes while it is not,
// not even through a bind mount, and that what ends a mount properly leaves nothing behind.
func TestGuardedMountpoint(t *testing.T) {
	h := newHome(t)
	h.keepsNothing()
	if process(t, soon, h.makeDir("probe"), nil, "bash", "-c", `chattr +i . && chattr -i .`).code != 0 {
		t.Skip("the file system of the test has no inode flags")
	}
	shell(t, soon, h.tmp, `mkdir mnt mnt/old bound`)
	made, old := h.path("mnt/made"), h.path("mnt/old")
	up := func() {
		h.ok("up", "made", made)
		h.ok("up", "old", old)
		shell(t, soon, h.path("mnt"), `echo kept > made/kept; echo kept > old/kept`)
	}
	refuses := func(when string) {
		t.Helper()
		shell(t, soon, h.tmp, `
			mount --bind mnt bound; trap 'umount bound' EXIT
			for dir in mnt/made mnt/old bound/made bound/old; do
				if { echo lost > $dir/lost; } 2>/dev/null || mkdir $dir/lost 2>/dev/null; then echo $dir takes writes "$1"; exit 1; fi
			done`, when)
	}
	plain := func(when string) {
		t.Helper()
		require.NoDirExists(t, made, when)
		require.Equal(t, []string{"old"}, names(t, h.path("mnt")), when)
		require.Empty(t, names(t, old), when)
		shell(t, soon, old, `echo > works; rm works`)
	}
	end := func(signal unix.Signal) {
		t.Helper()
		pid := h.pid()
		require.NoError(t, unix.Kill(pid, signal))
		gone(t, pid)
	}

	up()
	end(unix.SIGKILL)
	refuses("with dead mounts")
	shell(t, soon, h.path("mnt"), `umount -l made old`)
	refuses("when the dead mounts were taken away")
	h.ok("list")
	require.Equal(t, "kept\nkept\n", shell(t, soon, h.path("mnt"), `cat made/kept old/kept`), "mounted again")

	end(unix.SIGTERM)
	require.Empty(t, mountsBelow(h.path("mnt")))
	refuses("after SIGTERM")
	h.ok("list")
	require.Len(t, mountsBelow(h.path("mnt")), 2)

	h.ok("stop")
	plain("after stop")
	h.ok("list")
	require.Len(t, mountsBelow(h.path("mnt")), 2, "what was mounted at the end is mounted again, also after stop")
	h.ok("umount", "made")
	h.ok("umount", "old")
	plain("after umount")

	up()
	end(unix.SIGKILL)
	shell(t, soon, h.path("mnt"), `umount -l made old`)
	serve := start(t, h, "/", snapfs, "serve", "--no-remount")
	require.Eventually(t, func() bool { return h.run("status").code == 0 }, soon, 20*time.Millisecond)
	plain("with --no-remount")
	require.Equal(t, sandbox.Unmounted, h.workspace("made").State)
	h.ok("stop")
	serve()
	h.ok("list")
	require.Empty(t, mountsBelow(h.path("mnt")), "nothing was mounted when the last daemon ended")

	// A mountpoint that cannot be mounted stays guarded until it is given up.
	up()
	end(unix.SIGTERM)
	shell(t, soon, h.path("mnt"), `mount -t tmpfs none old`)
	h.ok("list")
	require.Equal(t, sandbox.Unmounted, h.workspace("old").State)
	shell(t, soon, h.path("mnt"), `umount old; ! touch old/lost 2>/dev/null`)
	h.ok("destroy", "old")
	h.ok("umount", "made")
	plain("after destroy")

	// The flag of another is left alone.
	shell(t, soon, old, `chattr +i .`)
	defer func() { shell(t, soon, old, `chattr -i .`) }()
	h.ok("up", "mine", old)
	h.ok("umount", "mine")
	require.ErrorIs(t, os.WriteFile(old+"/x", nil, 0o644), unix.EPERM)
}
