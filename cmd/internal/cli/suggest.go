package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// suggestFor are words of other systems for what verbs do.
var suggestFor = map[string][]string{
	"branch":   {"clone", "copy"},
	"delete":   {"rm", "remove"},
	"destroy":  {"rm", "remove"},
	"diff":     {"status"},
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
	return usagef("unknown verb %q%s", args[0], closeVerbs(root, args[0]))
}

// closeVerbs asks whether a word that is no verb was to be one: of those that do what it means elsewhere, if there are
// any, else of those that are spelt nearly so.
func closeVerbs(root *cobra.Command, word string) string {
	var close []string
	for verb, words := range suggestFor {
		if slices.Contains(words, word) {
			close = append(close, verb)
		}
	}
	if len(close) == 0 {
		close = root.SuggestionsFor(word)
	}
	if len(close) == 0 {
		return ""
	}
	slices.Sort(close)
	return "; did you mean " + strings.Join(slices.Compact(close), ", ") + "?"
}
