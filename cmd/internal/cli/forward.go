package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// runCommandIn runs argv where it sees the workspace as see says, in namespaces as attr says; in its mountpoint if that is
// nil. It returns a non-zero exit code as a codeError.
func (a *app) runCommandIn(ctx context.Context, see inside, attr *syscall.SysProcAttr, argv []string) error {
	cmd := exec.Command(argv[0], argv[1:]...) // it ends when it wants to, as without snapfs
	cmd.Dir = see.Dir
	cmd.Env = append(os.Environ(), "PWD="+see.Dir)
	if attr != nil {
		if err := see.command(cmd, argv, attr); err != nil {
			return err
		}
	} else {
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: orphaned}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.in, a.out, a.err
	if a.json {
		cmd.Stdout = a.err
	}
	err := runForwarding(ctx, cmd)
	if cause := context.Cause(ctx); cause != nil && cmd.Process == nil {
		return cause
	}
	if cmd.ProcessState == nil {
		return codeError{fmt.Errorf("run %s: %w", quote(argv[0]), err), notRunCode(err)}
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || status.Exited() && status.ExitStatus() == 0 {
		return nil
	}
	return codeError{errSilent, waitCode(unix.WaitStatus(status))}
}

// runForwarding runs a command to its end. What signals mean is for the command to say: each is forwarded, and none ends
// the wait. A command that never starts because ctx has ended has no process.
func runForwarding(ctx context.Context, cmd *exec.Cmd) error {
	forwarded := []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2}
	if !signal.Ignored(unix.SIGHUP) { // else the command ignores it, too, as nohup(1) wants
		forwarded = append(forwarded, unix.SIGHUP)
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)
	if err := ctx.Err(); err != nil {
		return err
	}
	runtime.LockOSThread() // the kernel takes the end of the thread that starts the command for that of this process
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return err
	}
	if cause := (interrupted{}); errors.As(context.Cause(ctx), &cause) { // it may have come before there was a command
		_ = cmd.Process.Signal(cause.signal)
	}
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case s := <-signals:
				if !typed(s) {
					_ = cmd.Process.Signal(s) // it may have ended just now
				}
			case <-ended:
				return
			}
		}
	}()
	err := cmd.Wait()
	close(ended)
	<-stopped
	return err
}

// orphaned is the signal that the command of a run gets if this process is killed.
const orphaned = unix.SIGTERM

// typed reports whether a signal comes from a key of the terminal, which also sends it to the command: it is one of these
// signals, and this process is in the foreground. One that kill(1) sends then is taken for a key.
func typed(s os.Signal) bool {
	return (s == unix.SIGINT || s == unix.SIGQUIT) && foreground()
}

// foreground reports whether the process has a terminal and is in its foreground.
func foreground() bool {
	tty, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	group, err := unix.IoctlGetInt(tty, unix.TIOCGPGRP)
	_ = unix.Close(tty) // nothing was written
	return err == nil && group == unix.Getpgrp()
}
