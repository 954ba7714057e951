package dirapply

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/layers"
)

// pair is a scene with directories old, new and d, in which there is nothing yet.
func pair(t *testing.T) *scene {
	s := &scene{dir: t.TempDir(), trees: map[string]Tree{}}
	for _, name := range []string{"old", "new", "d"} {
		require.NoError(t, os.Mkdir(s.dir+"/"+name, 0o755))
	}
	return s
}

// TestOverlay renames a directory that overlayfs cannot rename: the error says why, and the directory is as it was.
func TestOverlay(t *testing.T) {
	s := pair(t)
	require.NoError(t, os.Mkdir(s.dir+"/old/a", 0o755))
	require.NoError(t, os.Mkdir(s.dir+"/new/b", 0o755))
	require.NoError(t, os.Mkdir(s.dir+"/upper", 0o755))
	require.NoError(t, os.Mkdir(s.dir+"/work", 0o755))
	err := unix.Mount("overlay", s.dir+"/d", "overlay", 0,
		"redirect_dir=off,lowerdir="+s.dir+"/old,upperdir="+s.dir+"/upper,workdir="+s.dir+"/work")
	if err != nil {
		t.Skip("no overlayfs here: ", err)
	}
	defer func() { require.NoError(t, unix.Unmount(s.dir+"/d", 0)) }()
	r := s.open(t, "d")
	defer r.Close() //nolint:errcheck // nothing is written
	changes := []layers.Change{{Kind: layers.Renamed, Path: "b", OldPath: "a"}}
	steps, _, err := r.Steps(t.Context(), changes, s.tree(t, "old"), s.tree(t, "new"))
	require.NoError(t, err)
	run := Run{Steps: steps, Old: s.tree(t, "old"), New: s.tree(t, "new"), Name: "x", Made: s.made}
	_, err = r.Run(t.Context(), run)
	require.ErrorIs(t, err, ErrMove)
	require.NotErrorIs(t, err, unix.EXDEV) // nothing is mounted there
	run.Back, run.Lenient, run.Resume, run.Stage = true, true, true, s.stage
	got, err := r.Run(t.Context(), run)
	require.NoError(t, err)
	require.Empty(t, got)
	require.Equal(t, []string{"a"}, namesOf(t, s.dir+"/d"))
}

// TestCoarseTimes scans a directory whose file system keeps times less exactly than trees do: nothing has changed.
func TestCoarseTimes(t *testing.T) {
	s := pair(t)
	want := unix.Timespec{Sec: 1e9 + 1, Nsec: 123456789}
	set := func(path string, ts unix.Timespec) {
		require.NoError(t, unix.UtimesNanoAt(unix.AT_FDCWD, s.dir+path, []unix.Timespec{ts, ts}, 0))
	}
	require.NoError(t, os.WriteFile(s.dir+"/old/f", []byte("1"), 0o600))
	require.NoError(t, os.WriteFile(s.dir+"/d/f", []byte("1"), 0o600))
	set("/old/f", want)
	for _, c := range []struct {
		has  unix.Timespec
		same bool
	}{
		{want, true},
		{unix.Timespec{Sec: want.Sec, Nsec: 123456700}, true}, // NTFS
		{unix.Timespec{Sec: want.Sec, Nsec: 123456000}, true},
		{unix.Timespec{Sec: want.Sec, Nsec: 120000000}, true}, // exFAT
		{unix.Timespec{Sec: want.Sec}, true},                  // ext4 with small inodes
		{unix.Timespec{Sec: want.Sec - 1}, true},              // FAT
		{unix.Timespec{Sec: want.Sec - 2}, false},
		{unix.Timespec{Sec: want.Sec + 1}, false},
		{unix.Timespec{Sec: want.Sec, Nsec: 123456788}, false},
	} {
		set("/d/f", c.has)
		r := s.open(t, "d")
		changes, err := r.Scan(t.Context(), s.tree(t, "old"))
		require.NoError(t, err)
		require.Equal(t, c.same, len(changes) == 0, "%v", c.has)
		_, _, err = r.Steps(t.Context(), []layers.Change{{Kind: layers.Deleted, Path: "f"}}, s.tree(t, "old"), s.tree(t, "new"))
		require.Equal(t, c.same, err == nil, "%v", c.has)
		require.NoError(t, r.Close())
	}
}

// TestHiddenEdit changes a file after the scan and gives it its time and size back.
func TestHiddenEdit(t *testing.T) {
	s := pair(t)
	require.NoError(t, os.WriteFile(s.dir+"/old/f", []byte("1"), 0o600))
	require.NoError(t, os.Remove(s.dir+"/d"))
	s.copy(t, "old", "d")
	fi, err := os.Stat(s.dir + "/d/f")
	require.NoError(t, err)
	r := s.open(t, "d")
	defer r.Close() //nolint:errcheck // nothing is written
	changes, err := r.Scan(t.Context(), s.tree(t, "old"))
	require.NoError(t, err)
	require.Empty(t, changes)
	require.NoError(t, os.WriteFile(s.dir+"/d/f", []byte("2"), 0o600))
	require.NoError(t, os.Chtimes(s.dir+"/d/f", fi.ModTime(), fi.ModTime()))
	_, _, err = r.Steps(t.Context(), []layers.Change{{Kind: layers.Deleted, Path: "f"}}, s.tree(t, "old"), s.tree(t, "new"))
	require.ErrorIs(t, err, ErrChanged)
}

// TestLongPath scans a directory with a path that is longer than a system call takes.
func TestLongPath(t *testing.T) {
	s := pair(t)
	name := strings.Repeat("n", 200)
	at, err := unix.Open(s.dir+"/d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	for range 30 {
		require.NoError(t, unix.Mkdirat(at, name, 0o700))
		next, err := unix.Openat(at, name, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Close(at))
		at = next
	}
	require.NoError(t, unix.Close(at))
	r := s.open(t, "d")
	defer r.Close() //nolint:errcheck // nothing is written
	changes, err := r.Scan(t.Context(), s.tree(t, "old"))
	require.NoError(t, err)
	require.Len(t, changes, 30)
	require.Less(t, len(described(changes[29].Path, unix.EIO).Error()), 1100)
}

// TestNoLock has a file system that locks no directories: the process still does.
func TestNoLock(t *testing.T) {
	s := pair(t)
	a, b := s.open(t, "old"), s.open(t, "new")
	again, err := os.Open(s.dir + "/old")
	require.NoError(t, err)
	same := &Root{dir: again}
	require.NoError(t, a.lock(unix.EBADF))
	require.ErrorIs(t, same.lock(unix.EBADF), ErrBusy)
	require.NoError(t, b.lock(unix.ENOLCK))
	require.ErrorIs(t, b.lock(unix.EIO), unix.EIO)
	require.NoError(t, a.Close())
	require.NoError(t, same.lock(unix.EOPNOTSUPP))
	require.NoError(t, same.Close())
	require.NoError(t, b.Close())
}
