package cli

import (
	"context"
	_ "embed"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

// completionTime bounds the time in which a daemon must answer for a completion, and completionPages how much is asked
// for: somebody waits who only typed a tab.
const (
	completionTime  = time.Second
	completionPages = 10
)

// bashCompletion needs nothing but bash. The script that cobra writes needs the package bash-completion.
//
//go:embed completion.bash
var bashCompletion string

func (a *app) completionCommand() *cobra.Command {
	shells := map[string]func(*cobra.Command) error{
		"bash": func(*cobra.Command) error {
			_, err := io.WriteString(a.out, bashCompletion)
			return err
		},
		"zsh":        func(c *cobra.Command) error { return c.GenZshCompletion(a.out) },
		"fish":       func(c *cobra.Command) error { return c.GenFishCompletion(a.out, true) },
		"powershell": func(c *cobra.Command) error { return c.GenPowerShellCompletionWithDesc(a.out) },
	}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "print a completion script for bash, zsh, fish or powershell",
		Long: `Prints a script for SHELL: bash, zsh, fish or powershell. It completes verbs, options, and the names of
workspaces and snapshots. For names it asks the daemon, but starts none.`,
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

// completes has the arguments of a verb completed by what its usage line calls them, and values of options that name
// something.
func (a *app) completes(cmd *cobra.Command) {
	words := argumentWords(cmd.Use)
	if cmd.ValidArgs == nil && cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = func(
			cmd *cobra.Command, args []string, typed string,
		) ([]cobra.Completion, cobra.ShellCompDirective) {
			word := ""
			switch n := len(args); {
			case n < len(words):
				word = words[n]
			case len(words) > 0 && strings.HasSuffix(words[len(words)-1], "..."):
				word = words[len(words)-1]
			default:
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.complete(cmd, strings.TrimRight(word, "."), args, typed)
		}
	}
	for option, word := range map[string]string{"workspace": "NAME", "from": "SNAP", "to": "DIR", "home": "DIR"} {
		if cmd.Flags().Lookup(option) == nil && cmd.PersistentFlags().Lookup(option) == nil {
			continue
		}
		_ = cmd.RegisterFlagCompletionFunc(option, func( // fails for an option that has one
			cmd *cobra.Command, _ []string, typed string,
		) ([]cobra.Completion, cobra.ShellCompDirective) {
			return a.complete(cmd, word, nil, typed)
		})
	}
	for option, words := range map[string][]cobra.Completion{
		"compression": {"none", "zstd", "gzip", "xz", "lz4"},
		"options":     {"ro", "rw", "nosuid", "nodev", "noexec", "noatime", "writeback", "remount"},
		"engine-cmd":  {"podman", "docker"},
		"transport":   {"auto", "uring", "dev"},
		"engine":      {api.EngineFUSE, api.EngineKernel, api.EngineAuto},
	} {
		if cmd.Flags().Lookup(option) != nil {
			_ = cmd.RegisterFlagCompletionFunc(option, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
		}
	}
}

// optionGroups are the options in a usage line, such as [--from SRC], and what may follow "--".
var optionGroups = regexp.MustCompile(`\[-[^\]]*\]`)

// argumentWords are the names of arguments in a usage line, such as NAME and SNAP... in "rollback NAME SNAP...".
func argumentWords(use string) []string {
	var words []string
	for _, field := range strings.Fields(optionGroups.ReplaceAllString(use, ""))[1:] {
		if field == "|" {
			break
		}
		if word := strings.NewReplacer("[", "", "]", "", "{", "", "}", "", "…", "...").Replace(field); word != "--" {
			words = append(words, word)
		}
	}
	return words
}

// complete lists what a word of a usage line can stand for. Whatever goes wrong, nothing is offered.
func (a *app) complete(
	cmd *cobra.Command, word string, args []string, typed string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	workspaces, snapshots := false, false
	otherwise := cobra.ShellCompDirectiveNoFileComp
	switch word {
	case "NAME":
		workspaces = cmd.Name() != "create"
	case "SNAP":
		snapshots = true
	case "ID", "A", "B", "OLD", "SNAP:PATH", "NAME|SNAP":
		workspaces, snapshots = true, true
	case "DIR", "MOUNTPOINT":
		return nil, cobra.ShellCompDirectiveFilterDirs
	case "VERB":
		var names []cobra.Completion
		for _, v := range verbs {
			names = append(names, v.name)
		}
		return names, otherwise
	case "FILE", "TARGET", "CMD":
		return nil, cobra.ShellCompDirectiveDefault
	}
	if cmd.Flags().Lookup("from") != nil && args == nil && word == "SNAP" { // or an image file, or a directory
		otherwise = cobra.ShellCompDirectiveDefault
	}
	if (!workspaces && !snapshots) || a.resolveHome() != nil {
		return nil, otherwise
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
	defer cancel()
	c, err := client.DialAs(ctx, a.home, a.Version)
	if err != nil {
		return nil, otherwise
	}
	defer func() { _ = c.Close() }() // nothing follows
	var found []cobra.Completion
	if workspaces {
		views := cmd.Name() == "umount" || cmd.Name() == "down"
		found = a.workspaceNames(ctx, c, views, typed)
	}
	if snapshots {
		of := ""
		if len(args) > 0 && argumentWords(cmd.Use)[0] == "NAME" {
			of = args[0]
		}
		found = append(found, a.snapshotNames(ctx, c, of, typed)...)
	}
	return found, otherwise
}

// workspaceNames are the workspaces whose names begin with what was typed, with the views of snapshots if they are
// wanted.
func (a *app) workspaceNames(ctx context.Context, c api.API, views bool, typed string) (found []cobra.Completion) {
	r := api.ListRequest{Access: a.access(), Views: views}
	for range completionPages {
		page, err := c.Workspaces(ctx, r)
		if err != nil {
			return found
		}
		for _, w := range page.Workspaces {
			if strings.HasPrefix(w.ID, typed) {
				found = append(found, cobra.CompletionWithDesc(w.ID, strings.TrimSpace(string(w.State)+" "+quoteIf(w.Mountpoint))))
			}
			r.After = w.ID
		}
		if !page.More {
			break
		}
	}
	return found
}

// snapshotNames are the snapshots, of one workspace or of all, that what was typed may become: WORKSPACE:NAME, the name
// alone where it is known of which workspace, and ids once a part of one was typed. The newest come first.
func (a *app) snapshotNames(ctx context.Context, c api.API, of, typed string) (found []cobra.Completion) {
	r := api.ListRequest{Access: a.access(), Workspace: of, NewestFirst: true}
	for range completionPages {
		page, err := c.Snapshots(ctx, r)
		if err != nil {
			return found
		}
		for _, s := range page.Snapshots {
			name := ""
			switch {
			case s.Name != "" && of != "":
				name = s.Name
			case s.Name != "":
				name = s.Workspace + ":" + s.Name
			}
			about := moment(s.CreatedAt) + " " + s.Description
			if name != "" && strings.HasPrefix(name, typed) {
				found = append(found, cobra.CompletionWithDesc(name, strings.TrimSpace(about)))
			} else if typed != "" && strings.HasPrefix(s.ID, typed) {
				found = append(found, cobra.CompletionWithDesc(s.ID, strings.TrimSpace(s.Workspace+" "+about)))
			}
			r.After = s.ID
		}
		if !page.More {
			break
		}
	}
	return found
}
