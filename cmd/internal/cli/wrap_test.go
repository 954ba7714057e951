package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// TestHelpWidth: what the help says fits its width, but for usage lines and examples, which can be copied.
func TestHelpWidth(t *testing.T) {
	root := Manual("test")
	for _, cmd := range append([]*cobra.Command{root}, root.Commands()...) {
		for line := range strings.SplitSeq(wrapped(cmd.Long), "\n") {
			if n := utf8.RuneCountInString(line); n > helpWidth {
				t.Errorf("%s: %d columns: %s", cmd.Name(), n, line)
			}
		}
	}
	var out bytes.Buffer
	a := &app{}
	cmd := a.rootCommand(nil)
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"run", "--help"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	if text, _, _ := strings.Cut(out.String(), "Usage:"); wrapped(text) != text || len(text) < 1000 {
		t.Errorf("the help is not wrapped:\n%s", text)
	}
}

func TestWrapped(t *testing.T) {
	long := strings.Repeat("word ", 30) + "end"
	want := strings.TrimSpace(strings.Repeat("word ", 20)) + "\n" + strings.Repeat("word ", 10) + "end"
	for in, want := range map[string]string{
		"":                                "",
		"short\nlines":                    "short\nlines",
		long:                              want,
		"a\n" + long + "\n\n  " + long:    "a " + strings.TrimSpace(strings.Repeat("word ", 19)) + "\n" + strings.Repeat("word ", 11) + "end\n\n  " + long,
		"  " + long + "\nshort\n  indent": "  " + long + "\nshort\n  indent",
	} {
		if got := wrapped(in); got != want {
			t.Errorf("%q: got\n%s\nwant\n%s", in, got, want)
		}
	}
}
