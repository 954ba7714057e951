package cli

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"snapfs/internal/holder"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/client"
)

func (a *app) stopCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "end the daemon of the home",
		Long: `Unmounts all workspaces of the home, and ends its daemon and the holder. Workspaces and snapshots
stay. Layers that are not stored yet are stored after the next start, and files of destroyed
workspaces that are not removed yet are removed then. If no daemon runs, nothing changes.

Programs that use a workspace do not keep the daemon from ending: their mounts are listed before they
are taken away, with the programs. The next verb starts a daemon, which mounts again what was mounted.

With --force, a daemon that does not answer, or does not end within ten seconds, is killed, with its
holder. Files that programs have open in its mounts are lost to them then; what was written is there.`,
		Example:     "  snapfs stop\n  snapfs stop --force",
		Args:        exact(),
		Annotations: exits(api.ExitConflict, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.running(cmd)
			if errors.Is(err, errCannotStart) || errors.Is(err, errNotYet) {
				return a.giveUp(err)
			}
			if none := (noDaemonError{}); errors.As(err, &none) {
				a.note("%v", none)
				return a.result(stopped{InUse: []wire.UsedMount{}}, func(io.Writer) error { return nil })
			}
			var used []wire.UsedMount
			if err == nil {
				used, err = a.endDaemon(cmd.Context(), c, force)
			}
			if err != nil && force && cmd.Context().Err() == nil {
				return a.kill(cmd.Context(), err)
			}
			if err != nil {
				return err
			}
			a.note("stopped the daemon of %s", a.home)
			return a.result(stopped{true, used, nil}, func(io.Writer) error { return nil })
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "kill a daemon that does not end")
	return cmd
}

// endDaemon ends the daemon, and gives the mounts that were in use. With brief it does not wait for long.
func (a *app) endDaemon(ctx context.Context, c *client.Client, brief bool) ([]wire.UsedMount, error) {
	if brief {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, forceWait, errors.New("the daemon does not end"))
		defer cancel()
	}
	info, err := c.Info(ctx)
	used := a.tellUsed(ctx, c)
	if err == nil {
		a.remains = "the daemon may be ending"
		err = stopDaemon(ctx, c, info.PID)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	_ = c.Close() // the other end is gone
	return used, nil
}

// giveUp ends the holder of a home whose daemon cannot be started.
func (a *app) giveUp(why error) error {
	if err := holder.Drop(a.home); err != nil && !errors.Is(err, holder.ErrNone) {
		return failure(api.ErrUnavailable, "%v; and its mounts cannot be given up: %w", why, err)
	}
	a.note("%v; its mounts were given up, and the next daemon takes them away", why)
	return a.result(stopped{true, []wire.UsedMount{}, nil}, func(io.Writer) error { return nil })
}

// stopped is what stop prints with --json.
type stopped struct {
	Stopped bool             `json:"stopped"`
	InUse   []wire.UsedMount `json:"in_use"`           // mounts that were in use
	Killed  []int            `json:"killed,omitempty"` // processes that did not end
}

// tellUsed says which mounts are in use. A daemon that cannot tell is ended all the same.
func (a *app) tellUsed(ctx context.Context, c *client.Client) []wire.UsedMount {
	used, err := c.InUse(ctx)
	if err != nil || used == nil {
		return []wire.UsedMount{}
	}
	for _, u := range used {
		a.note("%s is in use at %s by %s", u.Workspace, quote(u.Mountpoint), u.By)
	}
	return used
}

// stopDaemon stops a daemon and waits for the end of its process, so that the home's file system can be unmounted.
func stopDaemon(ctx context.Context, c *client.Client, pid int) error {
	fd, fdErr := unix.PidfdOpen(pid, 0) // fails if the daemon is in a pid namespace that is not visible here
	if fdErr == nil {
		defer func() { _ = unix.Close(fd) }()
	}
	if err := c.Stop(ctx); err != nil || fdErr != nil {
		return err
	}
	for deadline := time.Now().Add(grace); time.Now().Before(deadline) && ctx.Err() == nil; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return nil
		}
	}
	return ctx.Err()
}

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:         "status",
		Short:       "show the daemon of the home",
		Long:        "Shows the daemon of the home. Starts none: if none runs, that is the error \"unavailable\".",
		Example:     "  snapfs status --json",
		Args:        exact(),
		Annotations: exits(api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.running(cmd)
			if err != nil {
				return err
			}
			info, err := c.Info(cmd.Context())
			if err != nil {
				return errors.Join(err, c.Close())
			}
			a.noteVersion(c)
			err = a.result(info, func(w io.Writer) error {
				return fields(w,
					"home", quote(info.Home),
					"pid", strconv.Itoa(info.PID),
					"holder", holderOf(info),
					"version", info.Version,
					"mounts", strconv.Itoa(info.Mounts),
					"listen", orDash(strings.Join(info.Listen, " ")),
					"log", a.logOf(info),
				)
			})
			return errors.Join(err, c.Close())
		},
	}
}

// holderOf says who keeps the mounts should the daemon die.
func holderOf(d wire.Info) string {
	if d.Holder == 0 {
		return "-"
	}
	return strconv.Itoa(d.Holder)
}

// noDaemonError says that no daemon has the home.
type noDaemonError struct{ home string }

func (e noDaemonError) Error() string { return "no daemon runs for " + e.home }

func (noDaemonError) Unwrap() error { return api.ErrUnavailable }

// running connects to a running daemon. The error is a noDaemonError if there is none or it is ending, and another one
// if the user may not use the home, or the daemon does not answer.
func (a *app) running(cmd *cobra.Command) (*client.Client, error) {
	if err := a.checkHome(anyHome); err != nil {
		return nil, err
	}
	for begin := time.Now(); ; time.Sleep(holderAgain) {
		c, err := a.dial(cmd.Context())
		if err == nil {
			return c, nil
		}
		if errors.Is(err, holder.ErrStopped) {
			return nil, err
		}
		gone := slices.ContainsFunc([]error{unix.ENOENT, unix.ECONNREFUSED, unix.ECONNRESET, unix.EPIPE, io.EOF},
			func(e error) bool { return errors.Is(err, e) })
		s, holderErr := holder.Ask(cmd.Context(), a.home)
		if starting := holderErr == nil && !s.Ready && !s.GivenUp && s.Kept > 0; starting && errors.Is(err, api.ErrUnavailable) && !errors.Is(err, errNotYet) {
			if time.Since(begin) > startPatience {
				return nil, failure(api.ErrUnavailable, "%w", notYet(s))
			}
			continue
		}
		if !gone {
			return c, err
		}
		// A daemon that has just died is started again if there is a holder.
		if holderErr != nil || time.Since(begin) > heldTimeout {
			return nil, noDaemonError{a.home}
		}
	}
}
