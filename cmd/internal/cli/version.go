package cli

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:         "version",
		Short:       "show the version",
		Long:        "Shows the version of this program and of what it was built with. Asks no daemon.",
		Args:        exact(),
		Annotations: map[string]string{"exits": exitHelp()},
		// Instead of the root's: there is neither a home nor anything to interrupt.
		PersistentPreRunE: func(*cobra.Command, []string) error {
			a.parsed = true
			return nil
		},
		RunE: func(*cobra.Command, []string) error {
			v := map[string]string{"version": a.Version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
			return a.result(v, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "snapfs %s (%s, %s)\n", v["version"], v["go"], v["platform"])
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
		Long:        "Prints a script that completes verbs and flags of snapfs in SHELL: bash, zsh, fish or powershell.",
		Example:     "  source <(snapfs completion bash)",
		Args:        exact("SHELL"),
		ValidArgs:   []string{"bash", "zsh", "fish", "powershell"},
		Annotations: map[string]string{"exits": exitHelp()},
		RunE: func(cmd *cobra.Command, args []string) error {
			print, ok := shells[args[0]]
			if !ok {
				return usagef("shell %q: bash, zsh, fish or powershell", args[0])
			}
			return print(cmd.Root())
		},
	}
}
