package holder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// daemonName is what the test binary is called when it plays a daemon: it takes the role in the home of its first
// argument, keeps what it is told by the rest, and waits to be killed.
const daemonName = "holder-test-daemon"

// enderName is what it is called when it ends slowly: its first thread has ended, the others run until there is the file of
// its first argument.
const enderName = "holder-test-ender"

func init() {
	if os.Args[0] == daemonName || os.Args[0] == enderName {
		runtime.LockOSThread() // main has the first thread
	}
}

func TestMain(m *testing.M) {
	switch {
	case IsHolder():
		text, _ := os.ReadFile(filepath.Join(os.Args[1], waitFile))
		if wait, err := time.ParseDuration(string(text)); err == nil {
			startWaits = func(doing string) time.Duration {
				if doing == "" {
					return startWait // however slow it is
				}
				return wait
			}
		}
		os.Exit(Main())
	case os.Args[0] == daemonName:
		os.Exit(playDaemon(os.Args[1], os.Args[2:]))
	case os.Args[0] == enderName:
		go func() {
			for _, err := os.Stat(os.Args[1]); err != nil; {
				_, err = os.Stat(os.Args[1])
			}
			os.Exit(3)
		}()
		endThread()
	}
	os.Exit(m.Run())
}

// endThread ends the calling thread alone. The runtime takes it for one that waits in the kernel, and does without it.
func endThread() { _, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0) }

// stuckFile has a daemon look like one that was killed with a thread that waits in the kernel: its first thread ends, the
// others go on.
const stuckFile = "stuck"

// hangFile has daemons hang before they serve. What is in waitFile is how long a holder lets them once they have said
// so.
const (
	hangFile = "hang"
	waitFile = "wait"
)

// untoldFile has daemons not say that they have noted the deaths before them.
const untoldFile = "untold"

// playDaemon writes a line to the file "log" of the home for each thing that it does.
func playDaemon(home string, orders []string) int {
	say := func(format string, args ...any) {
		f, err := os.OpenFile(filepath.Join(home, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			_, _ = fmt.Fprintf(f, "%d "+format+"\n", append([]any{os.Getpid()}, args...)...)
			_ = f.Close()
		}
	}
	if _, err := os.Stat(filepath.Join(home, "broken")); err == nil {
		fmt.Fprintln(os.Stderr, "this daemon is broken")
		return 3
	}
	c, err := Join(context.Background(), optionsOf(home, append([]string{daemonName, home}, orders...)...), false)
	if err != nil {
		say("refused %v", errors.Is(err, ErrConflict))
		return 4
	}
	for _, d := range c.Deaths() {
		say("death %d %q %t %q", d.PID, d.Reason, d.Served, d.Message)
	}
	kept, err := c.Kept()
	if err != nil {
		say("kept: %v", err)
		return 1
	}
	for _, k := range kept {
		say("kept %s %s %d", k.Name, k.Data, len(k.Files))
	}
	for _, order := range orders {
		if !strings.HasPrefix(order, "-") {
			if err := c.Keep(order, []byte("data"), os.Stdin); err != nil {
				say("keep: %v", err)
				return 1
			}
		}
	}
	if _, err := os.Stat(filepath.Join(home, hangFile)); err == nil {
		say("hangs") // the holder kills it from then on
		c.Starting("hanging")
		say("hung")
		time.Sleep(time.Hour)
	}
	if err := c.Ready(); err != nil {
		say("ready: %v", err)
		return 1
	}
	if _, err := os.Stat(filepath.Join(home, untoldFile)); err == nil {
		say("ready")
		time.Sleep(time.Hour)
	}
	if err := c.Told(); err != nil {
		say("told: %v", err)
		return 1
	}
	say("told")
	say("ready") // whoever waits for that may ask for deaths, and end it
	for _, err := os.Stat(filepath.Join(home, stuckFile)); err != nil; _, err = os.Stat(filepath.Join(home, stuckFile)) {
		time.Sleep(5 * time.Millisecond)
	}
	_ = os.Remove(filepath.Join(home, stuckFile))
	endThread()
	return 0
}

func optionsOf(home string, args ...string) Options {
	program, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return Options{
		Home: home, Programs: []string{"/proc/self/exe"}, Log: slog.New(slog.DiscardHandler),
		Start: Start{Program: program, Args: args, Env: os.Environ()},
	}
}

// begun joins or starts the holder of a home in this process.
func begun(t *testing.T, home string) *Client {
	t.Helper()
	c, err := Join(t.Context(), optionsOf(home, daemonName, home), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Leave(false) })
	return c
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// daemon starts the test binary as a daemon.
func daemon(t *testing.T, home string, orders ...string) *exec.Cmd {
	t.Helper()
	cmd := &exec.Cmd{Path: self(t), Args: append([]string{daemonName, home}, orders...), Env: os.Environ()}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

const soon = time.Minute

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", soon, what)
		}
	}
}

func logOf(home string) []string {
	text, _ := os.ReadFile(filepath.Join(home, "log"))
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// lines gives those with a word in them.
func lines(home, word string) (found []string) {
	for _, l := range logOf(home) {
		if strings.Contains(l, " "+word) {
			found = append(found, l)
		}
	}
	return found
}

func pidOf(t *testing.T, line string) int {
	t.Helper()
	number, _, _ := strings.Cut(line, " ")
	pid, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func memfd(t *testing.T, text string) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "memfd")
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	return f
}

func contents(t *testing.T, f *os.File) string {
	t.Helper()
	b := make([]byte, 100)
	n, _ := f.ReadAt(b, 0)
	return string(b[:n])
}

// describe closes the files of what is kept.
func describe(t *testing.T, c *Client) string {
	t.Helper()
	kept, err := c.Kept()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, k := range kept {
		var texts []string
		for _, f := range k.Files {
			texts = append(texts, contents(t, f))
			_ = f.Close()
		}
		out = append(out, fmt.Sprintf("%s=%s(%s)", k.Name, k.Data, strings.Join(texts, ",")))
	}
	return strings.Join(out, " ")
}

// gone waits for the end of a process.
func gone(t *testing.T, pid int) {
	t.Helper()
	eventually(t, "end of process", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || bytes.Contains(stat, []byte(") Z "))
	})
}

// TestKeep: what is kept is given back by name with its files in order, replaced and forgotten.
func TestKeep(t *testing.T) {
	c := begun(t, t.TempDir())
	if c.PID() != 0 || describe(t, c) != "" {
		t.Fatal("a holder before anything is kept")
	}
	a, b := memfd(t, "a"), memfd(t, "b")
	for _, k := range []struct {
		name, data string
		files      []*os.File
	}{{"mount/two", "2", []*os.File{a, b}}, {"home/lock", "", nil}, {"mount/one", "1", []*os.File{b}}, {"mount/two", "3", []*os.File{b, a, b}}} {
		if err := c.Keep(k.name, []byte(k.data), k.files...); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := describe(t, c), "home/lock=() mount/one=1(b) mount/two=3(b,a,b)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, name := range []string{"mount/two", "none"} {
		if err := c.Forget(name); err != nil {
			t.Error(err)
		}
	}
	if got, want := describe(t, c), "home/lock=() mount/one=1(b)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, bad := range []error{
		c.Keep("", nil), c.Keep("a b", nil), c.Keep(strings.Repeat("a", MaxName+1), nil), c.Keep("x", make([]byte, MaxData+1)),
		c.Keep("x", nil, a, a, a, a, a, a, a, a, a),
	} {
		if !errors.Is(bad, ErrRefused) {
			t.Errorf("got %v, want a refusal", bad)
		}
	}
	if err := c.Keep("x", bytes.Repeat([]byte{0xff}, MaxData), a, a, a, a, a, a, a, a); err != nil {
		t.Error(err)
	}
	pid := c.PID()
	if err := c.Leave(false); err != nil {
		t.Error(err)
	}
	gone(t, pid)
}

// TestRestart: a daemon that is killed is started again, with what it kept, and told how it died.
func TestRestart(t *testing.T) {
	home := t.TempDir()
	cmd := daemon(t, home, "home/lock", "mount/a")
	eventually(t, "ready", func() bool { return len(lines(home, "ready")) == 1 })
	defer end(t, home)
	_ = os.Remove(filepath.Join(home, SocketName)) // the holder makes it again
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for n := 2; n < 5; n++ {
		eventually(t, "ready again", func() bool { return len(lines(home, "ready")) == n })
		if n < 4 {
			if err := unix.Kill(pidOf(t, lines(home, "ready")[n-1]), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	kept, deaths := lines(home, "kept"), lines(home, "death")
	if len(kept) != 6 || !strings.HasSuffix(kept[0], "kept home/lock data 1") || !strings.HasSuffix(kept[5], "kept mount/a data 1") {
		t.Errorf("kept: %q", kept)
	}
	if len(deaths) != 3 || !strings.Contains(deaths[2], `"killed by SIGKILL" true`) {
		t.Errorf("deaths: %q", deaths)
	}
}

// end ends the holder of a home and its daemon.
func end(t *testing.T, home string) {
	t.Helper()
	s, err := Ask(t.Context(), home)
	if errors.Is(err, ErrNone) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "broken"), nil, 0o600); err != nil {
		t.Error(err)
	}
	eventually(t, "the holder without a daemon", func() bool {
		now, err := Ask(t.Context(), home)
		if err == nil && now.Daemon != 0 {
			_ = unix.Kill(now.Daemon, unix.SIGKILL)
		}
		err = Drop(home)
		return err == nil || errors.Is(err, ErrNone)
	})
	gone(t, s.PID)
}

// TestNothingToKeep: the holder of a daemon without mounts ends with it, and leaves word.
func TestNothingToKeep(t *testing.T) {
	home := t.TempDir()
	cmd := daemon(t, home, "home/lock")
	eventually(t, "ready", func() bool { return len(lines(home, "ready")) == 1 })
	s, err := Ask(t.Context(), home)
	if err != nil || s.Daemon != cmd.Process.Pid || !s.Ready || s.Kept != 0 {
		t.Fatal(s, err)
	}
	_ = cmd.Process.Signal(unix.SIGABRT)
	_ = cmd.Wait()
	gone(t, s.PID)
	deaths, err := ReadDeaths(home)
	if err != nil || len(deaths) != 1 || deaths[0].PID != s.Daemon || !deaths[0].Served {
		t.Fatal(deaths, err)
	}
	for range 2 {
		if err := RemoveDeaths(home); err != nil {
			t.Fatal(err)
		}
	}
	if deaths, err = ReadDeaths(home); err != nil || deaths != nil {
		t.Fatal(deaths, err)
	}
}

// TestHolderDies: another holder takes its place, and gets everything.
func TestHolderDies(t *testing.T) {
	home := t.TempDir()
	c := begun(t, home)
	f := memfd(t, "x")
	for i := range 100 {
		if err := c.Keep("mount/"+strconv.Itoa(i), []byte("1"), f); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Ready(); err != nil {
		t.Fatal(err)
	}
	pid := c.PID()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another holder with everything", func() bool {
		s, err := Ask(t.Context(), home)
		return err == nil && s.PID != pid && s.Ready && s.Kept == 100
	})
	if got := describe(t, c); strings.Count(got, "=1(x)") != 100 {
		t.Error(got)
	}
}

// TestOneDaemon: of many that start at once, one has the role, the others are told who.
func TestOneDaemon(t *testing.T) {
	home := t.TempDir()
	c := begun(t, home)
	if err := c.Keep("mount/a", nil); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		defer func(cmd *exec.Cmd) {
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 4 {
				t.Error(err)
			}
		}(daemon(t, home))
	}
	eventually(t, "refusals", func() bool { return len(lines(home, "refused true")) == 10 })
	// One that waits gets it.
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	next := make(chan *Client, 1)
	go func() {
		n, err := Join(ctx, optionsOf(home, daemonName, home), true)
		if err != nil {
			t.Error(err)
		}
		next <- n
	}()
	time.Sleep(20 * time.Millisecond) // it may as well come later
	if err := c.Leave(true); err != nil {
		t.Fatal(err)
	}
	n := <-next
	if n == nil {
		t.FailNow()
	}
	if n.Gap() <= 0 || describe(t, n) != "mount/a=()" {
		t.Error(n.Gap())
	}
	t.Log("gap:", n.Gap())
	if err := n.Leave(false); err != nil {
		t.Error(err)
	}
}

// TestBroken: a daemon that cannot start is tried a number of times, then when somebody asks. What is kept stays.
func TestBroken(t *testing.T) {
	home := t.TempDir()
	program := filepath.Join(t.TempDir(), "daemon")
	copyProgram(t, program)
	cmd := &exec.Cmd{Path: program, Args: []string{daemonName, home, "mount/a"}, Env: os.Environ()}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "ready", func() bool { return len(lines(home, "ready")) == 1 })
	defer end(t, home)
	if err := os.WriteFile(filepath.Join(home, "broken"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	s := givenUp(t, home)
	last := s.Deaths[len(s.Deaths)-1]
	if s.Failures != maxFailures || s.Kept != 1 || last.Reason != "exit status 3" || last.Message != "this daemon is broken" {
		t.Errorf("%+v", s)
	}
	if err := os.Remove(filepath.Join(home, "broken")); err != nil {
		t.Fatal(err)
	}
	// The program at its path does not run any more: the one that served goes on.
	if err := os.Rename(program, program+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := AskStart(t.Context(), home); err != nil {
		t.Fatal(err)
	}
	eventually(t, "ready", func() bool { return len(lines(home, "ready")) == 2 })
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	b, err := os.ReadFile(self(t))
	if err == nil {
		err = os.WriteFile(to, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestCopy: the holder serves no copy of its home, even one that has its socket as a hard link.
func TestCopy(t *testing.T) {
	dir := t.TempDir()
	home, other := filepath.Join(dir, "home"), filepath.Join(dir, "copy")
	for _, d := range []string{home, other} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	c := begun(t, home)
	if err := c.Keep("mount/a", nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(home, SocketName), filepath.Join(other, SocketName)); err != nil {
		t.Fatal(err)
	}
	if _, err := Ask(t.Context(), other); !errors.Is(err, ErrCopy) {
		t.Errorf("got %v, want ErrCopy", err)
	}
	if twin := begun(t, other); twin.PID() != 0 || describe(t, twin) != "" {
		t.Error("a copy has what the home has")
	}
	if err := os.Rename(home, home+"-moved"); err != nil {
		t.Fatal(err)
	}
	if s, err := Ask(t.Context(), home+"-moved"); err != nil || s.Kept != 1 {
		t.Error(s, err)
	}
}

// TestMemory bounds what a holder of many mounts takes.
func TestMemory(t *testing.T) {
	c := begun(t, t.TempDir())
	f := memfd(t, "x")
	for i := range 1000 {
		if err := c.Keep("mount/"+strconv.Itoa(i), bytes.Repeat([]byte("d"), 500), f, f); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", c.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\nPrivate_Dirty:")
	var kib int
	if _, err := fmt.Sscanf(after, "%d kB", &kib); err != nil {
		t.Fatal(err)
	}
	const most = 32 << 10 // ten times what it was when this was written; the race detector takes most of it
	if kib == 0 || kib > most {
		t.Errorf("%d KiB of its own, want at most %d", kib, most)
	}
}

// TestJoinWhileEnding: a daemon that starts while the one before ends finds its holder, or none, but no error.
func TestJoinWhileEnding(t *testing.T) {
	home := t.TempDir()
	for range 200 {
		c, err := Join(t.Context(), optionsOf(home, daemonName, home), false)
		if errors.Is(err, ErrConflict) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Keep("home/lock", nil); err != nil {
			t.Fatal(err)
		}
		next := make(chan error, 8)
		for range cap(next) {
			go func() {
				n, err := Join(t.Context(), optionsOf(home, daemonName, home), false)
				if err == nil {
					err = n.Leave(false)
				}
				next <- err
			}()
		}
		if err := c.Leave(false); err != nil {
			t.Fatal(err)
		}
		for range cap(next) {
			if err := <-next; err != nil && !errors.Is(err, ErrConflict) {
				t.Fatal(err)
			}
		}
	}
}
