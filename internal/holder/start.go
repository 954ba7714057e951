package holder

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// recipe is how a daemon is started.
type recipe struct {
	start *Start
	exe   int // its program
}

// child is a daemon that the holder has started.
type child struct {
	pid, pidfd    int
	report, final int // the pipe on which it tells that it serves, or not; what it printed before it had its log
	deadline      time.Time
	took          bool // it had the role
}

// startAsked starts a daemon that is not there.
func (p *process) startAsked() {
	if p.owner == nil && p.child == nil {
		p.failures, p.attempts, p.most, p.awaited = 0, 0, maxAsked, false
		p.plan(time.Now())
	}
}

// startDaemon starts the daemon as it was started, by its descriptor: a path may lead into a mount that waits for it.
func (p *process) startDaemon() {
	from := p.good
	if from.start == nil {
		from = p.last
	}
	p.attempts++
	p.started = time.Now()
	p.reachable()
	c, err := spawnDaemon(from)
	if err != nil {
		p.fate(Death{Time: time.Now(), Message: err.Error()})
		p.failed(false)
		return
	}
	p.child = c
}

// background is the option with which a daemon reports on descriptor 3.
const background = "--background"

func spawnDaemon(from recipe) (*child, error) {
	s := from.start
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/null: %w", err)
	}
	defer func() { _ = unix.Close(null) }()
	final, err := unix.MemfdCreate("snapfs-start", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		_ = unix.Close(final)
		return nil, os.NewSyscallError("pipe2", err)
	}
	defer func() { _ = unix.Close(pipe[1]) }()
	args := slices.Clone(s.Args)
	if !slices.Contains(args, background) {
		args = append(args, background)
	}
	pidfd := -1
	pid, err := syscall.ForkExec(fmt.Sprintf("/proc/self/fd/%d", from.exe), args, &syscall.ProcAttr{
		Dir: "/", Env: s.Env, Files: []uintptr{uintptr(null), uintptr(null), uintptr(final), uintptr(pipe[1])},
		Sys: &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd},
	})
	if err == nil && pidfd < 0 {
		pidfd, err = unix.PidfdOpen(pid, 0)
	}
	if err == nil {
		err = unix.SetNonblock(pipe[0], true)
	}
	if err != nil {
		closeAll([]int{final, pipe[0]})
		return nil, fmt.Errorf("starting %s: %w", s.Program, err)
	}
	return &child{pid: pid, pidfd: pidfd, report: pipe[0], final: final, deadline: time.Now().Add(takeWait)}, nil
}
