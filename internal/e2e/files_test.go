package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
)

// TestFiles looks into snapshots and workspaces without a mount.
func TestFiles(t *testing.T) {
	h := newHome(t)
	src := h.makeDir("src")
	shell(t, soon, src, `mkdir -p d/sub built/d; echo one > d/f; seq 100000 > d/sub/long; ln -s f d/link; ln -s /d/sub abs; ln -s ../../etc/passwd out
		ln -s loop loop; printf 'x\0y' > bin; chmod 4755 bin; echo inner > built/d/f; touch -d 2001-02-03T04:05:06Z d/f; printf raw > "$(printf 'n\377')"; echo c > a:b`)
	h.ok("create", "app", "--from", src)
	h.ok("snapshot", "app", "--name", "built")
	id := h.snapshot("built").ID

	// A path with a slash; and without, where that can be read in one way.
	for _, place := range []string{"app:built:/d/f", "app:/d/f", "built:/d/f", id + ":/d/f", "app:built:d/f", "app:d/f", "app:/d/link", "built:/d/sub/../link"} {
		require.Equal(t, "one", h.ok("cat", place), place)
	}
	require.Equal(t, "c", h.ok("cat", "app:a:b"))
	require.Equal(t, "inner", h.ok("cat", "app:/built/d/f"))
	h.fails(4, "several ways", "ls", "app:built")
	require.Equal(t, "d", h.ok("ls", "app:/built"))
	h.fails(3, "no path", "cat", "app:/d/gone")
	h.fails(2, "no regular file", "cat", "app:/d")
	h.fails(5, "out of the tree", "cat", "app:/out")
	h.fails(2, "loop", "cat", "app:/loop")
	h.fails(3, "nosuch", "cat", "nosuch:/d")

	require.Equal(t, "a:b\nabs\nbin\nbuilt\nd\nloop\n\"n\\xff\"\nout", h.ok("ls", "app:built:/"))
	require.Equal(t, "d/f\nd/link\nd/sub\nd/sub/long", strings.Join(grepLines(h.ok("ls", "-R", "app:/"), "d/"), "\n"))
	require.Equal(t, "long", h.ok("ls", "app:/abs"))
	long := h.ok("ls", "-l", "app:/d")
	require.Contains(t, long, "-rw-r--r--   1     0     0          4 2001-02-03")
	require.Contains(t, long, "link -> f")
	require.Contains(t, h.ok("ls", "-l", "app:/"), "-rwsr-xr-x")
	files := decode[struct{ Files []sandbox.File }](h, "ls", "built:/bin").Files
	require.Len(t, files, 1)
	require.Equal(t, int64(3), files[0].Size)
	doc := decode[struct {
		Data []byte
		File sandbox.File
	}](h, "cat", "built:/bin")
	require.Equal(t, "x\x00y", string(doc.Data))
	require.Equal(t, "bin", doc.File.Path)
	require.Equal(t, h.ok("list"), h.ok("ls"))

	// What a workspace holds now, mounted or not.
	h.ok("mount", "app", h.path("mnt"))
	shell(t, soon, h.path("mnt"), `echo two > d/f`)
	require.Equal(t, "two", h.ok("cat", "app:/d/f"))
	require.Equal(t, "two", h.ok("cat", h.path("mnt")+":/d/f"))
	require.Equal(t, "one", h.ok("cat", "app:built:/d/f"))

	// A path in a mount is that of the file, too, and one before a colon is that of the workspace.
	in := func(args ...string) string {
		r := h.in(h.path("mnt/d"), args...)
		require.Zero(t, r.code, r.err)
		return r.out
	}
	require.Equal(t, "two\n", in("cat", "./f"))
	require.Equal(t, "two\n", in("cat", "../d/link"))
	require.Equal(t, "f\nlink\nsub\n", in("ls", "."))
	require.Equal(t, "long\n", in("ls", "./sub/"))
	require.Equal(t, "one\n", in("cat", ".:built:d/f"))
	require.Equal(t, "one\n", in("cat", "../:built:/d/f"))
	require.Equal(t, "one", h.ok("cat", h.path("mnt/d")+":built:d/f"))
	require.Equal(t, "f\nlink\nsub", h.ok("ls", h.path("mnt/d")))

	// Out of the tree.
	h.ok("cp", "built:/bin", "copied")
	h.makeDir("into")
	h.ok("cp", "built:/d/sub/long", "into")
	shell(t, soon, h.tmp, `cmp copied src/bin; [ $(stat -c %a copied) = 755 ]; cmp into/long src/d/sub/long; [ -z "$(ls -A | grep snapfs-cp)" ]`)
	h.ok("cp", "-r", "built:/d", "into")
	h.ok("cp", "-r", "app:/d", "now")
	shell(t, soon, h.tmp, `diff -r --no-dereference into/d src/d; [ "$(cat now/f)" = two ]`)
	h.ok("cp", "-r", "built:/", "all")
	same(t, "cp -r of a tree", walk(t, src), walk(t, h.path("all")), treewalk.Options{})
	h.fails(2, "'snapfs cat'", "cp", "built:/bin", "-")
	h.fails(2, "no last name", "cp", "built:/", "into")
	h.fails(2, "no regular file", "cp", "built:/d", "into/x")
	h.fails(2, "no directory", "cp", "-r", "built:/bin", "into/y")
	h.fails(3, "does not exist", "cp", "built:/bin", "gone/x")

	// An image to standard output.
	r := h.run("export", "built", "-", "--json")
	require.Zero(t, r.code, r.err)
	require.NoError(t, os.WriteFile(h.path("stdout.sqsh"), []byte(r.out), 0o644))
	var exported sandbox.ExportResult
	require.NoError(t, json.Unmarshal([]byte(r.err), &exported))
	require.Equal(t, exported.Digest, decode[sandbox.ExportResult](h, "export", "built", "file.sqsh").Digest)
	shell(t, soon, h.tmp, `cmp stdout.sqsh file.sqsh; "$1" --home home export built - --compression zstd -q > z.sqsh; unsquashfs -quiet -no-progress -d z z.sqsh`, snapfs)
	refused := process(t, soon, h.tmp, h.env, "script", "-qec", snapfs+" export built -", "/dev/null")
	require.Equal(t, 2, refused.code, refused.out)
	require.Contains(t, refused.out, "is a terminal")
}

// grepLines gives the lines with a beginning.
func grepLines(text, prefix string) (lines []string) {
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, prefix) {
			lines = append(lines, line)
		}
	}
	return lines
}
