package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
)

func (a *app) serveCommand() *cobra.Command {
	var background bool
	o := ServeOptions{Transport: "auto", IdleAfter: 10 * time.Minute}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "be the daemon of the home, in the foreground",
		Long: `Opens the home, makes it if it is missing, and serves it until SIGTERM, SIGINT or 'snapfs stop'. Then all
workspaces are unmounted; what was not stored yet is stored after the next start. Other verbs start a daemon
by themselves: run it by hand to see its log, under a service manager, or as the first process of a container, where it
also reaps orphans.

A home has one daemon: a second one is refused.

Requests come over io_uring where the kernel has that switched on (/sys/module/fuse/parameters/enable_uring is Y), else
over /dev/fuse; 'snapfs show' tells. --enable-fuse-uring writes Y there, which concerns all FUSE file systems of the
system that know io_uring, and says so in the log. Nothing else switches it.`,
		Example: "  snapfs serve --home /srv/ws\n  podman run --device /dev/fuse --cap-add SYS_ADMIN IMAGE snapfs serve",
		Args:    cobra.NoArgs,
		Annotations: map[string]string{
			"exits": exitHelp(api.ExitConflict, api.ExitCorrupt, api.ExitUnavailable),
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkTransport(o.Transport); err != nil {
				return err
			}
			if a.Engine == nil {
				return execEngine()
			}
			return a.serve(cmd.Context(), o, background)
		},
	}
	cmd.Flags().StringVar(&o.Transport, "transport", o.Transport, "how requests travel where a mount does not say: auto, uring or dev")
	cmd.Flags().BoolVar(&o.EnableURing, "enable-fuse-uring", false,
		"switch the kernel's FUSE over io_uring on, for the whole system and until the next boot")
	cmd.Flags().DurationVar(&o.IdleAfter, "idle-after", o.IdleAfter,
		"merge layers, collect garbage and pack cold data anew after so long without a call or request; 0: never")
	cmd.Flags().BoolVar(&o.Remount, "remount", false, "mount again what was mounted when the last daemon ended")
	cmd.Flags().IntVar(&o.MaxSnapshots, "max-snapshots", envInt("SNAPFS_MAX_SNAPSHOTS"),
		"a session may have `N` snapshots; 0 is 100,000, below 0 any number (SNAPFS_MAX_SNAPSHOTS)")
	cmd.Flags().Int64Var(&o.MaxBytes, "max-bytes", int64(envInt("SNAPFS_MAX_BYTES")),
		"a session whose snapshots' stored images have `N` bytes in all makes no more; 0 is any (SNAPFS_MAX_BYTES)")
	cmd.Flags().StringVar(&o.Metrics, "metrics", "", "serve Prometheus metrics and Go profiles at local `ADDR`, as 127.0.0.1:9180")
	cmd.Flags().BoolVar(&background, "background", false, "log to the home and report on descriptor 3")
	cmd.Flags().BoolVar(&o.MustExist, "must-exist", false, "refuse to make a home that is not there")
	_ = cmd.Flags().MarkHidden("background") // fails for an unknown flag only
	_ = cmd.Flags().MarkHidden("must-exist")
	return cmd
}

// envInt is a number from the environment; 0 if it is not set or is none.
func envInt(name string) int {
	n, _ := strconv.Atoi(os.Getenv(name))
	return n
}

// serve runs the daemon. In the background it reports once on readyFD whether it serves.
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
		sendReady(report, err) // it never served
	}
	return err
}

// sendReady writes the report and closes the pipe. Nobody is left to be told of an error here.
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
func logPath(home string) string { return filepath.Join(home, "daemon.log") }
