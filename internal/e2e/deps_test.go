package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	// called finds the program in a call that runs one, by exec.Command or by a test's own function that is named so.
	called = regexp.MustCompile(`(?:\bexec\.Command(?:Context)?|(?:^|[^.\w])(?:run|output|process|start))\((?:(?:ctx|t|t\.Context\(\)), )*"([a-z][\w.+-]*)"`)
	// installed finds a command in .ci/deps, command:package.
	installed = regexp.MustCompile(`(?m)(?:^| )([\w.+-]+):[\w.+-]+`)
	// always are programs of Debian's essential packages and of Go itself.
	always = strings.Fields("bash cat chmod chown cmp cp dd diff find go grep head ln ls mkdir mkfifo mknod mv rm sh sleep stat sync tee touch truncate umount")
)

// TestDepsAreListed holds that every program that a test runs is one that .ci/deps installs.
func TestDepsAreListed(t *testing.T) {
	list, err := os.ReadFile("../../.ci/deps")
	require.NoError(t, err)
	have := slices.Clone(always)
	for _, m := range installed.FindAllStringSubmatch(string(list), -1) {
		have = append(have, m[1])
	}
	programs := 0
	require.NoError(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") && !strings.Contains(path, "/testmount/") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range called.FindAllStringSubmatch(string(text), -1) {
			programs++
			if !slices.Contains(have, m[1]) {
				t.Errorf("%s runs %s, which .ci/deps does not install", path, m[1])
			}
		}
		return nil
	}))
	require.Greater(t, programs, 10, "the pattern finds what it is to find")
}
