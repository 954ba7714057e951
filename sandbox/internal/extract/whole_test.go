package extract_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/treewalk"
	"snapfs/sandbox/internal/extract"
)

// TestAgain: a caller that did not get the answer repeats the call. The tree is there, and stays as it is.
func TestAgain(t *testing.T) {
	dir := scratch(t)
	want, got := dir+"/want", dir+"/got"
	torture(t, want)
	first, err := write(t.Context(), source(t, want), got, snapshot, extract.Options{})
	require.NoError(t, err)
	// As if the machine had crashed just before the root got its time.
	require.NoError(t, os.Chtimes(got, time.Now(), time.Now()))
	again, err := write(t.Context(), source(t, want), got, snapshot, extract.Options{})
	require.NoError(t, err)
	require.Equal(t, first.Files, again.Kept)
	require.Zero(t, again.Bytes)
	again.Kept, again.Bytes = first.Kept, first.Bytes
	require.Equal(t, first, again)
	same(t, want, got)
}

// someACL has the entries of every ACL and one of a user: 7 of owner, user 7 and group, mask, others nothing.
var someACL = []byte("\x02\x00\x00\x00" +
	"\x01\x00\x07\x00\xff\xff\xff\xff" + "\x02\x00\x07\x00\x07\x00\x00\x00" + "\x04\x00\x07\x00\xff\xff\xff\xff" +
	"\x10\x00\x07\x00\xff\xff\xff\xff" + "\x20\x00\x00\x00\xff\xff\xff\xff")

// TestAgainElse: a tree that is another one in anything is not taken for the snapshot's, and is not changed.
func TestAgainElse(t *testing.T) {
	dir := scratch(t)
	want := dir + "/want"
	torture(t, want)
	for name, change := range map[string]func(got string) error{
		"size":  func(got string) error { return os.Truncate(got+"/big", 5) },
		"time":  func(got string) error { return os.Chtimes(got+"/empty", time.Now(), time.Now()) },
		"mode":  func(got string) error { return os.Chmod(got+"/empty", 0o640) },
		"owner": func(got string) error { return os.Lchown(got+"/dangling", 7, 7) },
		"gone": func(got string) error {
			return keepTime(got+"/b", func() error { return os.Remove(got + "/b/second") })
		},
		"extra":  func(got string) error { return keepTime(got+"/b", func() error { return os.Mkdir(got+"/b/x", 0o755) }) },
		"linked": func(got string) error { return unlink(got + "/third") },
		"xattr":  func(got string) error { return unix.Setxattr(got+"/b", "user.x", []byte("else"), 0) },
		"more":   func(got string) error { return unix.Setxattr(got+"/empty", "user.more", []byte("x"), 0) },
		"acl":    func(got string) error { return unix.Setxattr(got+"/b", "system.posix_acl_default", someACL, 0) },
		"target": func(got string) error {
			var st unix.Stat_t
			if err := unix.Lstat(got+"/absolute", &st); err != nil {
				return err
			}
			if err := os.Remove(got + "/absolute"); err != nil {
				return err
			}
			if err := os.Symlink("/etc/group", got+"/absolute"); err != nil {
				return err
			}
			ts := []unix.Timespec{st.Mtim, st.Mtim}
			return unix.UtimesNanoAt(unix.AT_FDCWD, got+"/absolute", ts, unix.AT_SYMLINK_NOFOLLOW)
		},
	} {
		got := dir + "/" + name
		_, err := write(t.Context(), source(t, want), got, snapshot, extract.Options{NoSync: true})
		require.NoError(t, err)
		require.NoError(t, change(got), name)
		before := walkOf(t, got)
		_, err = write(t.Context(), source(t, want), got, snapshot, extract.Options{NoSync: true})
		require.ErrorIs(t, err, extract.ErrNotEmpty, name)
		require.Empty(t, treewalk.Diff(before, walkOf(t, got), treewalk.Options{}), name)
	}
}

// keepTime runs fn and gives a directory the times that it had before.
func keepTime(dir string, fn func() error) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return err
	}
	if err := fn(); err != nil {
		return err
	}
	return unix.UtimesNano(dir, []unix.Timespec{st.Atim, st.Mtim})
}

// unlink makes one name of a file a file of its own.
func unlink(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	if err := os.WriteFile(path, data, os.FileMode(st.Mode&0o777)); err != nil {
		return err
	}
	if err := os.Chown(path, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	return unix.UtimesNano(path, []unix.Timespec{st.Atim, st.Mtim})
}
