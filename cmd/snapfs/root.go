package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"snapfs/sandbox"
)

// app is one run of the command: its global flags and streams.
type app struct {
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

	// remains is what an interrupt of this verb leaves, in words; a verb that takes effect bit by bit sets it as it goes.
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

// rootCommand builds the tree of verbs.
func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "snapfs",
		Short:         "Copy-on-write workspaces with snapshots",
		Long:          rootLong,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(*cobra.Command, []string) error {
			a.parsed = true
			return a.resolveHome()
		},
		Annotations: map[string]string{
			"exits": exitHelp(exitNotFound, exitConflict, exitRefused, exitCorrupt, exitUnavailable),
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

	root.AddCommand(
		a.upCommand(), a.createCommand(), a.mountCommand(), a.umountCommand(),
		a.snapshotCommand(), a.restoreCommand(), a.branchCommand(), a.forkCommand(), a.rollbackCommand(),
		a.pauseCommand(), a.resumeCommand(),
		a.listCommand(), a.snapshotsCommand(), a.showCommand(), a.diffCommand(),
		a.logCommand(), a.eventsCommand(),
		a.deleteCommand(), a.destroyCommand(), a.pruneCommand(), a.statsCommand(), a.gcCommand(), a.checkCommand(),
		a.exportCommand(), a.runCommand(), a.serveCommand(), a.stopCommand(), a.statusCommand(),
		a.versionCommand(), a.completionCommand(),
	)
	return root
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
func (a *app) access() sandbox.Access {
	return sandbox.Access{Session: a.session, AllowCrossSession: a.cross}
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}
