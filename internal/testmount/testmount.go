// Package testmount mounts an overlay for a test, served by a child process.
//
// A process that serves a FUSE mount must not touch it: a thread stuck in the kernel waits for an answer that its own
// process has to give. So the test binary starts itself again, the child serves, and the test works on the mount like
// any other program. The child is told what to do line by line over its standard input and unmounts when that ends,
// even if the test was killed.
//
// A package that uses it needs
//
//	func TestMain(m *testing.M) { testmount.Main(m) }
package testmount

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
	"snapfs/internal/testchild"
)

// TransportEnv names the transport of all mounts. Main runs the tests once with each, unless it is set.
const TransportEnv = "SNAPFS_TEST_TRANSPORT"

// answerTime bounds how long a test waits for its server.
const answerTime = 2 * time.Minute

// Config says what to mount. Paths must be absolute.
type Config struct {
	// Sealed are directories in the form of uppers, Images are squashfs files below them; topmost first.
	Sealed, Images []string
	// Source is a directory below them that others write to, until Import has made its image.
	Source string
	// Dir holds the upper and work directories of the mount and of every seal; empty is a new one.
	Dir string
	// Mount is where to mount; empty is a new directory.
	Mount    string
	ReadOnly bool
	NoExec   bool
	// Writeback lets the kernel collect writes.
	Writeback bool
	// Transport is of this mount; empty is that of the environment.
	Transport string
	// Profile, if set, is where the server writes a CPU profile of its life.
	Profile string
	// Live lets another server go on with the mount, see Replace. It is over /dev/fuse then, and not sealed.
	Live bool
	// Reconcile is fs.Options.Reconcile.
	Reconcile time.Duration
	// Trace has the server log every request to standard error.
	Trace bool
}

// FS is a mounted overlay.
type FS struct {
	// Dir is the mountpoint.
	Dir string
	// Upper is the upper directory as of the start or the last Seal.
	Upper string

	t      testing.TB
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	mu     sync.Mutex // one command at a time; guards lines, live and ended
	lines  *bufio.Reader
	live   bool
	ended  bool
	config Config
	state  *livestate.State // nil: none
	device *os.File         // of the connection, while there is no server; else nil
}

// command and answer are what goes over the pipes.
type command struct {
	Do     string
	Key    string
	Upper  string
	Work   string
	Config *Config
}

type answer struct {
	Error     string
	Transport string
	Requests  map[string]uint64
	Memory    Memory
	Device    int
	Records   int64
}

// Memory is what the server has allocated so far.
type Memory struct {
	Mallocs, Bytes uint64
	HeapInUse      uint64
	Goroutines     int
}

// Start mounts and has the test unmount at its end; a mount that is busy then, or stays, fails the test.
func Start(t testing.TB, c Config) *FS {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	if c.Mount == "" {
		c.Mount = filepath.Join(t.TempDir(), "mnt")
	}
	upper, work := filepath.Join(c.Dir, "upper"), filepath.Join(c.Dir, "work")
	for _, d := range []string{upper, work, c.Mount} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if c.Live {
		c.Transport = "dev"
	}
	f := &FS{Dir: c.Mount, Upper: upper, t: t, config: c}
	if c.Live {
		var err error
		if f.state, err = livestate.Create("test"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.state.Close() }) // nobody goes on with it
	}
	f.spawn(nil)
	t.Cleanup(f.Stop)
	if _, err := f.ask(command{Do: "mount", Upper: upper, Work: work, Config: &f.config}); err != nil {
		t.Fatalf("mount: %v", err)
	}
	f.live = true
	return f
}

// spawn starts a server. device is what it is to go on with; nil: nothing.
func (f *FS) spawn(device *os.File) {
	t := f.t
	t.Helper()
	f.cmd = exec.Command("/proc/self/exe")
	f.cmd.Env = testchild.Env(testchild.Server, childEnv+"=1")
	f.cmd.Stderr = os.Stderr
	f.cmd.WaitDelay = time.Second
	if f.state != nil {
		f.cmd.ExtraFiles = append(f.cmd.ExtraFiles, f.state.File())
	}
	if device != nil {
		f.cmd.ExtraFiles = append(f.cmd.ExtraFiles, device)
	}
	stdin, err := f.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := f.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	f.stdin, f.lines = stdin, bufio.NewReader(stdout)
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// Replace kills the server, and has another one go on with the mount, which needs Config.Live.
func (f *FS) Replace() {
	f.t.Helper()
	f.Crash()
	f.Adopt()
}

// Crash kills the server of a mount with Config.Live: programs wait until Adopt.
func (f *FS) Crash() {
	f.t.Helper()
	f.keepDevice()
	f.live = false
	f.Kill()
}

// Release has the server of a mount with Config.Live give it up, and end: programs wait until Adopt.
func (f *FS) Release() {
	f.t.Helper()
	f.keepDevice()
	if _, err := f.ask(command{Do: "release"}); err != nil {
		f.t.Fatalf("release: %v", err)
	}
	f.live = false
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	_ = f.stdin.Close() // ends the child; what matters is how
	kill := time.AfterFunc(answerTime, func() { _ = f.cmd.Process.Kill() })
	defer kill.Stop()
	if err := f.cmd.Wait(); err != nil {
		f.t.Errorf("server: %v", err)
	}
}

// keepDevice takes a descriptor of the connection.
func (f *FS) keepDevice() {
	f.t.Helper()
	a, err := f.ask(command{Do: "device"})
	if err != nil {
		f.t.Fatal(err)
	}
	process, err := unix.PidfdOpen(f.PID(), 0)
	if err != nil {
		f.t.Fatal(err)
	}
	fd, err := unix.PidfdGetfd(process, a.Device, 0)
	_ = unix.Close(process) // only asked
	if err != nil {
		f.t.Fatal(err)
	}
	f.device = os.NewFile(uintptr(fd), "device")
}

// Adopt starts a server that goes on with the mount.
func (f *FS) Adopt() {
	f.t.Helper()
	defer f.Abandon() // the server has its own
	f.mu.Lock()
	f.spawn(f.device)
	f.ended = false
	f.mu.Unlock()
	if _, err := f.ask(command{Do: "adopt", Upper: f.Upper, Work: filepath.Join(f.config.Dir, "work"), Config: &f.config}); err != nil {
		f.t.Fatalf("go on: %v", err)
	}
	f.live = true
}

// Abandon closes the descriptor of a connection: without a server it ends, and programs get errors instead of waiting.
func (f *FS) Abandon() {
	if f.device != nil {
		_ = f.device.Close() // nothing was written
		f.device = nil
	}
}

// ask sends a command and waits for its answer.
func (f *FS) ask(c command) (answer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return answer{}, errors.New("the server has ended")
	}
	line, err := json.Marshal(c)
	if err != nil {
		return answer{}, err
	}
	if _, err := f.stdin.Write(append(line, '\n')); err != nil {
		return answer{}, err
	}
	// A server that does not answer is killed, which ends the read below.
	watch := time.AfterFunc(answerTime, func() { _ = f.cmd.Process.Kill() })
	defer watch.Stop()
	line, err = f.lines.ReadBytes('\n')
	if err != nil {
		return answer{}, fmt.Errorf("the server died or hung: %w", err)
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return answer{}, err
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// Refer has the server count a reference of a name in the root that the kernel does not have.
func (f *FS) Refer(name string) {
	f.t.Helper()
	if _, err := f.ask(command{Do: "refer", Key: name}); err != nil {
		f.t.Fatalf("refer: %v", err)
	}
}

// Records gives how many nodes a successor would know.
func (f *FS) Records() int64 {
	f.t.Helper()
	a, err := f.ask(command{Do: "records"})
	if err != nil {
		f.t.Fatal(err)
	}
	return a.Records
}

// Seal ends the upper and makes it the topmost lower, under the key.
func (f *FS) Seal(key string) {
	f.t.Helper()
	upper, work := filepath.Join(f.config.Dir, "upper-"+key), filepath.Join(f.config.Dir, "work-"+key)
	for _, d := range []string{upper, work} {
		if err := os.Mkdir(d, 0o755); err != nil {
			f.t.Fatal(err)
		}
	}
	if _, err := f.ask(command{Do: "seal", Key: key, Upper: upper, Work: work}); err != nil {
		f.t.Fatalf("seal: %v", err)
	}
	f.Upper = upper
}

// Import stores the source, and puts the image in its place.
func (f *FS) Import() error {
	_, err := f.ask(command{Do: "import"})
	return err
}

// Pause holds changes back until Resume, which the end of the server is, too.
func (f *FS) Pause() error {
	_, err := f.ask(command{Do: "pause"})
	return err
}

// Resume lets changes go on.
func (f *FS) Resume() error {
	_, err := f.ask(command{Do: "resume"})
	return err
}

// Requests gives how many requests of each kind the server has had.
func (f *FS) Requests() map[string]uint64 {
	f.t.Helper()
	a, err := f.ask(command{Do: "requests"})
	if err != nil {
		f.t.Fatal(err)
	}
	return a.Requests
}

// Transport gives what the mount uses, dev or uring.
func (f *FS) Transport() string {
	f.t.Helper()
	a, err := f.ask(command{Do: "transport"})
	if err != nil {
		f.t.Fatal(err)
	}
	return a.Transport
}

// PID is the server's.
func (f *FS) PID() int { return f.cmd.Process.Pid }

// Memory gives what the server has allocated.
func (f *FS) Memory() Memory {
	f.t.Helper()
	a, err := f.ask(command{Do: "memory"})
	if err != nil {
		f.t.Fatal(err)
	}
	return a.Memory
}

// Unmount asks the server to unmount; the server lives on.
func (f *FS) Unmount(lazy bool) error {
	do := "unmount"
	if lazy {
		do = "detach"
	}
	_, err := f.ask(command{Do: do})
	return err
}

// Abort asks the server to abort the connection.
func (f *FS) Abort() error {
	_, err := f.ask(command{Do: "abort"})
	return err
}

// WaitDone waits until the server has seen the end of the connection.
func (f *FS) WaitDone() error {
	_, err := f.ask(command{Do: "done"})
	return err
}

// Kill ends the server as a crash would, leaving a dead mount.
func (f *FS) Kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return
	}
	f.ended = true
	_ = f.cmd.Process.Kill() // Wait says what became of it
	_ = f.cmd.Wait()         // killed: an error is in order
}

// Stop unmounts and ends the server. It is called at the end of the test by itself.
func (f *FS) Stop() {
	f.t.Helper()
	if f.live && !f.ended {
		if err := f.Unmount(false); err != nil {
			f.t.Errorf("unmount: %v; in use by: %s", err, users(f.Dir))
		}
	}
	f.mu.Lock()
	if !f.ended {
		f.ended = true
		_ = f.stdin.Close() // ends the child; what matters is how
		kill := time.AfterFunc(answerTime, func() { _ = f.cmd.Process.Kill() })
		if err := f.cmd.Wait(); err != nil {
			f.t.Errorf("server: %v", err)
		}
		kill.Stop()
	}
	f.mu.Unlock()
	for i := 0; Mounted(f.Dir); i++ {
		if i == 0 && f.cmd.ProcessState.Success() {
			f.t.Errorf("%s is still mounted", f.Dir)
		}
		if err := syscall.Unmount(f.Dir, syscall.MNT_DETACH); err != nil {
			f.t.Errorf("unmount leftover: %v", err)
			return
		}
	}
}

// Mounted reports whether something is mounted at a path, without touching it.
func Mounted(path string) bool {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 4 && f[4] == path {
			return true
		}
	}
	return false
}

// users names the processes that hold a mount, for the message of a failed unmount.
func users(dir string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "fuser", "-m", dir)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}
