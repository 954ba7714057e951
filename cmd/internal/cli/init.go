package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

// beInit is the init process of a container: it runs itself as a child, forwards signals and reaps the orphans that the
// kernel gives to process 1. When the child has ended, it gives other processes, such as a daemon, time to end and
// exits with the child's code. The child must be another process: waiting for any process would also take the exits
// that os/exec waits for.
func beInit() int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "snapfs: init:", err)
		return api.ExitFailed
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	child := exec.Command(self, os.Args[1:]...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "snapfs: init:", err)
		return api.ExitFailed
	}
	for s := range signals {
		n, ok := s.(syscall.Signal)
		switch {
		case !ok || n == unix.SIGURG: // SIGURG is how the Go runtime preempts
		case n == unix.SIGCHLD:
			if code, ended := reap(child.Process.Pid); ended {
				endOthers()
				return code
			}
		default:
			_ = child.Process.Signal(n) // it may have ended just now; then SIGCHLD follows
		}
	}
	return api.ExitFailed
}

// reap collects all children that have ended. It reports whether pid was among them, and its exit code.
func reap(pid int) (code int, ended bool) {
	for {
		var status unix.WaitStatus
		got, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || got <= 0 {
			return code, ended
		}
		if got == pid {
			code, ended = waitCode(status), true
		}
	}
}

// grace is how long processes may take to end after they were asked to.
const grace = 10 * time.Second

// endOthers asks all other processes of the container to end, and waits for them. The kernel kills the rest.
func endOthers() {
	if unix.Kill(-1, unix.SIGTERM) != nil {
		return // there are none
	}
	for deadline := time.Now().Add(grace); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		reap(-1)
		if unix.Kill(-1, 0) != nil {
			return
		}
	}
}

// waitCode is the exit code with which a shell reports a status.
func waitCode(status unix.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
