package twin

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"snapfs/internal/testchild"
)

// answerTime bounds how long a test waits for an actor.
const answerTime = 2 * time.Minute

// Config says where an actor works.
type Config struct {
	// Tested and Reference are directories. Without a reference nothing is compared.
	Tested, Reference string
	// Seed determines the operations.
	Seed uint64
	// AsRoot has root do everything.
	AsRoot bool
	// Whole leaves out what a kill may leave half done in a way that Settle does not follow: stores of many pages.
	Whole bool
	// Stacked leaves out what the kernel's overlayfs does otherwise over FUSE than over a host's file system, see
	// docs/POSIX.md: it may lose a file by its other names when one goes, and takes a file's mode for what it was before
	// an ACL was set.
	Stacked bool
	// Privileges has several users write to each other's setuid files, and little else.
	Privileges bool
	// Plain says that the reference is no overlay: writing to a FIFO changes its time there, over FUSE and overlayfs it
	// does not.
	Plain bool
}

// Actor is a process that does operations.
type Actor struct {
	t      testing.TB
	config Config
	cmd    *exec.Cmd
	mu     sync.Mutex // one command at a time
	stdin  io.WriteCloser
	lines  *bufio.Reader
	done   int
}

// Start starts an actor, which ends with the test.
func Start(t testing.TB, c Config) *Actor {
	t.Helper()
	a := &Actor{t: t, config: c, cmd: exec.Command("/proc/self/exe")}
	a.cmd.Env = testchild.Env(testchild.User, childEnv+"=1")
	a.cmd.Stderr = os.Stderr
	a.cmd.WaitDelay = time.Second
	stdin, err := a.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	a.stdin, a.lines = stdin, bufio.NewReader(stdout)
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Stop)
	a.must(command{Do: "start", Config: c})
	return a
}

// ask sends a command and waits for its answer.
func (a *Actor) ask(c command) (answer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	line, err := json.Marshal(c)
	if err != nil {
		return answer{}, err
	}
	if _, err := a.stdin.Write(append(line, '\n')); err != nil {
		return answer{}, err
	}
	// One that does not answer is killed, which ends the read below.
	watch := time.AfterFunc(answerTime, func() { _ = a.cmd.Process.Kill() })
	defer watch.Stop()
	if line, err = a.lines.ReadBytes('\n'); err != nil {
		return answer{}, fmt.Errorf("the actor died or hung: %w", err)
	}
	var r answer
	if err := json.Unmarshal(line, &r); err != nil {
		return answer{}, err
	}
	a.done += r.Done
	if r.Error != "" {
		return r, errors.New(r.Error)
	}
	return r, nil
}

// must sends a command that has to find no differences.
func (a *Actor) must(c command) answer {
	a.t.Helper()
	r, err := a.ask(c)
	if err != nil {
		a.t.Fatalf("%s: %v", c.Do, err)
	}
	if len(r.Differences) > 0 {
		a.t.Fatal(a.differences(r))
	}
	return r
}

// Steps does the next n operations and fails the test at the first one that differs, or if the server is gone.
func (a *Actor) Steps(n int) {
	a.t.Helper()
	if r := a.must(command{Do: "steps", N: n}); r.Lost {
		a.t.Fatalf("seed %d, after %d operations: the server is gone", a.config.Seed, a.done)
	}
}

// differences is the error of an answer that has some.
func (a *Actor) differences(r answer) error {
	last := r.History[max(0, len(r.History)-300):]
	return fmt.Errorf("seed %d, after %d operations:\n%s\n%s",
		a.config.Seed, a.done, strings.Join(last, "\n"), strings.Join(r.Differences, "\n"))
}

// Try does up to n operations until the server is gone, and reports whether it is.
func (a *Actor) Try(n int) (lost bool, err error) {
	r, err := a.ask(command{Do: "steps", N: n})
	if err == nil && len(r.Differences) > 0 {
		err = a.differences(r)
	}
	return r.Lost, err
}

// Compare fails the test if the trees differ.
func (a *Actor) Compare() {
	a.t.Helper()
	a.must(command{Do: "compare"})
}

// Settle is Compare after a kill: the operation that found no server was done or was not, and nothing else is missing.
func (a *Actor) Settle() {
	a.t.Helper()
	a.must(command{Do: "settle"})
}

// Detach closes everything that is open in the trees; Attach opens them again.
func (a *Actor) Detach() {
	a.t.Helper()
	a.must(command{Do: "detach"})
}

// Attach opens the trees after Detach.
func (a *Actor) Attach() {
	a.t.Helper()
	a.must(command{Do: "attach"})
}

// Done is how many operations were done.
func (a *Actor) Done() int { return a.done }

// Stop ends the actor. It is called at the end of the test by itself.
func (a *Actor) Stop() {
	_ = a.stdin.Close() // ends it
	kill := time.AfterFunc(10*time.Second, func() { _ = a.cmd.Process.Kill() })
	defer kill.Stop()
	_ = a.cmd.Wait() // it was told to end, or has been killed
}
