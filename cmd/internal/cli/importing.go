package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
)

// importHelp is what the help of 'create' says of directories.
const importHelp = `A directory of more than 1,000 files or 8 MiB is imported in the background, if it is on a local
file system and taken as a whole. Until that has ended, the workspace stands on the directory itself:
what nobody has read yet is read from there. What was read once stays as it was. A file that is
changed in the directory before that is taken whole, as it is when it is read or imported; who has it
open in the workspace then gets ESTALE and opens it again. What is deleted or moved there before is
missing, unless it is there again before the import ends. 'snapfs log NAME' names what changed, and
counts what is missing. What is mounted in the directory is left out. The directory is never written
to, and should stay where it is: what was not read before it went away gives EIO until it is back.
'snapfs list' shows how far an import is, and 'snapfs show' why one failed. It is tried again; after
something could not be read, only when the workspace is mounted or something waits for the import.
--wait imported imports first.`

// waitFlag adds --wait to a verb that makes workspaces.
func waitFlag(cmd *cobra.Command, wait *string) {
	cmd.Flags().StringVar(wait, "wait", "", "return when SRC has reached `STATE`: imported")
	_ = cmd.RegisterFlagCompletionFunc("wait", // fails for an option that has one
		cobra.FixedCompletions([]cobra.Completion{"imported"}, cobra.ShellCompDirectiveNoFileComp))
}

// waitImported reads --wait.
func waitImported(wait string) (bool, error) {
	switch wait {
	case "":
		return false, nil
	case "imported":
		return true, nil
	}
	return false, usagef("--wait %q: the only state to wait for is imported", wait)
}

// importState says in a few words how far an import is; empty if there is none.
func importState(i *api.Import) string {
	switch {
	case i == nil:
		return ""
	case i.Problem != "" && !i.Running:
		return "import-failed"
	case i.Total > 0:
		return fmt.Sprintf("importing-%d%%", min(100*i.Files/i.Total, 99))
	case i.Files > 0:
		return fmt.Sprintf("importing-%d", i.Files)
	}
	return "importing"
}

// importText says all about an import.
func importText(i *api.Import) string {
	if i == nil {
		return ""
	}
	text := "waits"
	if i.Running {
		text = fmt.Sprintf("%s, %s", plural(i.Files, "file"), size(i.Bytes))
		if i.Total > 0 {
			text += fmt.Sprintf(" (%d %%)", min(100*i.Files/i.Total, 99))
		}
	}
	if i.Problem != "" {
		text += ", failed before: " + plain(i.Problem)
	}
	return text
}

// missingText says how many names are gone in a directory that is imported.
func missingText(i *api.Import) string {
	if i == nil || i.Missing == 0 {
		return ""
	}
	return plural(i.Missing, "name") + " gone before they were read: looked for until the import ends"
}

// changedText says how many files were changed while a directory is imported.
func changedText(i *api.Import) string {
	if i == nil || i.Changed == 0 {
		return ""
	}
	return plural(i.Changed, "file") + " after they were shown: 'snapfs log' names the first"
}
