package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"snapfs/internal/userns"
	"snapfs/sandbox/api"
)

// app is one run of the command: its global flags and streams.
type app struct {
	Program

	home string
	// homeGiven says that the command line or the environment names the home.
	homeGiven bool
	session   string
	cross     bool
	json      bool
	quiet     bool
	verbose   bool

	in  io.Reader
	out io.Writer
	err io.Writer

	// parsed reports whether the command line was understood. Errors after that are not usage errors.
	parsed bool

	// ctx is the context of the verb and ends with a signal; stop ends the watch for signals.
	ctx  context.Context
	stop func()

	// patience is how long connect waits for a process that holds the home, if it is more than heldTimeout.
	patience time.Duration

	// hangup receives from SIGHUP in a verb that has the annotation onHangup; nil in others, which SIGHUP cancels.
	hangup chan struct{}

	// remains says in words what an interrupt of this verb leaves behind. A verb that takes effect step by step
	// updates it.
	remains string
}

const rootLong = `snapfs gives every sandbox a copy-on-write workspace that can be frozen, branched and exported.

A workspace is a mutable tree, shown at a mountpoint. A snapshot is an immutable copy of a workspace
at one moment. 'restore' and 'branch' make a new workspace from a snapshot and do not change its
origin.

All of them are kept in a home directory. One daemon holds the home. Verbs start the daemon when it
is needed; 'snapfs stop' ends it.

NAME is a workspace: its name (lower-case letters, digits and inner dashes, at most 63 characters),
or a path: its mountpoint, any path inside that, or "." there.

SNAP is a snapshot: WORKSPACE:NAME, or NAME alone if only one workspace has a snapshot of that name;
its id, or a unique prefix of the id (4 characters or more); or the ref that --json prints. Names of
snapshots belong to their workspace, which may also be a path: '.:built'.`

const usageTemplate = `Usage:
  {{if .HasAvailableSubCommands}}{{.CommandPath}} [flags] VERB ...{{else}}{{.UseLine}}{{end}}
{{- if .HasExample}}

Examples:
{{.Example}}{{end}}
{{- if .HasAvailableSubCommands}}

Verbs:
{{- range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name 12}} {{.Short}}{{end}}{{end}}{{end}}
{{- if .HasAvailableLocalFlags}}

Options:
{{.LocalFlags.FlagUsagesWrapped 100 | trimTrailingWhitespaces}}{{end}}
{{- if .HasAvailableInheritedFlags}}

Global options:
{{.InheritedFlags.FlagUsagesWrapped 100 | trimTrailingWhitespaces}}{{end}}
{{- with index .Annotations "exits"}}

{{.}}{{end}}
`

// rootCommand builds the command for a line of arguments.
func (a *app) rootCommand(args []string) *cobra.Command {
	root := &cobra.Command{
		Use:           "snapfs",
		Short:         "Copy-on-write workspaces with snapshots",
		Long:          rootLong,
		Version:       a.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noSuchVerb,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			a.parsed = true
			if cmd.Annotations[onHangup] != "" {
				a.hangup = make(chan struct{}, 1)
			}
			a.ctx, a.stop = withSignals(a.ctx, a.hangup)
			cmd.SetContext(a.ctx)
			return a.resolveHome()
		},
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitCorrupt,
			api.ExitUnavailable),
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},

		SuggestionsMinimumDistance: 2,
	}
	cobra.EnableCommandSorting = false
	root.SetVersionTemplate("snapfs {{.Version}}\n")
	root.SetUsageTemplate(usageTemplate)
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		cmd.Long = wrapped(cmd.Long)
		help(cmd, args)
	})
	root.SetHelpCommand(&cobra.Command{Hidden: true})
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		a.json = a.json || hasJSON(args) // which may stand behind what is wrong
		return flagError(err)
	})
	flags := root.PersistentFlags()
	flags.StringVar(&a.home, "home", "",
		"home `DIR` (SNAPFS_HOME; for root /var/lib/snapfs, else $XDG_DATA_HOME/snapfs)")
	flags.StringVar(&a.session, "session", os.Getenv("SNAPFS_SESSION"),
		"session `ID` that owns new workspaces and snapshots (SNAPFS_SESSION; default: \"default\", or the one that "+
			"the daemon binds the user to)")
	flags.BoolVar(&a.cross, "allow-cross-session", false,
		"use what belongs to another session; this is recorded in the log of the workspace")
	flags.BoolVar(&a.json, "json", false,
		"print one JSON document on standard output, and errors as JSON on standard error")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "print only results and errors")
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "print more; a daemon that is started logs requests")

	a.addVerbs(root, args)
	return root
}

// verb is a command that is built on demand.
type verb struct {
	name, alias string
	make        func(*app) *cobra.Command
}

// verbs lists all verbs in the order of the manual.
var verbs = []verb{
	{"up", "", (*app).upCommand},
	{"create", "", (*app).createCommand},
	{"mount", "", (*app).mountCommand},
	{"umount", "", (*app).umountCommand},
	{"down", "", (*app).downCommand},
	{"snapshot", "", (*app).snapshotCommand},
	{"restore", "", (*app).restoreCommand},
	{"branch", "", (*app).branchCommand},
	{"fork", "", (*app).forkCommand},
	{"rename", "", (*app).renameCommand},
	{"rollback", "", (*app).rollbackCommand},
	{"turn", "", (*app).turnCommand},
	{"turns", "", (*app).turnsCommand},
	{"undo", "", (*app).undoCommand},
	{"redo", "", (*app).redoCommand},
	{"apply", "", (*app).applyCommand},
	{"reads", "", (*app).readsCommand},
	{"hooks", "", (*app).hooksCommand},
	{"hook", "", (*app).hookCommand},
	{"quota", "", (*app).quotaCommand},
	{"pause", "", (*app).pauseCommand},
	{"resume", "", (*app).resumeCommand},
	{"list", "", (*app).listCommand},
	{"snapshots", "", (*app).snapshotsCommand},
	{"show", "", (*app).showCommand},
	{"compare", "", (*app).compareCommand},
	{"diff", "", (*app).diffCommand},
	{"ls", "", (*app).lsCommand},
	{"cat", "", (*app).catCommand},
	{"cp", "", (*app).cpCommand},
	{"log", "", (*app).logCommand},
	{"events", "", (*app).eventsCommand},
	{"delete", "", (*app).deleteCommand},
	{"destroy", "", (*app).destroyCommand},
	{"prune", "", (*app).pruneCommand},
	{"stats", "", (*app).statsCommand},
	{"gc", "", (*app).gcCommand},
	{"check", "", (*app).checkCommand},
	{"export", "", (*app).exportCommand},
	{"run", "", (*app).runCommand},
	{"mcp", "", (*app).mcpCommand},
	{"serve", "", (*app).serveCommand},
	{"token", "", (*app).tokenCommand},
	{"reload", "", (*app).reloadCommand},
	{"stop", "", (*app).stopCommand},
	{"status", "", (*app).statusCommand},
	{"upgrade", "", (*app).upgradeCommand},
	{"version", "", (*app).versionCommand},
	{"completion", "", (*app).completionCommand},
	{"help", "", (*app).helpCommand},
}

// addVerbs adds to root the verb that args name, or all verbs if they name none. Building all of them takes a third of
// the run time of a short verb.
func (a *app) addVerbs(root *cobra.Command, args []string) {
	finder := &cobra.Command{Use: root.Use}
	finder.PersistentFlags().AddFlagSet(root.PersistentFlags())
	for _, v := range verbs {
		if slices.Contains(args, v.name) || v.alias != "" && slices.Contains(args, v.alias) {
			finder.AddCommand(&cobra.Command{Use: v.name, Aliases: []string{v.alias}})
		}
	}
	named := "" // the word may also be the value of a flag: cobra knows
	if found, _, err := finder.Find(args); err == nil && found != finder {
		named = found.Name()
	}
	for _, v := range verbs {
		if named == "" || named == "help" || v.name == named {
			cmd := v.make(a)
			cmd.SuggestFor = suggestFor[v.name]
			a.completes(cmd)
			root.AddCommand(cmd)
		}
	}
}

// resolveHome determines the home directory: flag, environment, default.
func (a *app) resolveHome() error {
	dir := a.home
	if dir == "" {
		dir = os.Getenv("SNAPFS_HOME")
	}
	a.homeGiven = dir != ""
	if dir == "" {
		dir = "/var/lib/snapfs"
		if os.Geteuid() != 0 || !userns.Initial() && !usable(dir) {
			data := os.Getenv("XDG_DATA_HOME")
			if data == "" {
				user, err := os.UserHomeDir()
				if err != nil {
					return usagef("no --home given, and no default is known: %w", err)
				}
				data = filepath.Join(user, ".local", "share")
			}
			dir = filepath.Join(data, "snapfs")
		}
	}
	if strings.ContainsRune(dir, 0) {
		return usagef("home directory with a NUL byte")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return usagef("home directory %q: %w", dir, err)
	}
	a.home = abs
	return nil
}

// usable reports whether this process may use, or make, a home in a directory.
func usable(dir string) bool {
	err := unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK)
	if errors.Is(err, unix.ENOENT) {
		err = unix.Access(filepath.Dir(dir), unix.W_OK|unix.X_OK)
	}
	return err == nil
}

// access identifies the caller to the API.
func (a *app) access() api.Access {
	return api.Access{Session: a.session, AllowCrossSession: a.cross}
}
