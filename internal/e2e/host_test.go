package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
)

// treewalkAll leaves nothing out.
var treewalkAll = treewalk.Options{Ctime: true, Ino: true}

// start runs a process in the background; end kills it and waits.
func start(t *testing.T, h *home, dir string, argv ...string) (end func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), h.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second
	require.NoError(t, cmd.Start())
	ended := false
	end = func() {
		if !ended {
			ended = true
			cancel()
			_ = cmd.Wait() // it was killed
		}
	}
	t.Cleanup(end)
	return end
}

// TestNoFUSE runs where /dev/fuse is hidden: creating works, mounting is refused, nothing is left.
func TestNoFUSE(t *testing.T) {
	h := newHome(t)
	script := `mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9 && exec "$@"`
	hidden := func(args ...string) result {
		line := []string{"unshare", "--mount", "--propagation", "private", "bash", "-c", script, "script", snapfs}
		return process(t, soon, h.tmp, h.env, append(line, args...)...)
	}
	require.Zero(t, hidden("create", "one").code)
	for _, args := range [][]string{{"mount", "one", h.path("ws")}, {"up", "two", h.path("ws")}, {"run", "--empty", "--", "true"}} {
		r := hidden(args...)
		require.Equal(t, 7, r.code, "%q: %s", args, r.err)
		require.Contains(t, strings.ToLower(r.err), "fuse")
		require.Equal(t, 1, strings.Count(r.err, "\n"), r.err)
	}
	require.Len(t, decode[sandbox.WorkspacePage](h, "list").Workspaces, 1, "up took its workspace back")
	require.Equal(t, []string{"home"}, names(t, h.tmp))
}

// TestFullDisk fills the host file system under a home: programs get ENOSPC, snapshots fail cleanly, and with space
// everything goes on.
func TestFullDisk(t *testing.T) {
	h := newHome(t)
	shell(t, soon, h.tmp, `truncate -s 160M disk.img && mkfs.ext4 -q -O ^has_journal disk.img && mkdir disk && mount -o loop disk.img disk`)
	unmounted := false
	unmount := func() {
		if !unmounted {
			unmounted = true
			shell(t, soon, h.tmp, `umount disk`)
		}
	}
	h.dir = h.path("disk/home")
	h.env[0] = "SNAPFS_HOME=" + h.dir
	t.Cleanup(func() {
		h.run("stop")
		if !unmounted {
			_ = unix.Unmount(h.path("disk"), unix.MNT_DETACH)
		}
	})

	h.ok("up", "one", h.path("ws"))
	shell(t, soon, h.path("ws"), `echo kept > kept; sync kept`)
	h.ok("snapshot", "one", "--name", "good", "--wait", "stored")
	r := process(t, soon, h.path("ws"), nil, "bash", "-c", `head -c 400000000 /dev/urandom > big`)
	require.NotZero(t, r.code)
	require.Contains(t, r.err, "No space left")

	full := h.run("snapshot", "one", "--name", "full")
	t.Logf("snapshot on a full disk: %d %s", full.code, full.err)
	require.Contains(t, []int{0, 1}, full.code, full.err)
	created := h.run("create", "two", "--from", h.makeDir("src"))
	t.Logf("create on a full disk: %d %s", created.code, created.err)
	require.Contains(t, []int{0, 1}, created.code, created.err)

	shell(t, soon, h.path("ws"), `rm -f big; cat kept | grep -qx kept`)
	if full.code == 0 {
		h.ok("delete", "one:full")
	}
	shell(t, soon, h.path("ws"), `test -e kept`)
	// The room of the removed file comes back when the kernel forgets it, a moment later.
	withRoom := func(args ...string) result {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
			r := h.run(args...)
			if r.code != 0 && strings.Contains(r.err, "no space left") && time.Now().Before(end) {
				continue
			}
			require.Zero(t, r.code, r.err)
			return r
		}
	}
	restored := withRoom("restore", "good", h.path("back"))
	shell(t, soon, h.path("back"), `grep -qx kept kept; test ! -e big`)
	h.ok("umount", strings.TrimSpace(restored.out))
	withRoom("gc")
	require.Empty(t, decode[sandbox.CheckResult](h, "check", "--read-data").Problems)
	h.ok("stop")
	unmount()
}

// TestFullDiskKilled kills the daemon again and again while its disk is full: the next one has all that was
// acknowledged, and takes deletions and collections, which make room.
func TestFullDiskKilled(t *testing.T) {
	t.Run("ends", func(t *testing.T) { testFullDiskKilled(t, false) })
	t.Run("kept", func(t *testing.T) { testFullDiskKilled(t, true) })
}

func testFullDiskKilled(t *testing.T, kept bool) {
	d := newDisk(t, 320)
	if !kept {
		d.keepsNothing()
	}
	ws, ballast := d.path("ws"), filepath.Join(d.dir, "ballast")
	d.ok("up", "one", ws)
	for i := range 3 {
		shell(t, soon, ws, `head -c 8000000 /dev/urandom > noise; echo "$1" > kept`, itoa(i))
		d.ok("snapshot", "one", "--name", "s"+itoa(i), "--wait", "stored")
	}
	for i := range 3 {
		fill(t, ballast+itoa(i))
		s := d.processes()
		if kept {
			halt(t, s.Holder) // it starts the next daemon when the disk is full again
		}
		require.NoError(t, unix.Kill(s.PID, unix.SIGKILL))
		gone(t, s.PID)
		fill(t, ballast+itoa(i)+"more")
		if kept {
			require.NoError(t, unix.Kill(s.Holder, unix.SIGCONT))
		}
		d.ok("list")
		require.Len(t, decode[sandbox.SnapshotPage](d.home, "snapshots").Snapshots, 3-i)
		if i < 2 {
			d.ok("delete", "one:s"+itoa(i))
		}
		d.ok("gc")
	}
	shell(t, soon, d.dir, `rm ballast*`)
	d.ok("restore", "s2", d.path("back"))
	shell(t, soon, d.path("back"), `grep -qx 2 kept; test "$(wc -c < noise)" = 8000000`)
	require.Empty(t, decode[sandbox.CheckResult](d.home, "check", "--read-data").Problems)
}

// fill takes all the room of a file system.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	for b := make([]byte, 1<<20); len(b) > 0; {
		if _, err := f.Write(b); err != nil {
			require.ErrorIs(t, err, unix.ENOSPC)
			b = b[:len(b)/2]
		}
	}
}

// TestOtherUser holds that nobody else gets at a home, and that asking leaves nothing.
func TestOtherUser(t *testing.T) {
	h := newHome(t)
	h.ok("create", "one")
	shell(t, soon, h.tmp, `chmod 755 . ..`)
	r := process(t, soon, "/", h.env, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", snapfs, "list")
	if r.code == 126 || r.code == 127 {
		t.Fatalf("the binary is not reachable for others: %s", r.err)
	}
	require.Equal(t, 7, r.code, r.err)
	require.Equal(t, 1, strings.Count(r.err, "\n"), r.err)
}
