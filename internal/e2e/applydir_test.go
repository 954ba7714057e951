package e2e

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
)

// TestApplyToDirectory brings changes home through the command, into directories with much that is in the way.
func TestApplyToDirectory(t *testing.T) {
	h := newHome(t)
	dir, at := h.makeDir("dir"), h.makeDir("at")
	shell(t, soon, dir, `mkdir -p sub closed empty $'\xff'; echo a > sub/a; echo b > $'\xff/b'; echo in > closed/in; chmod 555 closed
		ln -s /etc out; mkfifo pipe; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'; echo 1 > keep; ln keep kept`)
	t.Cleanup(func() { shell(t, soon, dir, `chmod -R u+w .`) })
	h.ok("up", "w", at, "--from", dir)
	shell(t, soon, at, `echo more >> sub/a; echo more >> $'\xff/b'; rm pipe sock; chmod 755 closed; echo more >> closed/in; chmod 555 closed
		mkdir new; echo n > new/n; chmod 500 new; mkfifo fifo; mkdir swap; mv sub swap/sub; rm out; mkdir out; echo o > out/passwd`)
	was := walk(t, dir)
	conflicts := func(args ...string) string {
		r := h.run(args...)
		require.Equal(t, 4, r.code, "%s%s", r.out, r.err)
		return r.out
	}

	t.Run("There and back", func(t *testing.T) {
		got := decode[sandbox.ApplyResult](h, "apply", "w", "--dry-run")
		require.Equal(t, dir, got.Directory)
		require.False(t, got.Applied)
		same(t, "a trial", was, walk(t, dir), treewalk.Options{Ino: true})
		got = decode[sandbox.ApplyResult](h, "apply", "w")
		require.True(t, got.Applied, "%+v", got)
		require.Empty(t, got.Skips)
		require.Equal(t, "a\nmore\n", shell(t, soon, dir, `cat swap/sub/a`))
		require.Equal(t, "in\nmore\n", shell(t, soon, dir, `cat closed/in`))
		same(t, "applied", walk(t, at), walk(t, dir), treewalk.Options{})
		h.ok("apply", "--undo", dir)
		same(t, "taken back", was, walk(t, dir), treewalk.Options{})
	})
	t.Run("Something stays", func(t *testing.T) {
		h.ok("apply", "w")
		shell(t, soon, dir, "chmod 700 new; echo own > new/own; chmod 500 new")
		r := h.run("--json", "apply", "--undo", dir)
		require.Equal(t, 0, r.code, r.err)
		require.Contains(t, r.out, `"path": "new"`)
		require.NotContains(t, r.out, `"from"`)
		shell(t, soon, dir, "chmod 700 new; rm -r new")
	})
	t.Run("A link that was put there", func(t *testing.T) {
		outside := h.makeDir("outside")
		shell(t, soon, dir, `mv $'\xff' ../aside; ln -s "$1" $'\xff'`, outside)
		conflicts("apply", "w")
		require.Empty(t, shell(t, soon, outside, "ls -A"))
		shell(t, soon, dir, `rm $'\xff'; mv ../aside $'\xff'`)
	})
	t.Run("Conflicts", func(t *testing.T) {
		shell(t, soon, dir, `echo mine > sub/a`)
		require.Contains(t, conflicts("apply", "w", "--to", dir), "sub/a (both changed: text)")
		require.Equal(t, "mine\n", shell(t, soon, dir, "cat sub/a"))
		h.ok("apply", "w", "--to", dir, "--ours")
		require.Equal(t, "mine\n", shell(t, soon, dir, "cat swap/sub/a"))
		shell(t, soon, dir, "echo later >> new/n || { chmod 700 new; echo later >> new/n; chmod 500 new; }")
		h.fails(4, "new/n", "apply", "--undo", dir)
		got := decode[sandbox.ApplyResult](h, "apply", "--undo", dir, "--force")
		require.NotEmpty(t, got.Kept)
		require.Equal(t, "mine\n", shell(t, soon, dir, "cat sub/a; ! test -e new"))
	})
	t.Run("Refused", func(t *testing.T) {
		h.fails(2, "home", "apply", "w", "--to", h.dir)
		h.fails(2, "not a directory", "apply", "w", "--to", dir+"/keep")
		h.fails(3, "does not exist", "apply", "w", "--to", dir+"/none")
		h.fails(3, "does not exist", "apply", "w", "--to", "./none")
		h.fails(3, "was interrupted", "apply", "--drop", "0123456789")
		h.fails(3, "nothing was applied", "apply", "--undo", h.makeDir("outside"))
	})
	if os.Geteuid() != 0 {
		return
	}
	t.Run("Mounts and immutable files", func(t *testing.T) {
		shell(t, soon, dir, `echo a > sub/a; chmod 755 closed; mount -t tmpfs none closed; echo covered > closed/in`)
		h.fails(2, "mounted", "apply", "w")
		shell(t, soon, dir, `umount closed; chmod 555 closed`)
		if shell(t, soon, dir, `chattr +i sub/a 2> /dev/null && echo yes || true`) != "" {
			require.Contains(t, conflicts("apply", "w", "--theirs"), "immutable")
			require.Contains(t, h.run("apply", "w", "--theirs").err, "does not let")
			shell(t, soon, dir, `chattr -i sub/a`)
		}
		require.NoFileExists(t, dir+"/new/n")
	})
}
