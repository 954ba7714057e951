package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// link finds where a link of Markdown leads.
	link = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	// fenced finds blocks of code.
	fenced = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	// heading finds headings.
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	// notInAnchor finds what the anchor of a heading leaves out.
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors gives the anchors of the headings of a document, as forges name them.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		all[strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return all
}

// TestLinks holds that links between documents lead to files and headings that are there.
func TestLinks(t *testing.T) {
	texts := map[string]string{}
	eachFile(t, "*.md", func(path string) {
		if !strings.Contains(path, "node_modules") {
			texts[path] = read(t, path)
		}
	})
	there := map[string]bool{}
	eachFile(t, "*", func(path string) { there[path] = true })
	for path, text := range texts {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			name, anchor, _ := strings.Cut(m[1], "#")
			to := path
			if name != "" {
				to = filepath.Join(filepath.Dir(path), name)
			}
			if target, isText := texts[to]; !there[to] || anchor != "" && isText && !anchors(target)[anchor] {
				t.Errorf("%s links to %s, which is not there", path, m[1])
			}
		}
	}
}

var (
	// callName finds the name of a call in package wire.
	callName = regexp.MustCompile(`(?m)^\tCall\w+ += "([a-z-]+)"`)
	// inBackticks finds a word of code.
	inBackticks = regexp.MustCompile("`([a-z-]+)`")
)

// TestCalls holds that docs/HTTP.md lists every call.
func TestCalls(t *testing.T) {
	_, section, found := strings.Cut(read(t, "HTTP.md"), "\n## The calls\n")
	if !found {
		t.Fatal("docs/HTTP.md has no list of the calls")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	listed := map[string]bool{}
	for _, m := range inBackticks.FindAllStringSubmatch(section, -1) {
		listed[m[1]] = true
	}
	names := callName.FindAllStringSubmatch(read(t, "../sandbox/api/wire/wire.go"), -1)
	if len(names) == 0 {
		t.Fatal("no call was found")
	}
	for _, m := range names {
		if !listed[m[1]] {
			t.Errorf("docs/HTTP.md does not list the call %s", m[1])
		}
	}
}
