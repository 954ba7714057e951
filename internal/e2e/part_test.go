package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/sandbox"
)

// TestParts takes parts of trees: by paths, patterns, and .gitignore files as git itself reads them.
func TestParts(t *testing.T) {
	h := newHome(t)
	src := h.makeDir("src")
	shell(t, soon, src, `git init -q; mkdir -p a/b build docs; printf '*.o\n/build/\n' > .gitignore; printf '!keep.o\n' > a/.gitignore
		touch a/x.o a/keep.o a/b/f.c a/b/f.o docs/build x.log; mkdir docs/deep; echo d > docs/deep/d; ln -s a/b link; touch build/out`)
	want := shell(t, soon, src, `git ls-files -o --exclude-standard --exclude '*.log' | LC_ALL=C sort`)
	const files = `cd "$1"; find . -name .git -prune -o ! -type d -printf '%P\n' | LC_ALL=C sort`

	h.ok("create", "whole", "--from", src)
	h.ok("snapshot", "whole", "--name", "all")
	h.ok("create", "part", "--from", src, "--gitignore", "--exclude", "*.log")
	h.ok("snapshot", "part", "--name", "chosen")
	h.ok("export", "chosen", "--to", h.path("created"))
	h.ok("export", "all", "--to", h.path("extracted"), "--gitignore", "--exclude", "*.log")
	h.ok("export", "all", "image.sqsh", "--gitignore", "--exclude", "*.log", "--exclude", ".git")
	shell(t, soon, h.tmp, `unsquashfs -quiet -no-progress -d unpacked image.sqsh; [ ! -e unpacked/.git ]; [ -d created/.git ]; [ ! -e created/build ]`)
	for _, dir := range []string{"created", "extracted", "unpacked"} {
		require.Equal(t, want, shell(t, soon, h.tmp, files, dir), dir)
	}
	h.ok("export", "all", "paths.sqsh", "--", "docs", "/a/b/f.c")
	shell(t, soon, h.tmp, `unsquashfs -quiet -no-progress -d paths paths.sqsh`)
	require.Equal(t, "a/b/f.c\ndocs/build\ndocs/deep/d\n", shell(t, soon, h.tmp, files, "paths"))
	h.fails(3, "no path", "export", "all", "gone.sqsh", "--", "gone")
	h.fails(3, "no path", "create", "gone", "--from", src, "--", "docs", "gone")
	h.fails(3, "no path", "diff", "all", "chosen", "--", "gone")
	for _, args := range [][]string{
		{"create", "gone", "--from", src}, {"export", "all", "gone.sqsh"}, {"export", "all", "--to", h.path("gone")}, {"diff", "all", "chosen"},
	} {
		h.fails(2, "left out by a pattern", append(args, "--exclude", "docs", "--", "a", "docs/deep")...)
		h.fails(2, "left out by a pattern", append(args, "--gitignore", "--", "build")...)
	}
	h.fails(2, "only of a directory", "create", "other", "--from", "all", "--exclude", "x")

	// A diff has the same part of both sides, and what moves out of it is gone.
	h.ok("mount", "whole", h.path("mnt"))
	shell(t, soon, h.path("mnt"), `echo o > a/new.o; echo c > a/b/f.c; mv docs/deep deep; mv x.log docs/x.txt; echo o > build/out; rm a/keep.o`)
	require.Equal(t, "M a/b/f.c\nD a/keep.o\nR docs/deep -> deep\nR docs/deep/d -> deep/d\nA docs/x.txt",
		h.ok("diff", "whole", "--gitignore", "--exclude", "*.log"))
	require.Equal(t, "D docs/deep\nD docs/deep/d\nR x.log -> docs/x.txt", h.ok("diff", "whole", "--", "docs", "x.log"))
	stat := h.ok("diff", "whole", "--stat", "--", "a")
	require.True(t, strings.HasSuffix(stat, " 3 files changed, 2 insertions(+), 0 deletions(-)") ||
		strings.HasSuffix(stat, " 3 files changed, 2 insertions(+)"), stat)
	patch := h.ok("diff", "whole", "--patch", "--gitignore", "--", "a")
	require.NotContains(t, patch, "new.o")
	require.Contains(t, patch, "+++ b/a/b/f.c")
	changes := decode[struct{ Changes []sandbox.Change }](h, "diff", "whole", "--exclude", "*", "--exclude", "!deep")
	require.Len(t, changes.Changes, 1)
	require.Equal(t, "A deep", changes.Changes[0].Kind+" "+changes.Changes[0].Path)
}
