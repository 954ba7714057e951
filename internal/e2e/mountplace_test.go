package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/sandbox"
)

// options are those that the mount table has of a workspace, of the mount and of its file system.
func options(t *testing.T, dir string) string {
	t.Helper()
	return shell(t, soon, "/", `findmnt -rno VFS-OPTIONS,FS-OPTIONS --mountpoint "$1"`, dir)
}

// TestMountInside mounts a workspace inside the mount of another one, which the daemon itself must never touch.
func TestMountInside(t *testing.T) {
	h := newHome(t)
	outer, inner := h.path("outer"), h.path("outer/inner")
	h.ok("up", "outer", outer)
	h.ok("up", "inner", inner)
	shell(t, soon, inner, `echo kept > file`)
	h.fails(4, "workspace inner", "umount", "outer")
	h.fails(4, "mountpoint already", "up", "other", inner)
	h.ok("snapshot", "outer", "--name", "s")
	require.Equal(t, "inner is unmounted", h.ok("umount", "inner"))
	require.Empty(t, names(t, outer), "the directory that was made for the mount is gone")
	h.ok("mount", "inner")

	pid := h.pid()
	require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	gone(t, pid)
	h.ok("list")
	require.Equal(t, "kept\n", shell(t, soon, inner, `cat file`), "both are mounted again")
	h.ok("pause", "outer") // which changes of the outer one wait for
	h.ok("resume", "outer")
	h.ok("stop")
	require.Empty(t, mountsBelow(h.tmp))
}

// TestRemount changes the options of mounts, by the command and by -o in any mixture.
func TestRemount(t *testing.T) {
	h := newHome(t)
	at := h.path("at")
	h.ok("up", "w", at, "-o", "rw,noexec", "--nodev", "-o", "nosuid,exec,noatime")
	got := options(t, at)
	for _, option := range []string{"rw,", "nosuid", "nodev", "noatime"} {
		require.Contains(t, got, option)
	}
	require.NotContains(t, got, "noexec")
	h.fails(4, "remount", "mount", "w", at, "--read-only")
	h.ok("mount", "w", "-o", "remount,ro")
	require.NotZero(t, process(t, soon, at, nil, "touch", "file").code)
	require.True(t, h.workspace("w").ReadOnly)
	h.ok("snapshot", "w")
	h.ok("mount", "w", "-o", "remount,rw,suid", "--noexec")
	shell(t, soon, at, `touch file`)
	require.NotContains(t, options(t, at), "nosuid")
	require.Contains(t, options(t, at), "noexec")
	holder := start(t, h, at, "sh", "-c", `exec sleep 60 > open`)
	shell(t, soon, at, `until test -e open; do sleep 0.02; done`)
	h.fails(4, "in use", "mount", "w", "-o", "remount,ro")
	h.fails(4, "cannot be changed", "mount", "w", "-o", "remount,writeback")
	holder()
	h.ok("umount", "w")
	h.fails(4, "not mounted", "mount", "w", "-o", "remount,ro")
	h.fails(2, "another option", "mount", "w", "-o", "remount")
	h.fails(2, "bogus", "mount", "w", "-o", "ro,bogus")
	h.ok("mount", "w", at, "-o", "ro")
	require.NotZero(t, process(t, soon, at, nil, "touch", "file").code)
	h.ok("mount", "w", "-o", "remount,rw")
	shell(t, soon, at, `touch other`)
}

// TestMountNamespaces has commands in other mount namespaces mount: there, and nowhere else.
func TestMountNamespaces(t *testing.T) {
	h := newHome(t)
	h.makeDir("at")
	h.ok("create", "w")
	end := start(t, h, h.tmp, "unshare", "--mount", "--propagation", "private", "bash", "-ec", `
		"$1" mount w "$PWD/at"; echo inside > at/file; test "$(cat at/file)" = inside; echo > mounted
		"$1" --json pause w > /dev/null; "$1" --json resume w > /dev/null; echo > paused
		exec sleep 60`, "script", snapfs)
	shell(t, soon, h.tmp, `until test -e paused; do sleep 0.02; done`)
	require.Empty(t, mountsBelow(h.tmp), "not in the namespace of the daemon")
	require.Empty(t, names(t, h.path("at")))
	require.Equal(t, sandbox.Mounted, h.workspace("w").State)
	h.fails(4, "another mount namespace", "mount", "w", h.path("at"))

	pid := h.pid()
	require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	gone(t, pid)
	require.Equal(t, sandbox.Mounted, h.workspace("w").State, "mounted again, where it was")
	require.Empty(t, mountsBelow(h.tmp))
	require.Equal(t, "w is unmounted", h.ok("umount", "w"))
	h.ok("mount", "w", h.path("at"))
	require.Equal(t, "inside\n", shell(t, soon, h.path("at"), `cat file`))
	h.ok("umount", "w")
	end()

	// A namespace that is gone takes its mount along.
	shell(t, soon, h.tmp, `SNAPFS_HOME="$2" unshare --mount --propagation private "$1" --quiet mount w "$PWD/at"`, snapfs, h.dir)
	for h.workspace("w").State != sandbox.Unmounted { // soon after its last process
		require.NoError(t, t.Context().Err())
	}
	shell(t, soon, h.path("at"), `until { echo > plain; } 2> /dev/null; do sleep 0.02; done; rm plain`) // soon after that

	// A copy of the mount in another namespace stays, and what is mounted then is the same.
	h.ok("mount", "w", h.path("at"))
	end = start(t, h, h.tmp, "unshare", "--mount", "--propagation", "private", "bash", "-ec", `
		echo > copied; until test -e at/go; do sleep 0.02; done; echo copy > at/copy; exec sleep 60`, "script")
	shell(t, soon, h.tmp, `until test -e copied; do sleep 0.02; done`)
	require.Equal(t, "w is detached", h.ok("umount", "w"))
	shell(t, soon, h.path("at"), `echo > plain; rm plain`)
	h.fails(4, "other options", "mount", "w", h.path("at"), "--writeback")
	h.ok("mount", "w", h.path("at"), "-o", "nosuid,noexec")
	require.Contains(t, options(t, h.path("at")), "nosuid")
	shell(t, soon, h.path("at"), `echo > go; until grep -qsx copy copy; do sleep 0.02; done`)
	require.Equal(t, "w is detached", h.ok("umount", "w"))
	end()
	h.ok("mount", "w")
}
