// Package docs holds what the documents say against the sources.
package docs

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = ".."

// eachFile calls fn for the files of the repository whose names match pattern.
func eachFile(t *testing.T, pattern string, fn func(path string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "testdata" || e.Name() == ".git"):
			return filepath.SkipDir
		}
		if ok, err := filepath.Match(pattern, e.Name()); err != nil || !ok || e.IsDir() {
			return err
		}
		fn(path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// inFirstColumn finds a package in the first column of a table.
var inFirstColumn = regexp.MustCompile("(?m)^\\| `([a-z][a-z0-9/-]*)` \\|")

// TestPackages holds that docs/ARCHITECTURE.md lists every package, and no other.
func TestPackages(t *testing.T) {
	packages, listed := map[string]bool{}, map[string]bool{}
	eachFile(t, "*.go", func(path string) {
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		packages[rel] = true
	})
	for _, m := range inFirstColumn.FindAllStringSubmatch(read(t, "ARCHITECTURE.md"), -1) {
		listed[m[1]] = true
	}
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		if !listed[name] {
			t.Errorf("docs/ARCHITECTURE.md does not list the package %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if !packages[name] {
			t.Errorf("docs/ARCHITECTURE.md lists %s, which is no package", name)
		}
	}
}

var (
	variable = regexp.MustCompile(`\bSNAPFS_[A-Z0-9_]*[A-Z0-9]\b`)
	// inCode finds a variable in a string of a Go source.
	inCode = regexp.MustCompile(`"(SNAPFS_[A-Z0-9_]*[A-Z0-9])[="]`)
)

// TestVariables holds that docs/TESTING.md lists every variable of the environment that the sources name, and no other.
func TestVariables(t *testing.T) {
	used := map[string]bool{"SNAPFS_TEST_BLOCK_KILL_DIR": true} // put together from two strings
	find := func(path string, pattern *regexp.Regexp) {
		for _, m := range pattern.FindAllStringSubmatch(read(t, path), -1) {
			used[m[len(m)-1]] = true
		}
	}
	eachFile(t, "*.go", func(path string) { find(path, inCode) })
	for _, name := range []string{"run", "hunt", "clean", "deps", "isolate"} {
		find(filepath.Join(root, ".ci", name), variable)
	}
	listed := map[string]bool{}
	for _, name := range variable.FindAllString(read(t, "TESTING.md"), -1) {
		listed[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if !listed[name] {
			t.Errorf("docs/TESTING.md does not list %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if !used[name] {
			t.Errorf("docs/TESTING.md lists %s, which nothing reads", name)
		}
	}
}

// TestNames holds that every test that docs/TESTING.md names is there.
func TestNames(t *testing.T) {
	var sources strings.Builder
	eachFile(t, "*_test.go", func(path string) { sources.WriteString(read(t, path)) })
	named := regexp.MustCompile(`\b(Fuzz|Test|Benchmark)[A-Z]\w+`).FindAllString(read(t, "TESTING.md"), -1)
	if len(named) == 0 {
		t.Fatal("no test is named")
	}
	for _, name := range named {
		if !strings.Contains(sources.String(), "func "+name+"(") {
			t.Errorf("docs/TESTING.md names %s, which is no test", name)
		}
	}
}
