package cli

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError says what is wrong with a flag without the words of the library and of Go.
func flagError(err error) error {
	var value *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &value):
		why := map[string]string{"int": "a whole number", "int64": "a whole number", "bool": "true or false"}
		f := value.GetFlag()
		if kind, known := why[f.Value.Type()]; known {
			return usagef("--%s %q: want %s", f.Name, value.GetValue(), kind)
		}
		return usagef("--%s %q: %w", f.Name, value.GetValue(), errors.Unwrap(err))
	case errors.As(err, &missing):
		name, _ := pflag.UnquoteUsage(missing.GetFlag())
		return usagef("--%s needs a value: %s", missing.GetFlag().Name, name)
	}
	return err
}

// withUsage adds to an error of the command line how the verb is used.
func withUsage(cmd *cobra.Command, err error) error {
	if !cmd.HasParent() {
		return usagef("%w; 'snapfs help' lists the verbs", err)
	}
	return usagef("%w; usage: %s", err, cmd.UseLine())
}

// helpCommand is --help as a verb.
func (a *app) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [VERB]",
		Short:   "show how a verb is used",
		Long:    "Shows what a verb does, as --help does, or which verbs there are.",
		Example: "  snapfs help snapshot",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := between(0, "VERB")(cmd, args); err != nil || len(args) == 0 {
				return err
			}
			if found, _, err := cmd.Root().Find(args); err != nil || found == cmd.Root() {
				return noSuchVerb(cmd.Root(), args)
			}
			return nil
		},
		Annotations: exits(),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, _, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			found.InitDefaultHelpFlag()
			found.InitDefaultVersionFlag()
			return found.Help()
		},
	}
}

// plainWords are what Go's packages say, and what it means.
var plainWords = []struct{ said, plain string }{
	{`(?:Get|Post) "http://snapfs[^"]*": `, ""},
	{`dial unix \S*: (?:connect: )?`, ""},
	{`(?:read|write) unix \S*->\S*: `, ""},
	{`fork/exec (\S+): `, "$1: "},
	{`exec: "[^"]*": executable file not found in \$PATH`, "not found in PATH"},
	{`context deadline exceeded`, "not done in time"},
	{`i/o timeout`, "not done in time"},
	{`context canceled`, "canceled"},
	{`use of closed network connection`, "the connection is closed"},
	{`unexpected EOF`, "it ends too early"},
	{`unexpected end of JSON input`, "it ends too early"},
	{`: EOF$`, ": it ended"},
	{`strconv\.\w+: parsing ("[^"]*"): .*`, "$1 is not a number"},
	{`json: (?:cannot unmarshal .*|unknown field .*)`, "it is not of the form that is expected"},
	{`invalid character '(?:[^']|\\')*' (?:looking for|after|in) [a-z ]+`, "it is not JSON"},
}

// plain says an error without the words of Go's packages.
func plain(text string) string {
	for _, w := range plainWords {
		text = regexp.MustCompile(w.said).ReplaceAllString(text, w.plain)
	}
	return strings.TrimSpace(text)
}

// hasJSON reports whether --json is among the arguments of a verb.
func hasJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json")
}
