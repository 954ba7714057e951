package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
)

// onHangup is the annotation of a verb that SIGHUP does not cancel.
const onHangup = "hangup"

// Options of serve with which a daemon runs the program that replaces it.
const (
	SocketFDFlag   = "socket-fd"
	SocketKeptFlag = "socket-kept"
	ListenFDFlag   = "listen-fd"
)

func (a *app) serveCommand() *cobra.Command {
	var (
		o          ServeOptions
		file       string
		background bool
	)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "run the daemon of the home in the foreground",
		Long: `Opens the home, creates it if it is missing, and serves it until SIGTERM, SIGINT or 'snapfs stop'.
Then all workspaces are unmounted. Layers that are not stored yet are stored after the next start. A
home has one daemon; a second one is refused.

At the start, the workspaces are mounted again that were mounted when the last daemon ended, however
it ended. With --no-remount they are not, and later daemons do not mount them either.

Mounts over /dev/fuse outlive a daemon that is killed or crashes: the holder keeps their connections
and starts the next daemon, which goes on with them. Programs with open files wait meanwhile; a call
to which a signal comes then may end with EINTR. Programs wait until a daemon serves: one that cannot
start is tried six times, and when a verb needs it, which says why. 'snapfs stop' gives the mounts up
then. The program of the daemon, its log and settings should not lie in a workspace of its home. If
the holder is killed, the daemon starts another one; if both are, the mounts end, and the next daemon
makes them again. With --keep-mounts=false, mounts end with their daemon; so do those over io_uring.

The directory below a mount is immutable (chattr +i), where the file system can, while the workspace
is to be mounted there: if the daemon is killed or ended by SIGTERM, if its dead mount is taken away,
or after a reboot, the directory refuses writes until a daemon mounts the workspace again. 'snapfs
umount', 'destroy' and 'stop' end that. Without CAP_LINUX_IMMUTABLE, as in a container with
Docker's default capabilities, directories cannot be made immutable.

Other verbs start a daemon by themselves. Use serve to see the log, under a service manager, or as
the first process of a container, where it also reaps orphaned processes.

SIGHUP, or 'snapfs reload', opens the log file anew and reads the settings again, of which the
limits (--max-..., --events-..., --token-...) and the files of the certificate apply at once. Mounts and calls go on.

Settings are also read from a file: that of --settings, else daemon.toml in the home if it exists,
else /etc/snapfs/daemon.toml. It is TOML and has options of this verb by their names, such as
'max-snapshots = 1000' and 'events-age = "30d"'. The command line counts before the environment,
and that before the file.

A service manager that speaks the protocol of systemd is told when the daemon serves (sd_notify),
reloads and ends, and may give it its socket (LISTEN_FDS). SIGUSR2 ends the daemon for another one,
which is to follow within seconds, and goes on with the mounts (--keep-mounts).

With --replace, this process takes the place of the daemon that serves the home, if there is one:
that lets calls end, and leaves. Mounts that outlive a daemon go on; others are made again.
It is refused while programs use these, or calls do not end within half a minute. --force does it
anyway. If this process does not come to serve, the daemon before is started again. The daemon of a
service manager, or of a container, is replaced by 'snapfs upgrade'.

Requests travel over /dev/fuse, or with --transport uring, of this verb or of a mount, over io_uring:
faster, but such a mount ends with a daemon that dies. It must be switched on in the kernel
(/sys/module/fuse/parameters/enable_uring is Y); where it is, mounts use it with --keep-mounts=false.
--enable-fuse-uring writes Y there and logs it. That affects all FUSE file systems of the machine
that know io_uring. Nothing else changes the switch. 'snapfs show' tells what a mount uses.

With --listen, the same calls are served over TCP, for who has a token ('snapfs token'), and beside
them sandboxes over REST, tools of agents over MCP and the state of agents: see docs/SERVICE.md. A port
alone is one of 127.0.0.1. An address that other machines reach needs a certificate, or --insecure. In
the environment, several addresses are divided by commas.

With --docker-plugin, container engines of root have workspaces as volumes of the driver snapfs, by the
socket /run/docker/plugins/snapfs.sock, where Docker looks; a plugin at the path DIR/NAME.sock is the
driver NAME. For another user it is docker/snapfs.sock in the home. See docs/containers.md. The home
remembers it: daemons that verbs start serve volumes, too.

Root and the user that runs the daemon may do everything. With --socket-group and --allow, others may
use the socket, too. They are known by the credentials of their connections, and bound to sessions:
they see and change nothing of others, not even with --allow-cross-session, and cannot run gc, check,
reload, stop, upgrade and token, nor change quotas. Directories and files that they name are used with their
own rights, and they mount only on directories that they own, nosuid and nodev.`,
		Example: `  snapfs serve --home /srv/ws
  snapfs serve --home /srv/ws --socket-group agents --allow uid=1000:session=build,test
  podman run --device /dev/fuse --cap-add SYS_ADMIN IMAGE snapfs serve`,
		Args:        cobra.NoArgs,
		Annotations: exits(api.ExitConflict, api.ExitCorrupt, api.ExitUnavailable),
	}
	cmd.Annotations[onHangup] = "reload"
	cmd.Flags().AddFlagSet(serveFlags(&o))
	cmd.Flags().StringVar(&file, "settings", "", "read settings from `FILE`")
	cmd.Flags().BoolVar(&background, "background", false, "log to the home and report on descriptor 3")
	cmd.Flags().BoolVar(&o.MustExist, "must-exist", false, "do not create the home")
	cmd.Flags().BoolVar(&o.Replace, "replace", false, "take the place of the daemon that serves the home")
	cmd.Flags().BoolVar(&o.Force, "force", false, "with --replace: even if programs use mounts that end, or calls do not end")
	cmd.Flags().IntVar(&o.SocketFD, SocketFDFlag, 0, "take the socket of the daemon before, and do not report")
	cmd.Flags().StringArrayVar(&o.ListenFDs, ListenFDFlag, nil, "go on with a listener of the daemon before")
	cmd.Flags().BoolVar(&o.SocketKept, SocketKeptFlag, false, "leave the path of that socket where it is")
	for _, name := range []string{"background", "must-exist", SocketFDFlag, SocketKeptFlag, ListenFDFlag} {
		_ = cmd.Flags().MarkHidden(name) // fails for an unknown flag only
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Force && !o.Replace {
			return reported(usagef("--force is about --replace"), background)
		}
		if a.Engine == nil {
			// What the command line alone is wrong about needs no engine.
			if err := (&settings{home: a.home}).apply(cmd.Flags(), &o); err != nil {
				return reported(err, background)
			}
			return reported(execEngine(), background)
		}
		s := &settings{home: a.home, file: file, read: a.Engine.ReadSettings, line: given(cmd.Flags())}
		err := s.apply(cmd.Flags(), &o)
		// The daemon leaves its working directory.
		for _, path := range []*string{&s.file, &o.LogPath, &o.TLSCert, &o.TLSKey} {
			if err == nil && *path != "" {
				*path, err = filepath.Abs(*path)
			}
		}
		if err != nil {
			return reported(err, background)
		}
		o.Settings = s.again
		o.Args = anywhere(onceOnly(os.Args), cmd.Flags(), map[string]string{
			"home": a.home, "settings": s.file, "log": o.LogPath,
			"tls-cert": o.TLSCert, "tls-key": o.TLSKey,
		})
		return a.serve(cmd.Context(), o, background)
	}
	return cmd
}

// anywhere are arguments that mean the same in any directory: paths are added as they are here, where they count before
// those that were given. The home is always added, others if they were given.
func anywhere(args []string, flags *pflag.FlagSet, paths map[string]string) []string {
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		if f := flags.Lookup(name); name != "home" && (f == nil || !f.Changed) {
			continue
		}
		arg := "--" + name + "=" + paths[name]
		args = append(slices.DeleteFunc(slices.Clone(args), func(old string) bool { return old == arg }), arg)
	}
	return args
}

// onceOnly drops from arguments what is about the daemon before.
func onceOnly(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return name == "--replace" || name == "--force"
	})
}

// serveFlags are the options of serve that can also be set in a file. They set o.
func serveFlags(o *ServeOptions) *pflag.FlagSet {
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	o.Transport, o.IdleAfter = "auto", 10*time.Minute
	flags.StringVar(&o.Transport, "transport", o.Transport,
		"default transport of mounts, `KIND`: auto, uring or dev")
	flags.BoolVar(&o.EnableURing, "enable-fuse-uring", false,
		"switch on FUSE over io_uring in the kernel, for the whole system until the next boot")
	flags.Var(duration{&o.IdleAfter}, "idle-after",
		"merge layers, collect garbage and repack cold data after this time without a call or request; 0: never")
	flags.BoolVar(&o.Remount, "remount", true, "mount the workspaces that were mounted when the last daemon ended")
	flags.BoolVar(&o.NoRemount, "no-remount", false, "mount nothing at the start; later daemons do not either")
	flags.BoolVar(&o.KeepMounts, "keep-mounts", true,
		"mounts over /dev/fuse outlive a daemon that dies; see above (SNAPFS_KEEP_MOUNTS)")
	flags.IntVar(&o.MaxSnapshots, "max-snapshots", 0,
		"limit a session to `N` snapshots; 0 is 100,000, below 0 is no limit (SNAPFS_MAX_SNAPSHOTS)")
	flags.IntVar(&o.MaxWorkspaces, "max-workspaces", 0,
		"limit a session to `N` workspaces; 0 is 100,000, below 0 is no limit (SNAPFS_MAX_WORKSPACES)")
	flags.Int64Var(&o.MaxBytes, "max-bytes", 0,
		"refuse snapshots of a session whose stored images have `N` bytes or more; 0 is no limit (SNAPFS_MAX_BYTES)")
	flags.Var(bytesize{&o.MaxSize}, "max-size",
		"keep the home below `SIZE` on its disk, such as 20G: one that has reached it refuses snapshots and turns, and "+
			"deletes its oldest ones without a name, checked every minute; 0 is no limit (SNAPFS_MAX_SIZE)")
	flags.IntVar(&o.EventsKeep, "events-keep", 0,
		"keep about the newest `N` events of the home, checked every minute; 0 is 100,000, below 0 is no limit "+
			"(SNAPFS_EVENTS_KEEP)")
	flags.Var(duration{&o.EventsAge}, "events-age",
		"keep events for this time, warnings for four times as long; 0 is 90d, below 0 is for ever (SNAPFS_EVENTS_AGE)")
	flags.StringVar(&o.SocketGroup, "socket-group", "",
		"let the members of `GROUP` use the socket, each for the session uid-N of its own")
	flags.StringArrayVar(&o.Allow, "allow", nil,
		"let the user or group of `WHO:session=ID[,ID...]` use the socket for these sessions; WHO is uid=N, gid=N, "+
			"user=NAME or group=NAME; may be repeated")
	flags.StringVar(&o.Metrics, "metrics", "",
		"serve Prometheus metrics and Go profiles at local `ADDR`, such as 127.0.0.1:9180")
	flags.StringArrayVar(&o.Listen, "listen", nil,
		"serve HTTP at `ADDR`, for who has a token: HOST:PORT, or a port of this machine alone; may be repeated (SNAPFS_LISTEN)")
	flags.StringVar(&o.TLSCert, "tls-cert", "", "encrypt what --listen serves with the certificate of `FILE` (SNAPFS_TLS_CERT)")
	flags.StringVar(&o.TLSKey, "tls-key", "", "the key of --tls-cert is in `FILE` (SNAPFS_TLS_KEY)")
	flags.BoolVar(&o.Insecure, "insecure", false,
		"let other machines use --listen without a certificate: something else encrypts (SNAPFS_INSECURE)")
	flags.StringArrayVar(&o.AllowHosts, "allow-host", nil,
		"`NAME` by which clients may call an address of this machine alone, as through a proxy; may be repeated (SNAPFS_ALLOW_HOST)")
	flags.Var(pluginSocket{&o.DockerPlugin}, "docker-plugin",
		"serve volumes to Docker and Podman, also by later daemons, until --docker-plugin=false; with =PATH at another socket "+
			"(SNAPFS_DOCKER_PLUGIN)")
	flags.Lookup("docker-plugin").NoOptDefVal = "true"
	flags.Float64Var(&o.TokenRate, "token-rate", 0,
		"let a token make `N` requests per second; 0 is 5,000 (SNAPFS_TOKEN_RATE)")
	flags.IntVar(&o.TokenBurst, "token-burst", 0,
		"let a token make `N` requests at once, beyond --token-rate; 0 is 10,000 (SNAPFS_TOKEN_BURST)")
	flags.IntVar(&o.TokenCalls, "token-calls", 0, "let a token have `N` requests under way; 0 is 256 (SNAPFS_TOKEN_CALLS)")
	flags.Var(bytesize{&o.MaxUpload}, "max-upload",
		"take at most `SIZE` in one upload, such as 100G; 0 is 16 GiB (SNAPFS_MAX_UPLOAD)")
	flags.StringVar(&o.LogPath, "log", "", "write the log to `FILE` instead of standard error")
	return flags
}

// serve runs the daemon. In the background, it reports once on readyFD whether it serves.
func (a *app) serve(ctx context.Context, o ServeOptions, background bool) (err error) {
	o.Home, o.Version, o.Verbose, o.Log, o.Hangup = a.home, a.Version, a.verbose, a.err, a.hangup
	if o.LogPath == "" && background {
		o.LogPath = logPath(a.home)
	}
	if o.SocketFD > 0 { // who started the first of them knows already
		o.Ready = func() {}
		return a.Engine.Serve(ctx, o)
	}
	if !background {
		o.Ready = func() { a.note("serving %s, pid %d", a.home, os.Getpid()) }
		return a.Engine.Serve(ctx, o)
	}
	report := os.NewFile(readyFD, "ready")
	reported := false
	o.Ready = func() {
		sendReady(report, nil)
		reported = true
	}
	if err = a.Engine.Serve(ctx, o); !reported {
		sendReady(report, err) // it did not serve
	}
	return err
}

// reported passes on the error of a daemon that does not start; in the background it reports it first.
func reported(err error, background bool) error {
	if background {
		sendReady(os.NewFile(readyFD, "ready"), err)
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

// logOf says where the log of a daemon is.
func (a *app) logOf(d wire.Info) string {
	switch d.Log {
	case "":
		return quote(logPath(a.home))
	case wire.LogJournal:
		return fmt.Sprintf("'journalctl _PID=%d'", d.PID)
	case wire.LogStderr:
		return fmt.Sprintf("the standard error of process %d", d.PID)
	}
	return quote(d.Log)
}

// logPath is the log of a daemon in the background.
func logPath(home string) string { return filepath.Join(home, api.LogName) }
