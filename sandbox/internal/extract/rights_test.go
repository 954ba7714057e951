package extract_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/sandbox/internal/extract"
	"snapfs/squashfs"
)

// childEnv has the target of a process of another user.
const childEnv = "SNAPFS_EXTRACT_CHILD"

// rightsTree has what an ordinary user may not make.
func rightsTree() madeUp {
	mine, roots, setuid, device := fileOf("mine"), fileOf("root's"), fileOf("setuid"), fileOf("")
	mine.attr.UID, mine.attr.GID = 1234, 1234
	setuid.attr.Mode |= unix.S_ISUID
	mine.attr.Mode = unix.S_IFREG | 0o444
	device.attr.Mode, device.attr.Rdev, device.attr.Size = unix.S_IFCHR|0o666, unix.Mkdev(1, 3), 0
	mine.xattrs = []squashfs.Xattr{{Name: "user.x", Value: []byte("1")}, {Name: "trusted.x", Value: []byte("1")}}
	shut := dirOf("in", mine)
	shut.attr.Mode = unix.S_IFDIR | 0o500
	shut.attr.UID, shut.attr.GID = 1234, 1234
	root := dirOf("device", device, "mine", mine, "roots", roots, "setuid", setuid, "shut", shut)
	root.attr.UID, root.attr.GID = 1234, 1234
	root.attr.Mode = unix.S_IFDIR | 0o555
	return madeUp{root}
}

// TestChild is the process of another user.
func TestChild(t *testing.T) {
	path := os.Getenv(childEnv)
	if path == "" {
		return // it is TestOtherUser that runs it
	}
	r, err := write(t.Context(), rightsTree(), path, snapshot, extract.Options{NoSync: true, Workers: 1})
	require.NoError(t, err)
	told := map[string]int{}
	for _, s := range r.Skips {
		told[s.Path+" "+s.What]++
	}
	require.Equal(t, map[string]int{
		"device device": 1, "mine xattr trusted.x": 1, "roots owner": 1, "setuid owner": 1, "shut/in xattr trusted.x": 1,
	}, told)
}

// TestOtherUser: what an ordinary user may not make is told; the rest is there.
func TestOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	dir := scratch(t)
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.Mkdir(dir+"/of", 0o755))
	require.NoError(t, os.Chown(dir+"/of", 1234, 1234))
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(dir+"/test", self, 0o755))
	cmd := exec.CommandContext(t.Context(), dir+"/test", "-test.run", "^TestChild$")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), childEnv+"="+dir+"/of/got", "TMPDIR=/tmp")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1234, Gid: 1234}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	var st unix.Stat_t
	require.NoError(t, unix.Stat(dir+"/of/got/setuid", &st))
	require.Equal(t, uint32(unix.S_IFREG|0o644), st.Mode, "it would be another user's")
	require.Equal(t, uint32(1234), st.Uid)
	require.NoError(t, unix.Stat(dir+"/of/got/shut", &st))
	require.Equal(t, uint32(unix.S_IFDIR|0o500), st.Mode)
	require.NoError(t, unix.Stat(dir+"/of/got/shut/in", &st))
	require.Equal(t, uint32(unix.S_IFREG|0o444), st.Mode)
	require.NoError(t, unix.Stat(dir+"/of/got", &st))
	require.Equal(t, uint32(unix.S_IFDIR|0o555), st.Mode)
	require.NoFileExists(t, dir+"/of/got/.snapfs-restore")
	require.NoFileExists(t, dir+"/of/got/device")
}

// TestFullDisk: a full disk is said to be one, and when there is room again, the next call continues.
func TestFullDisk(t *testing.T) {
	dir := scratch(t)
	disk := dir + "/disk"
	require.NoError(t, os.Mkdir(disk, 0o755))
	require.NoError(t, unix.Mount("none", disk, "tmpfs", 0, "size=1m"))
	defer func() { require.NoError(t, unix.Unmount(disk, unix.MNT_DETACH)) }()
	var pairs []any
	for _, name := range strings.Split("abcdefghijklmnop", "") {
		pairs = append(pairs, name, fileOf(strings.Repeat(name, 100_000)))
	}
	src := madeUp{dirOf("d", dirOf(pairs...))}
	_, err := write(t.Context(), src, disk+"/got", snapshot, extract.Options{})
	require.ErrorIs(t, err, unix.ENOSPC)
	require.NoError(t, unix.Mount("none", disk, "tmpfs", unix.MS_REMOUNT, "size=10m"))
	r, err := write(t.Context(), src, disk+"/got", snapshot, extract.Options{})
	require.NoError(t, err)
	require.Equal(t, int64(16), r.Files)
	require.Positive(t, r.Kept)
	for _, name := range strings.Split("abcdefghijklmnop", "") {
		text, err := os.ReadFile(disk + "/got/d/" + name)
		require.NoError(t, err)
		require.Equal(t, strings.Repeat(name, 100_000), string(text))
	}
}
