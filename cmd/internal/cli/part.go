package cli

import (
	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
)

// partHelp is what the help of verbs says that take a part of a tree.
const partHelp = `--exclude PATTERN leaves out what matches a pattern as in a .gitignore file; it may be given several
times, and the last one that matches decides. --gitignore leaves out what the .gitignore files in
the tree say, as git does with files that it does not know. PATHs, after --, are taken with all that
is in them, and nothing else is; they begin at the root of the tree. A PATH that a pattern leaves out
is refused.`

// partFlags adds the flags that choose a part of a tree. The verb's arguments before -- are checked by args; what
// follows are paths: see partArgs.
func partFlags(cmd *cobra.Command, p *api.Part, args cobra.PositionalArgs) {
	cmd.Args = func(cmd *cobra.Command, all []string) error {
		own, _ := partArgs(cmd, all)
		return args(cmd, own)
	}
	f := cmd.Flags()
	f.StringArrayVar(&p.Exclude, "exclude", nil, "leave out what matches `PATTERN`")
	f.BoolVar(&p.GitIgnore, "gitignore", false, "leave out what .gitignore files in the tree say")
}

// partArgs divides arguments into those of the verb and the paths behind --.
func partArgs(cmd *cobra.Command, all []string) (own, paths []string) {
	if n := cmd.ArgsLenAtDash(); n >= 0 {
		return all[:n], all[n:]
	}
	return all, nil
}
