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

// beInit is what snapfs does as the first process of a container: it runs itself as a child, passes signals on, reaps
// the orphans that the kernel gives to process 1, and ends with the child's code, after it has given the rest, a daemon
// for one, time to end. The child has to be another process, for whoever waits for any process would take the exit of
// those that os/exec waits for.
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
			_ = child.Process.Signal(n) // it may have ended just now; SIGCHLD tells
		}
	}
	return api.ExitFailed
}

// reap takes the exits of all children that have ended, and says whether the one was among them and how it ended.
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

// endOthers asks all other processes of the container to end and waits for them, before the kernel kills them.
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

// waitCode is the exit code by which a shell would report a status.
func waitCode(status unix.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
