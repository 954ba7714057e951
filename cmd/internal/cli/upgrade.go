package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"snapfs/internal/holder"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/client"
)

// upgrade is the result of the verb.
type upgrade struct {
	Upgraded bool   `json:"upgraded"`
	From     string `json:"from,omitempty"`
	To       string `json:"to,omitempty"`
	Mounts   int    `json:"mounts"`
}

func (a *app) upgradeCommand() *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "replace the running daemon by the installed version",
		Long: `Has the installed version go on as the daemon of the home: the running one lets calls end and
becomes the new program, in the same process and with the same options. Other commands wait
meanwhile. Mounts that outlive a daemon go on. The others ('snapfs serve --help' says which) are
unmounted before and mounted again, so it is refused while programs use them, which the message
names. --force does it anyway: their open files fail with "Transport endpoint is not connected".

If no daemon runs, or it is of this program already, nothing changes.`,
		Example:     "  snapfs upgrade",
		Args:        exact(),
		Annotations: exits(api.ExitConflict, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, _ []string) error {
			u, err := a.upgrade(cmd, force)
			if err != nil {
				return err
			}
			return a.result(u, func(io.Writer) error { return nil })
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace it even if programs use its mounts")
	return cmd
}

// upgrade replaces the daemon, if it is another program.
func (a *app) upgrade(cmd *cobra.Command, force bool) (upgrade, error) {
	ctx := cmd.Context()
	program, err := a.enginePath()
	if err != nil {
		return upgrade{}, err
	}
	c, err := a.running(cmd)
	if none := (noDaemonError{}); errors.As(err, &none) {
		a.note("%v", none)
		return upgrade{}, nil
	}
	if err != nil {
		return upgrade{}, err
	}
	before, err := c.Info(ctx)
	switch {
	case err != nil:
		return upgrade{}, errors.Join(err, c.Close())
	case !force && before.Version == a.Version && runs(before.PID, program):
		a.note("the daemon is of version %s already", a.Version)
		return upgrade{From: before.Version, Mounts: before.Mounts}, c.Close()
	}
	if text, err := exec.CommandContext(ctx, program, "version").CombinedOutput(); err != nil {
		return upgrade{}, errors.Join(fmt.Errorf("%s does not run: %w: %s", program, err, text), c.Close())
	}
	if _, err := a.askHolder(ctx); errors.Is(err, holder.ErrRefused) {
		err = failure(api.ErrUnavailable, "%v: the new version could not go on with the mounts: "+
			"stop the daemon with the command that was installed with it", err)
		return upgrade{}, errors.Join(err, c.Close())
	}
	a.remains = "the daemon may be ending; the next verb starts it"
	meter := a.newMeter()
	err = c.StopWith(ctx, wire.StopRequest{UnlessBusy: !force, Replace: program}, meter.report())
	meter.done()
	if old := (*wire.VersionError)(nil); errors.As(err, &old) {
		err = a.stopOld(ctx, c, before.PID, force)
	}
	if err != nil {
		return upgrade{}, errors.Join(err, c.Close())
	}
	_ = c.Close() // the other end is gone
	return a.upgraded(ctx, before)
}

// stopOld ends a daemon that cannot be replaced in its process; the next call starts another.
func (a *app) stopOld(ctx context.Context, c *client.Client, pid int, force bool) error {
	if !force {
		return failure(api.ErrConflict, "the daemon is of version %s, which cannot tell whether its mounts are in use: "+
			"unmount the workspaces first, or use --force", c.DaemonVersion())
	}
	return stopDaemon(ctx, c, pid)
}

// upgraded waits for the new daemon, and checks that it has what the old one had.
func (a *app) upgraded(ctx context.Context, before wire.Info) (upgrade, error) {
	a.patience = startTimeout
	c, err := a.connect(ctx, existingHome)
	if err != nil {
		return upgrade{}, fmt.Errorf("the new daemon does not serve; %s may say why: %w", a.logOf(before), err)
	}
	after, err := c.Info(ctx)
	if err = errors.Join(err, c.Close()); err != nil {
		return upgrade{}, err
	}
	switch {
	case after.Version != a.Version:
		err = fmt.Errorf("the new program could not be run, and the old one goes on: %s says why", a.logOf(before))
	case after.Mounts < before.Mounts:
		err = fmt.Errorf("of %d mounts %d could not be made again: %s says why", before.Mounts,
			before.Mounts-after.Mounts, a.logOf(after))
	default:
		a.note("replaced the daemon of version %s by version %s", before.Version, after.Version)
	}
	return upgrade{Upgraded: true, From: before.Version, To: after.Version, Mounts: after.Mounts}, err
}

// runs reports whether a process runs a program that is still the file at a path.
func runs(pid int, path string) bool {
	running, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return false
	}
	file, err := os.Stat(path)
	return err == nil && os.SameFile(running, file)
}
