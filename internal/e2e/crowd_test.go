package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/testchild"
)

// A crowd is a process that keeps a workspace busy, a child made of the test binary. It is told what to do by
// $SNAPFS_CROWD: a role, a directory, a number and a seed. For each line on its standard input it answers with one, and
// it ends when there are no more.
const crowdEnv = "SNAPFS_CROWD"

// crowdChild turns this process into a crowd if startCrowd started it, and else does nothing.
func crowdChild() {
	f := strings.Split(os.Getenv(crowdEnv), "\n")
	if len(f) != 4 {
		return
	}
	n, _ := strconv.Atoi(f[2])                 // startCrowd writes numbers
	seed, _ := strconv.ParseUint(f[3], 10, 64) // as above
	c := crowdMember{dir: f[1], seed: seed}
	switch f[0] {
	case "writers":
		c.write(n)
	case "holders":
		go c.hold(n)
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		problem, _ := c.problem.Load().(string)
		fmt.Printf("%d %s\n", c.done.Load(), problem)
	}
	os.Exit(0)
}

type crowdMember struct {
	dir     string
	seed    uint64
	done    atomic.Int64
	problem atomic.Value // string, the first thing that went wrong
}

func (c *crowdMember) fail(what string, err error) {
	c.problem.CompareAndSwap(nil, fmt.Sprintf("%s: %v", what, err))
}

// write has n threads change files of their own, and look at them, without end. Each blocks by itself.
func (c *crowdMember) write(n int) {
	if c.seed%2 == 0 { // all on one processor, and so in its queue; threads that are made later inherit it
		tasks, _ := filepath.Glob("/proc/self/task/*") // the pattern is well formed
		for _, task := range tasks {
			tid, _ := strconv.Atoi(filepath.Base(task)) // the kernel writes numbers
			var set unix.CPUSet
			set.Set(0)
			_ = unix.SchedSetaffinity(tid, &set) // one that has ended, or another machine's processors: on any, then
		}
	}
	for i := range n {
		rng := rand.New(rand.NewPCG(c.seed, uint64(i)))
		go func() {
			name := filepath.Join(c.dir, "w"+strconv.Itoa(i))
			for k := 0; ; k++ {
				if err := turn(rng, name, k); err != nil {
					c.fail(name, err)
					return
				}
				c.done.Add(1)
				time.Sleep(20 * time.Millisecond)
			}
		}()
	}
}

// turn writes a file by its name and changes something else.
func turn(rng *rand.Rand, name string, k int) error {
	text := strings.Repeat(strconv.Itoa(k)+"\n", 1+rng.IntN(1000))
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		return err
	}
	var err error
	switch rng.IntN(5) {
	case 0:
		if err = os.Rename(name, name+"-moved"); err == nil {
			err = os.Rename(name+"-moved", name)
		}
	case 1:
		if err = os.Mkdir(name+"-dir", 0o755); err == nil {
			err = os.Remove(name + "-dir")
		}
	case 2:
		if err = os.Symlink("x", name+"-link"); err == nil {
			err = os.Remove(name + "-link")
		}
	case 3:
		err = os.Chmod(name, 0o600)
	}
	if err != nil {
		return err
	}
	got, err := os.ReadFile(name)
	if err == nil && string(got) != text {
		err = fmt.Errorf("%d bytes, want the %d written", len(got), len(text))
	}
	return err
}

// hold opens n directories and files, and removes most of them; running out of something is no problem.
func (c *crowdMember) hold(n int) {
	rng := rand.New(rand.NewPCG(c.seed, 5))
	short := []error{unix.EMFILE, unix.ENFILE, unix.ENOSPC, unix.EDQUOT, unix.ENOMEM, unix.EAGAIN, unix.EBUSY, unix.ENOLCK}
	for i := range n {
		name := filepath.Join(c.dir, "h"+strconv.Itoa(i))
		var err error
		switch rng.IntN(4) {
		case 0, 1:
			if err = unix.Mkdir(name, 0o755); err == nil {
				if _, err = unix.Open(name, unix.O_PATH|unix.O_DIRECTORY, 0); err == nil {
					err = unix.Rmdir(name)
				}
			}
		case 2:
			var fd int
			if fd, err = unix.Open(name, unix.O_CREAT|unix.O_RDWR, 0o600); err == nil {
				if _, err = unix.Write(fd, []byte(name)); err == nil {
					err = unix.Unlink(name)
				}
			}
		case 3: // a block of a large file of the layer below
			var fd int
			if fd, err = unix.Open(filepath.Join(c.dir, "large"+strconv.Itoa(i%crowdLarge)), unix.O_RDWR, 0); err == nil {
				_, err = unix.Pwrite(fd, []byte("x"), rng.Int64N(8<<20))
			}
		}
		if err != nil && !slices.ContainsFunc(short, func(s error) bool { return errors.Is(err, s) }) {
			c.fail(name, err)
		}
		if err == nil {
			c.done.Add(1)
		}
	}
}

// crowdLarge is how many large files holders write to.
const crowdLarge = 400

type crowd struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Reader
}

// startCrowd starts one, which ends with the test.
func startCrowd(t *testing.T, role, dir string, n int, seed uint64) *crowd {
	t.Helper()
	c := &crowd{t: t, cmd: exec.Command("/proc/self/exe")}
	task := strings.Join([]string{role, dir, itoa(n), strconv.FormatUint(seed, 10)}, "\n")
	c.cmd.Env = testchild.Env(testchild.User, crowdEnv+"="+task)
	c.cmd.Stderr = os.Stderr
	c.cmd.WaitDelay = time.Second
	var err error
	c.stdin, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	c.lines = bufio.NewReader(stdout)
	require.NoError(t, c.cmd.Start())
	t.Cleanup(c.end)
	return c
}

// done is how many things the crowd has done so far; it fails the test if something went wrong.
func (c *crowd) done() int {
	c.t.Helper()
	_, err := io.WriteString(c.stdin, "\n")
	require.NoError(c.t, err)
	kill := time.AfterFunc(time.Minute, func() { _ = c.cmd.Process.Kill() })
	defer kill.Stop()
	line, err := c.lines.ReadString('\n')
	require.NoError(c.t, err)
	count, problem, _ := strings.Cut(strings.TrimSpace(line), " ")
	if problem != "" {
		c.t.Fatalf("crowd: %s", problem)
	}
	n, err := strconv.Atoi(count)
	require.NoError(c.t, err)
	return n
}

// more waits until the crowd has done so many more things.
func (c *crowd) more(n int) {
	c.t.Helper()
	for want, end := c.done()+n, time.Now().Add(soon); c.done() < want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatal("the crowd does not go on")
		}
	}
}

// stalls waits until nobody in the crowd does anything.
func (c *crowd) stalls() {
	c.t.Helper()
	last, since := c.done(), time.Now()
	for end := time.Now().Add(soon); time.Since(since) < 100*time.Millisecond; time.Sleep(10 * time.Millisecond) {
		if now := c.done(); now != last {
			last, since = now, time.Now()
		}
		if time.Now().After(end) {
			c.t.Fatal("the crowd does not stop")
		}
	}
}

// end may wait for requests that stand: let them go first.
func (c *crowd) end() {
	_ = c.stdin.Close() // ends it
	kill := time.AfterFunc(10*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer kill.Stop()
	_ = c.cmd.Wait() // it was told to end
}
