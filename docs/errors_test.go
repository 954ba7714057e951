package docs

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"snapfs/sandbox/api"
)

// errorRow is a row of a table of errors: statuses and words.
var errorRow = regexp.MustCompile("(?m)^\\| ([0-9, ]+) \\| ((?:`[a-z_]+`(?:, )?)+) \\|")

// TestErrors holds that the tables of errors say what package api does: each class with its status, and no other status of
// a class but those that the transport adds.
func TestErrors(t *testing.T) {
	of := map[string]int{}
	for _, c := range append(api.Classes(), api.ClassOf(errors.New("of no class"))) {
		of[c.Word] = c.Status
	}
	added := map[string]bool{"401 refused": true, "405 invalid": true, "429 unavailable": true}
	for _, name := range []string{"SERVICE.md", "HTTP.md"} {
		listed := map[string]bool{}
		for _, row := range errorRow.FindAllStringSubmatch(read(t, filepath.Join(root, "docs", name)), -1) {
			statuses, words := strings.Split(row[1], ", "), strings.Split(strings.ReplaceAll(row[2], "`", ""), ", ")
			for i, word := range words {
				for j, status := range statuses {
					if len(words) == len(statuses) && i != j {
						continue // one of each
					}
					pair := status + " " + word
					listed[pair] = true
					if want, ok := of[word]; ok && pair != fmt.Sprint(want, " ", word) && !added[pair] {
						t.Errorf("docs/%s says %s; it is %d", name, pair, want)
					}
				}
			}
		}
		for word, status := range of {
			if pair := fmt.Sprint(status, " ", word); !listed[pair] {
				t.Errorf("docs/%s does not list %s", name, pair)
			}
		}
	}
	_, table, _ := strings.Cut(read(t, filepath.Join(root, "README.md")), "\n## Exit codes\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, c := range api.Classes() {
		first, _, _ := strings.Cut(c.Meaning, ":")
		if want := fmt.Sprintf("\n| %d | %s", c.Exit, first); c.Exit != api.ExitFailed && !strings.Contains(table, want) {
			t.Errorf("README.md does not list the exit code %d: %s", c.Exit, first)
		}
	}
}
