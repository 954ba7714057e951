package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
)

func (a *app) serveCommand() *cobra.Command {
	var background bool
	o := ServeOptions{Transport: "auto", IdleAfter: 10 * time.Minute}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "run the daemon of the home in the foreground",
		Long: `Opens the home, creates it if it is missing, and serves it until SIGTERM, SIGINT or 'snapfs stop'.
Then all workspaces are unmounted. Layers that are not stored yet are stored after the next start. A
home has one daemon; a second one is refused.

Other verbs start a daemon by themselves. Use serve to see the log, under a service manager, or as
the first process of a container, where it also reaps orphaned processes.

Requests travel over io_uring if it is switched on in the kernel
(/sys/module/fuse/parameters/enable_uring is Y), else over /dev/fuse. 'snapfs show' tells which.
--enable-fuse-uring writes Y there and logs it. That affects all FUSE file systems of the machine
that know io_uring. Nothing else changes the switch.`,
		Example: `  snapfs serve --home /srv/ws
  podman run --device /dev/fuse --cap-add SYS_ADMIN IMAGE snapfs serve`,
		Args:        cobra.NoArgs,
		Annotations: exits(api.ExitConflict, api.ExitCorrupt, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := checkTransport(o.Transport)
			if err == nil {
				err = fromEnvironment(cmd.Flags(), "max-snapshots", "max-bytes", "events-keep", "events-age")
			}
			if err != nil {
				if background {
					sendReady(os.NewFile(readyFD, "ready"), err)
				}
				return err
			}
			if a.Engine == nil {
				return execEngine()
			}
			return a.serve(cmd.Context(), o, background)
		},
	}
	cmd.Flags().StringVar(&o.Transport, "transport", o.Transport,
		"default transport of mounts, `KIND`: auto, uring or dev")
	cmd.Flags().BoolVar(&o.EnableURing, "enable-fuse-uring", false,
		"switch on FUSE over io_uring in the kernel, for the whole system until the next boot")
	cmd.Flags().Var(duration{&o.IdleAfter}, "idle-after",
		"merge layers, collect garbage and repack cold data after this time without a call or request; 0: never")
	cmd.Flags().BoolVar(&o.Remount, "remount", false,
		"mount the workspaces that were mounted when the last daemon ended")
	cmd.Flags().IntVar(&o.MaxSnapshots, "max-snapshots", 0,
		"limit a session to `N` snapshots; 0 is 100,000, below 0 is no limit (SNAPFS_MAX_SNAPSHOTS)")
	cmd.Flags().Int64Var(&o.MaxBytes, "max-bytes", 0,
		"refuse snapshots of a session whose stored images have `N` bytes or more; 0 is no limit (SNAPFS_MAX_BYTES)")
	cmd.Flags().IntVar(&o.EventsKeep, "events-keep", 0,
		"keep about the newest `N` events of the home, checked every minute; 0 is 100,000, below 0 is no limit "+
			"(SNAPFS_EVENTS_KEEP)")
	cmd.Flags().Var(duration{&o.EventsAge}, "events-age",
		"keep events for this time, warnings for four times as long; 0 is 90d, below 0 is for ever (SNAPFS_EVENTS_AGE)")
	cmd.Flags().StringVar(&o.Metrics, "metrics", "",
		"serve Prometheus metrics and Go profiles at local `ADDR`, such as 127.0.0.1:9180")
	cmd.Flags().BoolVar(&background, "background", false, "log to the home and report on descriptor 3")
	cmd.Flags().BoolVar(&o.MustExist, "must-exist", false, "do not create the home")
	_ = cmd.Flags().MarkHidden("background") // fails for an unknown flag only
	_ = cmd.Flags().MarkHidden("must-exist")
	return cmd
}

// serve runs the daemon. In the background, it reports once on readyFD whether it serves.
func (a *app) serve(ctx context.Context, o ServeOptions, background bool) (err error) {
	o.Home, o.Version, o.Verbose, o.Log = a.home, a.Version, a.verbose, a.err
	if !background {
		o.Ready = func() { a.note("serving %s, pid %d", a.home, os.Getpid()) }
		return a.Engine.Serve(ctx, o)
	}
	report := os.NewFile(readyFD, "ready")
	reported := false
	o.LogPath = logPath(a.home)
	o.Ready = func() {
		sendReady(report, nil)
		reported = true
	}
	if err = a.Engine.Serve(ctx, o); !reported {
		sendReady(report, err) // it did not serve
	}
	return err
}

// sendReady writes the report and closes the pipe. Errors are ignored: the reader is gone then.
func sendReady(report *os.File, err error) {
	state := ready{PID: os.Getpid()}
	if err != nil {
		state.Error, state.Code = err.Error(), exitCode(err)
	}
	line, jsonErr := json.Marshal(state)
	if jsonErr == nil {
		_, _ = report.Write(append(line, '\n'))
	}
	_ = report.Close()
}

// logPath is the log of a daemon in the background.
func logPath(home string) string { return filepath.Join(home, api.LogName) }
