package processes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// numbers are fields 4 to 52 of a line, each its own number.
func numbers() string {
	var b strings.Builder
	for field := 4; field <= 52; field++ {
		b.WriteString(" " + strconv.Itoa(field))
	}
	return b.String()
}

func TestParseStat(t *testing.T) {
	want := Stat{State: 'S', Parent: 4, Flags: 9, Started: 22, Pending: 31, Processor: 39, Exit: 52}
	for _, name := range []string{"tar", "", ")", "(", ") ", ") R 1 2", "a) Z 1 (b", "(((", ")))", "\n", " ", "x\ny"} {
		s, ok := parseStat([]byte("12 (" + name + ") S" + numbers() + "\n"))
		require.True(t, ok, "%q", name)
		require.Equal(t, want, s, "%q", name)
	}
	s, ok := parseStat([]byte("12 (tar) S" + numbers() + " 53 54\n")) // of a kernel to come
	require.True(t, ok)
	require.Equal(t, want, s)

	line := "12 (tar) S" + numbers() + "\n"
	for n := range len(line) {
		_, ok := parseStat([]byte(line[:n]))
		require.False(t, ok, "cut off after %d bytes", n)
	}
	for _, bad := range []string{
		"\n", ")\n", "12 tar S" + numbers() + "\n", "12 (tar) S 1 2 3\n", "12 (tar)  S" + numbers() + "\n",
		"12 (tar) S" + strings.Replace(numbers(), " 22", " x", 1) + "\n",
		"12 (tar) S" + strings.Replace(numbers(), " 9", " -9", 1) + "\n",
		"12 (tar) S" + strings.Replace(numbers(), " 52", " 99999999999", 1) + "\n",
	} {
		_, ok := parseStat([]byte(bad))
		require.False(t, ok, "%q", bad)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("12 (a) b) S" + numbers() + "\n"))
	f.Fuzz(func(_ *testing.T, line []byte) { parseStat(line) }) // it does not panic
}

func TestStatOf(t *testing.T) {
	s, ok := StatOfProcess(os.Getpid())
	require.True(t, ok)
	require.Equal(t, os.Getppid(), s.Parent)
	require.NotZero(t, s.Started)
	require.False(t, s.Killed())
	task, ok := StatOf("/proc/self/task/" + strconv.Itoa(os.Getpid()))
	require.True(t, ok)
	require.Equal(t, s.Started, task.Started)
	_, ok = StatOfProcess(1 << 30)
	require.False(t, ok)
}

// TestStatOfHostileName looks at a program whose name reads like the fields behind it, while it runs, is stopped, and is
// a zombie.
func TestStatOfHostileName(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), ") Z 1 1 (\n)") // names have 15 bytes
	require.NoError(t, os.Symlink(sleep, program))
	cmd := exec.Command(program, "1000")
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Wait() }() // it was killed
	defer func() { _ = cmd.Process.Kill() }()
	require.Eventually(t, func() bool { // execve(2) sets it after it has closed descriptors, by which it is known to succeed
		name, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/comm")
		return err == nil && string(name) == ") Z 1 1 (\n)\n"
	}, 30*time.Second, time.Millisecond)

	reaches := func(state string) (s Stat) {
		t.Helper()
		require.Eventually(t, func() bool {
			var ok bool
			s, ok = StatOfProcess(cmd.Process.Pid)
			return ok && strings.IndexByte(state, s.State) >= 0
		}, 30*time.Second, time.Millisecond)
		require.Equal(t, os.Getpid(), s.Parent)
		return s
	}
	started := reaches("RS").Started
	require.NoError(t, cmd.Process.Signal(unix.SIGSTOP))
	require.Equal(t, started, reaches("T").Started)
	require.NoError(t, cmd.Process.Kill())
	require.Equal(t, unix.SIGKILL, unix.WaitStatus(reaches("Z").Exit).Signal())
}

func TestRunnable(t *testing.T) {
	require.False(t, Runnable(1<<30))
	for script, want := range map[string]bool{"while :; do :; done": true, "read _": false} {
		in, out, err := os.Pipe()
		require.NoError(t, err)
		cmd := exec.Command("sh", "-c", script)
		cmd.Stdin = in
		require.NoError(t, cmd.Start())
		require.NoError(t, in.Close())
		require.Eventually(t, func() bool { return Runnable(cmd.Process.Pid) == want }, 30*time.Second, time.Millisecond, script)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
		require.NoError(t, out.Close())
	}
}
