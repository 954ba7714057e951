package cli

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api/wire"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "show the version",
		Long: "Shows the version of this program, of Go, and of the protocol between command and daemon. Does not ask the\n" +
			"daemon: 'snapfs status' shows its version.",
		Args:        exact(),
		Annotations: exits(),
		// Replaces the one of the root command: this verb needs neither a home nor signals.
		PersistentPreRunE: func(*cobra.Command, []string) error {
			a.parsed = true
			return nil
		},
		RunE: func(*cobra.Command, []string) error {
			platform := runtime.GOOS + "/" + runtime.GOARCH
			v := map[string]string{"version": a.Version, "go": runtime.Version(), "platform": platform, "protocol": wire.Speaks.String()}
			return a.result(v, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "snapfs %s (%s, %s, protocol %s)\n", v["version"], v["go"], v["platform"], v["protocol"])
				return err
			})
		},
	}
}

func (a *app) completionCommand() *cobra.Command {
	shells := map[string]func(*cobra.Command) error{
		"bash":       func(c *cobra.Command) error { return c.GenBashCompletionV2(a.out, true) },
		"zsh":        func(c *cobra.Command) error { return c.GenZshCompletion(a.out) },
		"fish":       func(c *cobra.Command) error { return c.GenFishCompletion(a.out, true) },
		"powershell": func(c *cobra.Command) error { return c.GenPowerShellCompletionWithDesc(a.out) },
	}
	return &cobra.Command{
		Use:         "completion SHELL",
		Short:       "print a completion script for bash, zsh, fish or powershell",
		Long:        "Prints a script that completes verbs and flags in SHELL: bash, zsh, fish or powershell.",
		Example:     "  source <(snapfs completion bash)",
		Args:        exact("SHELL"),
		ValidArgs:   []string{"bash", "zsh", "fish", "powershell"},
		Annotations: exits(),
		RunE: func(cmd *cobra.Command, args []string) error {
			print, ok := shells[args[0]]
			if !ok {
				return usagef("shell %q: bash, zsh, fish or powershell", args[0])
			}
			return print(cmd.Root())
		},
	}
}
