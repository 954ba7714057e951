package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// suggestFor are words of other systems for what verbs do.
var suggestFor = map[string][]string{
	"branch":   {"clone", "copy"},
	"delete":   {"rm", "remove"},
	"destroy":  {"rm", "remove"},
	"diff":     {"compare", "status"},
	"events":   {"watch"},
	"fork":     {"clone", "copy"},
	"log":      {"history"},
	"rename":   {"mv", "move"},
	"rollback": {"revert", "reset"},
	"serve":    {"daemon", "start"},
	"show":     {"inspect", "info"},
	"snapshot": {"commit", "save", "freeze"},
	"stats":    {"du", "df", "usage"},
	"turn":     {"checkpoint"},
	"turns":    {"checkpoints"},
	"umount":   {"unmount"},
}

// noSuchVerb is the Args of the root: an error that names verbs which are close to the word that is none.
func noSuchVerb(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if close := root.SuggestionsFor(args[0]); len(close) > 0 {
		hint = "; did you mean " + strings.Join(close, ", ") + "?"
	}
	return usagef("unknown verb %q%s", args[0], hint)
}
