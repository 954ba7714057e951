package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
)

// app is one run of the command: its global flags and streams.
type app struct {
	Program

	home    string
	session string
	cross   bool
	json    bool
	quiet   bool
	verbose bool

	in  io.Reader
	out io.Writer
	err io.Writer

	// parsed says that the command line was understood, so that an error from here on is not one of usage.
	parsed bool

	// ctx is that of the verb, and ends with a signal; stop ends the watch for signals.
	ctx  context.Context
	stop func()

	// remains is what an interrupt of this verb leaves, in words; a verb that takes effect bit by bit sets it as it
	// goes.
	remains string
}

const rootLong = `snapfs gives every sandbox a copy-on-write workspace that can be frozen, branched and shipped.

A workspace is a mutable tree, shown at a mountpoint. A snapshot is an immutable record of one. Restore and
branch make a new workspace from a snapshot and leave its origin alone. All of them live in a home directory, which
one daemon holds; the verbs start it when it is needed, 'snapfs stop' ends it.

SNAP below is the id of a snapshot, a unique prefix of the id (4 characters or more), a name, or the ref that --json shows. Workspaces have names of lower-case letters,
digits and inner dashes, at most 63.`

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
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			a.parsed = true
			a.ctx, a.stop = withSignals(a.ctx)
			cmd.SetContext(a.ctx)
			return a.resolveHome()
		},
		Annotations: map[string]string{
			"exits": exitHelp(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable),
		},
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetVersionTemplate("snapfs {{.Version}}\n")
	root.SetUsageTemplate(usageTemplate)
	root.SetHelpCommand(&cobra.Command{Hidden: true})
	flags := root.PersistentFlags()
	flags.StringVar(&a.home, "home", "", "home `DIR` (SNAPFS_HOME; for root /var/lib/snapfs, else $XDG_DATA_HOME/snapfs)")
	flags.StringVar(&a.session, "session", envOr("SNAPFS_SESSION", "default"), "session `ID` that owns what is made (SNAPFS_SESSION)")
	flags.BoolVar(&a.cross, "allow-cross-session", false, "use what belongs to another session; leaves an audit record")
	flags.BoolVar(&a.json, "json", false, "one JSON document on standard output, errors as JSON on standard error")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "say nothing but results and errors")
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "say more; the daemon logs requests")

	a.addVerbs(root, args)
	return root
}

// verb is a command that is made when it is needed.
type verb struct {
	name, alias string
	make        func(*app) *cobra.Command
}

// verbs are all of them, in the order of the manual.
var verbs = []verb{
	{"up", "", (*app).upCommand},
	{"create", "", (*app).createCommand},
	{"mount", "", (*app).mountCommand},
	{"umount", "", (*app).umountCommand},
	{"snapshot", "", (*app).snapshotCommand},
	{"restore", "", (*app).restoreCommand},
	{"branch", "", (*app).branchCommand},
	{"fork", "", (*app).forkCommand},
	{"rollback", "", (*app).rollbackCommand},
	{"pause", "", (*app).pauseCommand},
	{"resume", "", (*app).resumeCommand},
	{"list", "ls", (*app).listCommand},
	{"snapshots", "", (*app).snapshotsCommand},
	{"show", "", (*app).showCommand},
	{"diff", "", (*app).diffCommand},
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
	{"serve", "", (*app).serveCommand},
	{"stop", "", (*app).stopCommand},
	{"status", "", (*app).statusCommand},
	{"version", "", (*app).versionCommand},
	{"completion", "", (*app).completionCommand},
}

// addVerbs gives root the verb that args name, or all verbs if they name none: to make them all takes a third of the
// time that a short verb lives.
func (a *app) addVerbs(root *cobra.Command, args []string) {
	finder := &cobra.Command{Use: root.Use}
	finder.PersistentFlags().AddFlagSet(root.PersistentFlags())
	for _, v := range verbs {
		if slices.Contains(args, v.name) || v.alias != "" && slices.Contains(args, v.alias) {
			finder.AddCommand(&cobra.Command{Use: v.name, Aliases: []string{v.alias}})
		}
	}
	named := "" // the words may also be somebody's values: cobra knows
	if found, _, err := finder.Find(args); err == nil && found != finder {
		named = found.Name()
	}
	for _, v := range verbs {
		if named == "" || v.name == named {
			root.AddCommand(v.make(a))
		}
	}
}

// resolveHome settles the home directory: flag, environment, default.
func (a *app) resolveHome() error {
	dir := a.home
	if dir == "" {
		dir = os.Getenv("SNAPFS_HOME")
	}
	if dir == "" {
		dir = "/var/lib/snapfs"
		if os.Geteuid() != 0 {
			data := os.Getenv("XDG_DATA_HOME")
			if data == "" {
				user, err := os.UserHomeDir()
				if err != nil {
					return usagef("no --home given and none to be derived: %w", err)
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

// access says to the API who asks.
func (a *app) access() api.Access {
	return api.Access{Session: a.session, AllowCrossSession: a.cross}
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}
