package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
)

// foreign is what other readers of an image cannot show: whole seconds only, no ACLs, no link count of our own making.
var foreign = treewalk.Options{
	IgnoreRoot: true, IgnoreMtime: true, IgnoreExtents: true,
	DropXattr: func(name string) bool { return strings.HasPrefix(name, "system.posix_acl") },
}

// TestExport has a small tree with all that is easily lost read by others.
func TestExport(t *testing.T) {
	h := newHome(t)
	h.ok("up", "special", h.path("ws"))
	shell(t, soon, h.path("ws"), `mkdir -p unicode strings fmt; echo x > strings/builder.go; echo 'package fmt' > fmt/print.go`)
	specialFiles(t, h.path("ws"))
	frozen := walk(t, h.path("ws"))
	h.ok("snapshot", "special", "--name", "worked")
	both := []string{"first", "small"}
	export(t, h, frozen, both, both)
}

// export writes the snapshot "worked" as two images, "first" uncompressed and "small", and has others read it:
// unsquashfs and the kernel those that are named, squashfuse and snapfs the first.
func export(t *testing.T, h *home, frozen []treewalk.Node, unsquashfs, kernel []string) {
	first := decode[sandbox.ExportResult](h, "export", "worked", "first.sqsh")
	h.ok("export", "worked", "second.sqsh")
	shell(t, soon, h.tmp, `cmp first.sqsh second.sqsh`)
	info, err := os.Stat(h.path("first.sqsh"))
	require.NoError(t, err)
	require.Equal(t, info.Size(), first.Size)
	h.ok("export", "worked", "small.sqsh", "--compression", "zstd", "--level", "1")

	for _, image := range unsquashfs {
		shell(t, soon, h.tmp, `unsquashfs -quiet -no-progress -d un-$1 $1.sqsh`, image)
		same(t, "unsquashfs of "+image, frozen, walk(t, h.path("un-"+image)), foreign)
	}
	for _, image := range kernel {
		shell(t, soon, h.tmp, `mkdir loop-$1 && mount -t squashfs -o loop,ro $1.sqsh loop-$1`, image)
		listing := walk(t, h.path("loop-"+image))
		shell(t, soon, h.tmp, `umount loop-$1`, image)
		same(t, "the kernel's mount of "+image, frozen, listing, foreign)
	}
	// squashfuse shows no trusted attributes; rdsquashfs is asked for its list only.
	shell(t, soon, h.tmp, `mkdir fuse && squashfuse first.sqsh fuse`)
	listing := walk(t, h.path("fuse"))
	shell(t, soon, h.tmp, `umount fuse`)
	loose := foreign
	loose.IgnoreXattrs, loose.IgnoreNlink = true, true
	same(t, "squashfuse", frozen, listing, loose)
	shell(t, soon, h.tmp, `rdsquashfs -d first.sqsh > list && grep -q 'file "*/*fmt/print.go"* ' list`)

	// An image is a source too, and brings everything back.
	h.ok("create", "back", "--from", "first.sqsh")
	h.ok("mount", "back", h.path("back"))
	same(t, "an imported export", frozen, walk(t, h.path("back")), treewalk.Options{IgnoreRoot: true})
	h.ok("umount", "back")
	h.ok("destroy", "back")
}
