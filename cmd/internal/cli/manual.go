package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
)

// Manual is the command with all verbs, for a generator of manual pages. The description of each is Markdown, and ends
// with the exit codes.
func Manual(version string) *cobra.Command {
	a := &app{Program: Program{Version: version}, ctx: context.Background()}
	root := a.rootCommand(nil)
	for _, cmd := range append([]*cobra.Command{root}, root.Commands()...) {
		cmd.DisableAutoGenTag = true
		if cmd == root {
			cmd.Use = "snapfs [flags] VERB"
		}
		cmd.Long = asMarkdown(cmd.Long)
		if codes, ok := strings.CutPrefix(cmd.Annotations["exits"], "Exit codes:\n"); ok {
			cmd.Long += "\n\n# EXIT CODES\n```\n" + codes + "\n```\n"
		}
	}
	return root
}

// HelperManual is the text of --help of mount's helper.
func HelperManual() string { return helperHelp }

// asMarkdown spells a description in Markdown: indented lines are verbatim, and no character has a meaning of its own.
func asMarkdown(text string) string {
	escape := strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "`", "\\`", "<", `\<`, "[", `\[`, "#", `\#`)
	var out strings.Builder
	verbatim := false
	for line := range strings.Lines(text + "\n") {
		switch indented := strings.HasPrefix(line, "  "); {
		case strings.TrimSpace(line) == "":
		case indented && !verbatim:
			out.WriteString("\n```\n")
			verbatim = true
		case !indented && verbatim:
			out.WriteString("```\n\n")
			verbatim = false
		}
		if !verbatim {
			line = escape.Replace(line)
		}
		out.WriteString(line)
	}
	if verbatim {
		out.WriteString("```\n")
	}
	return out.String()
}
