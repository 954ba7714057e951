package sandbox_test

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
)

// TestApplyToDirectory brings changes home to the directory that a workspace was made from, and takes them back.
func TestApplyToDirectory(t *testing.T) {
	ctx := t.Context()
	base := t.TempDir()
	h, err := sandbox.Open(ctx, base+"/home", sandbox.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, h.Close()) }()
	dir := base + "/dir"
	require.NoError(t, os.MkdirAll(dir+"/sub/deep", 0o755))
	write := func(path, text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o644)) }
	write(dir+"/text", "1\n2\n3\n4\n5\n6\n7\n8\n9\n")
	write(dir+"/sub/gone", "gone")
	write(dir+"/sub/deep/moved", "moved")
	write(dir+"/one", "linked")
	require.NoError(t, os.Link(dir+"/one", dir+"/two"))
	require.NoError(t, os.Symlink("text", dir+"/link"))
	write(dir+"/tool", "#!")
	capability := "\x01\x00\x00\x02\x00\x20" + strings.Repeat("\x00", 14)
	capable := unix.Setxattr(dir+"/tool", "security.capability", []byte(capability), 0) == nil
	_, err = h.Create(ctx, sandbox.CreateRequest{Name: "w", Source: dir})
	require.NoError(t, err)
	src := base + "/src"
	require.NoError(t, os.MkdirAll(src+"/sub", 0o755))
	_, err = h.Mount(ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: mustDir(t, base+"/m")})
	if err != nil {
		t.Skip(err)
	}
	require.NoError(t, shell(ctx, "cd \"$1\"; "+`printf '1\n2\n3\n4\n5\n6\n7\n8\n9!\n' > text; rm sub/gone; mv sub/deep sub/high; echo x >> sub/high/moved
		echo linked2 > one; ln -sfn sub link; mkdir -p new/dir; echo n > new/dir/file; chmod 600 new/dir/file; mkfifo pipe
		setfattr -n user.x -v y new/dir/file`, base+"/m"))
	if capable {
		require.NoError(t, shell(ctx, `echo new > "$1/tool"; setfattr -n security.capability -v "0x$2" "$1/tool"`, base+"/m",
			hex.EncodeToString([]byte(capability))))
	}
	write(dir+"/text", "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n") // edited meanwhile
	write(dir+"/own", "own")
	was := walk(t, dir)

	res, err := h.Apply(ctx, sandbox.ApplyRequest{From: "w", DryRun: true})
	require.NoError(t, err)
	require.False(t, res.Applied)
	require.Empty(t, treewalk.Diff(was, walk(t, dir), treewalk.Options{}))
	res, err = h.Apply(ctx, sandbox.ApplyRequest{From: "w"})
	require.NoError(t, err)
	require.True(t, res.Applied, "%+v", res)
	require.Equal(t, dir, res.Directory)
	text, err := os.ReadFile(dir + "/text")
	require.NoError(t, err)
	require.Equal(t, "0\n1\n2\n3\n4\n5\n6\n7\n8\n9!\n", string(text))
	two, err := os.ReadFile(dir + "/two")
	require.NoError(t, err)
	require.Equal(t, "linked2\n", string(two))
	require.NoFileExists(t, dir+"/sub/gone")
	moved, err := os.ReadFile(dir + "/sub/high/moved")
	require.NoError(t, err)
	require.Equal(t, "movedx\n", string(moved))
	require.FileExists(t, dir+"/own")
	if capable {
		got := make([]byte, 64)
		n, err := unix.Getxattr(dir+"/tool", "security.capability", got)
		require.NoError(t, err)
		require.Equal(t, capability, string(got[:n]))
	}
	now := walk(t, dir)

	again, err := h.Apply(ctx, sandbox.ApplyRequest{From: "w", To: dir})
	require.NoError(t, err)
	require.False(t, again.Applied, "%+v", again)

	// Taking it back is refused while something of it has changed since.
	write(dir+"/new/dir/file", "mine")
	_, err = h.Apply(ctx, sandbox.ApplyRequest{To: dir, Undo: true})
	require.ErrorIs(t, err, sandbox.ErrConflict)
	require.ErrorContains(t, err, "new/dir/file")
	for _, n := range now {
		if n.Path == "new/dir/file" {
			write(dir+"/new/dir/file", "n\n")
			ts := unix.Timespec{Sec: n.Mtime.Sec, Nsec: n.Mtime.Nsec}
			require.NoError(t, unix.UtimesNanoAt(unix.AT_FDCWD, dir+"/new/dir/file", []unix.Timespec{ts, ts}, 0))
		}
	}
	res, err = h.Apply(ctx, sandbox.ApplyRequest{To: dir, Undo: true})
	require.NoError(t, err)
	require.True(t, res.Applied)
	require.Empty(t, treewalk.Diff(was, walk(t, dir), treewalk.Options{}))
	_, err = h.Apply(ctx, sandbox.ApplyRequest{To: dir, Undo: true})
	require.ErrorIs(t, err, sandbox.ErrNotFound)
	res, err = h.Apply(ctx, sandbox.ApplyRequest{From: "w"}) // and once more
	require.NoError(t, err)
	require.True(t, res.Applied)
	require.Empty(t, treewalk.Diff(now, walk(t, dir), treewalk.Options{IgnoreMtime: true})) // of what is merged

	// A conflict stops everything.
	require.NoError(t, shell(ctx, "cd \"$1\"; "+`echo theirs > text; echo 2 > other`, base+"/m"))
	write(dir+"/text", "ours\n")
	was = walk(t, dir)
	res, err = h.Apply(ctx, sandbox.ApplyRequest{From: "w"})
	require.NoError(t, err)
	require.Len(t, res.Conflicts, 1)
	require.Empty(t, treewalk.Diff(was, walk(t, dir), treewalk.Options{}))

	// What was forked is still known by its name.
	_, err = h.Fork(ctx, sandbox.ForkRequest{Workspace: "w", Name: "f"})
	require.NoError(t, err)
	_, err = h.Rename(ctx, sandbox.RenameRequest{Ref: "w", Name: "v"})
	require.NoError(t, err)
	res, err = h.Apply(ctx, sandbox.ApplyRequest{From: "f", DryRun: true})
	require.NoError(t, err)
	require.Equal(t, "v", res.Workspace)
	entries, err := filepath.Glob(base + "/home/applying/*")
	require.NoError(t, err)
	require.Empty(t, entries)
}

func mustDir(t *testing.T, path string) string {
	require.NoError(t, os.MkdirAll(path, 0o755))
	return path
}

func walk(t *testing.T, dir string) []treewalk.Node {
	t.Helper()
	nodes, err := treewalk.Walk(dir)
	require.NoError(t, err)
	return nodes
}
