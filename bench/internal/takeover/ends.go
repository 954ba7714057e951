package takeover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/bench/internal/cost"
	"snapfs/bench/internal/engine"
)

// killed is the name of the end by SIGKILL.
const killed = "snapfs killed"

// end is a way in which a daemon ends and another one goes on.
type end struct {
	name string
	do   func(ctx context.Context, h *engine.Home) error // returns when the old one has ended
}

var ends = []end{{killed, kill}, {"snapfs serve --replace", replace}, {"snapfs upgrade", upgrade}}

// status is what a daemon tells of itself.
type status struct {
	PID    int `json:"pid"`
	Holder int `json:"holder"`
}

func statusOf(ctx context.Context, h *engine.Home) (status, error) {
	var s status
	err := h.Run(ctx, &s, "status")
	if err == nil && (s.PID == 0 || s.Holder == 0) {
		err = fmt.Errorf("processes of the daemon and its holder: %+v", s)
	}
	return s, err
}

func kill(ctx context.Context, h *engine.Home) error {
	return endOf(ctx, h, func(pid int) error { return unix.Kill(pid, unix.SIGKILL) })
}

func replace(ctx context.Context, h *engine.Home) error {
	return endOf(ctx, h, func(int) error {
		cmd := exec.CommandContext(context.WithoutCancel(ctx), h.Engine.Binary, "--home", h.Dir, "serve", "--replace")
		cmd.Env = append(os.Environ(), "SNAPFS_KEEP_MOUNTS=true")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is for this program
		if err := cmd.Start(); err != nil {
			return err
		}
		go func() { _ = cmd.Wait() }() // it is the next one that is ended, or stopped
		return nil
	})
}

func upgrade(ctx context.Context, h *engine.Home) error { return h.Run(ctx, nil, "upgrade", "--force") }

// endOf has a daemon end, and waits for that.
func endOf(ctx context.Context, h *engine.Home, begin func(pid int) error) error {
	s, err := statusOf(ctx, h)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(s.PID, 0)
	if err != nil {
		return fmt.Errorf("process %d: %w", s.PID, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := begin(s.PID); err != nil {
		return err
	}
	for late := time.Now().Add(time.Minute); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		switch {
		case n > 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(late):
			return fmt.Errorf("process %d does not end", s.PID)
		}
	}
}

// memory is the most resident memory that the daemon and its holder have had, in MiB.
func memory(ctx context.Context, h *engine.Home) (daemon, holder float64, err error) {
	s, err := statusOf(ctx, h)
	if err != nil {
		return 0, 0, err
	}
	d, err := cost.Peak(s.PID)
	if err != nil {
		return 0, 0, err
	}
	k, err := cost.Peak(s.Holder)
	return float64(d) / (1 << 20), float64(k) / (1 << 20), err
}
