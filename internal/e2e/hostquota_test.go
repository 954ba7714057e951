package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestHostQuota has a home in a subvolume of btrfs with a limit: that is to workspaces and the store what a disk of this size
// is. Also where the limit becomes lower than what is used, programs and calls get an error that says so, and the daemon goes on.
func TestHostQuota(t *testing.T) {
	h := newHome(t)
	disk := h.path("disk")
	t.Cleanup(func() { // before the home's, which ends the daemon if this does not
		h.run("stop")
		if t.Failed() {
			t.Logf("daemon.log:\n%s", tail(h.log()))
		}
		_ = unix.Unmount(disk, unix.MNT_DETACH)
	})
	limit := func(most string) { shell(t, soon, h.tmp, `sync; btrfs qgroup limit "$1" 0/256 disk`, most) }
	shell(t, soon, h.tmp, `truncate -s 2G disk.img; mkfs.btrfs -q disk.img; mkdir disk; mount -o loop disk.img disk
		btrfs quota enable disk; btrfs -q subvolume create disk/sub`)
	limit("512M")
	h.dir = h.path("disk/sub/home")
	h.env[0] = "SNAPFS_HOME=" + h.dir
	greedy, other := h.makeDir("greedy"), h.makeDir("other")
	h.ok("up", "greedy", greedy)
	h.ok("up", "other", other)
	fill := func(at, name string) {
		t.Helper()
		out := shell(t, soon, at, `{ LC_ALL=C dd if=/dev/zero of="$1" bs=128k count=4000 2>&1 || :; } | grep -oE "No space left on device|quota exceeded"`, name)
		require.NotEmpty(t, out)
	}
	fill(greedy, "fill")
	df := shell(t, soon, greedy, `df -BM --output=size,avail . | tail -1 | xargs`)
	require.Regexp(t, `^512M \dM\n$`, df)
	shell(t, soon, other, `head -c 500000 /dev/urandom > work; sync`)
	h.ok("snapshot", "other", "--name", "s", "--wait", "stored")
	h.ok("snapshot", "greedy", "--name", "s")
	h.ok("delete", "greedy:s")

	limit("64M")
	fill(other, "more")
	r := h.run("snapshot", "other", "--name", "t", "--wait", "stored")
	require.NotZero(t, r.code)
	require.Regexp(t, "no space left on device|quota exceeded", r.err)
	require.Contains(t, h.ok("list"), "greedy")

	limit("512M")
	shell(t, soon, greedy, `rm fill; echo text > text`)
	h.ok("snapshot", "other", "--name", "u", "--wait", "stored")
	require.Equal(t, "text\n", shell(t, soon, greedy, `cat text`))
	require.NotContains(t, shell(t, soon, h.dir, `cat daemon.log`), "SIGBUS")
}
