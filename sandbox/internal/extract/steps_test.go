package extract_test

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/sandbox/internal/extract"
)

// stepsEnv has the number of the error that a process without openat2(2) gets, and stepsDir where it works.
const (
	stepsEnv = "SNAPFS_EXTRACT_OPENAT2"
	stepsDir = "SNAPFS_EXTRACT_STEPS"
)

// TestStepsChild is the process without openat2.
func TestStepsChild(t *testing.T) {
	number, err := strconv.Atoi(os.Getenv(stepsEnv))
	if err != nil {
		return // it is TestOldContainer that runs it
	}
	refuse(t, unix.Errno(number))
	_, err = unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_RDONLY})
	require.ErrorIs(t, err, unix.Errno(number))
	dir := os.Getenv(stepsDir)
	src := madeUp{dirOf("d", dirOf("f", fileOf("text")))}
	_, err = write(t.Context(), src, dir+"/a/got", snapshot, extract.Options{NoSync: true})
	require.NoError(t, err)
	text, err := os.ReadFile(dir + "/a/got/d/f")
	require.NoError(t, err)
	require.Equal(t, "text", string(text))
	for _, path := range []string{"/link/got", "/tolink", "/tolink/new", "/file/got"} {
		_, err = write(t.Context(), src, dir+path, snapshot, extract.Options{NoSync: true})
		require.ErrorIs(t, err, unix.ENOTDIR, path)
	}
	_, err = write(t.Context(), src, dir+"/no/where", snapshot, extract.Options{NoSync: true})
	require.ErrorIs(t, err, unix.ENOENT)
}

// refuse has openat2(2) fail in all threads of this process, as container runtimes do that do not know it.
func refuse(t *testing.T, errno unix.Errno) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_OPENAT2, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&prog)))
	require.Zero(t, failed)
	runtime.KeepAlive(filter)
}

// TestOldContainer: where openat2 is refused, a tree is written all the same, and no symbolic link is followed.
func TestOldContainer(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	for _, errno := range []unix.Errno{unix.EPERM, unix.ENOSYS} {
		dir := scratch(t)
		require.NoError(t, os.Mkdir(dir+"/a", 0o755))
		require.NoError(t, os.Mkdir(dir+"/real", 0o755))
		require.NoError(t, os.Symlink("real", dir+"/link"))
		require.NoError(t, os.Symlink("real", dir+"/tolink"))
		require.NoError(t, os.WriteFile(dir+"/file", nil, 0o644))
		cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestStepsChild$")
		cmd.Env = append(os.Environ(), stepsEnv+"="+strconv.Itoa(int(errno)), stepsDir+"="+dir)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%v: %s", errno, out)
		there, err := os.ReadDir(dir + "/real")
		require.NoError(t, err)
		require.Empty(t, there)
	}
}
