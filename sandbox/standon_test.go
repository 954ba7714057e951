package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
	"snapfs/sandbox/internal/peer"
)

// standing is a home with a directory to import. Imports begin when release is called.
type standing struct {
	*testing.T
	*sandbox.Home
	dir, src, at string
	home         string // its directory
	release      func()
}

// newStanding opens a home whose workspaces stand on directories.
func newStanding(t *testing.T) *standing {
	t.Helper()
	return newStandingIn(t, t.TempDir())
}

// newStandingIn is newStanding with the home in a directory.
func newStandingIn(t *testing.T, in string) *standing {
	t.Helper()
	dir := t.TempDir()
	s := &standing{T: t, dir: dir, home: filepath.Join(in, "home"), src: filepath.Join(dir, "in", "src"), at: filepath.Join(dir, "m")}
	require.NoError(t, os.MkdirAll(filepath.Join(s.src, "sub"), 0o755))
	require.NoError(t, os.Mkdir(s.at, 0o755))
	for i := range 40 {
		name := filepath.Join(s.src, "sub", fmt.Sprint("f", i))
		require.NoError(t, os.WriteFile(name, bytes.Repeat(fmt.Appendf(nil, "%d\n", i), 100), 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(s.src, "a"), []byte("as it was"), 0o644))
	require.NoError(t, os.Link(filepath.Join(s.src, "a"), filepath.Join(s.src, "sub", "b")))
	require.NoError(t, os.Symlink("sub/f1", filepath.Join(s.src, "link")))
	held := make(chan struct{})
	s.release = sync.OnceFunc(func() { close(held) })
	var home atomic.Pointer[sandbox.Home]
	s.Home = openHome(t, s.home, sandbox.StandOn(sandbox.WithPoints(sandbox.Options{}, func(point string) {
		if point == "attempt to store noted" {
			select {
			case <-held:
			case <-home.Load().Ending():
			}
		}
	})))
	home.Store(s.Home)
	t.Cleanup(s.release)
	return s
}

// sh runs a script in the mount: this process serves it.
func (s *standing) sh(script string) {
	s.Helper()
	require.NoError(s, shell(s.Context(), `cd "$1"; `+script, s.at, s.src))
}

func (s *standing) create(ctx context.Context) sandbox.Workspace {
	s.Helper()
	w, err := s.Create(ctx, sandbox.CreateRequest{Name: "w", Source: s.src})
	require.NoError(s, err)
	return w
}

func (s *standing) mount(name, at string) {
	s.Helper()
	_, err := s.Mount(s.Context(), sandbox.MountRequest{Workspace: name, Mountpoint: at, MakeMountpoint: true})
	require.NoError(s, err)
}

func (s *standing) snapshot(name string) sandbox.Snapshot {
	s.Helper()
	got, err := s.Snapshot(s.Context(), sandbox.SnapshotRequest{Workspace: "w", Name: name})
	require.NoError(s, err)
	return got
}

// importOf is the import of a workspace.
func (s *standing) importOf(name string) *sandbox.Import {
	s.Helper()
	o, err := s.Show(s.Context(), sandbox.RefRequest{Ref: name})
	require.NoError(s, err)
	return o.Workspace.Import
}

// kinds lists the events of a workspace that are about imports.
func (s *standing) kinds(name string) (kinds []sandbox.EventKind) {
	s.Helper()
	about := []sandbox.EventKind{
		sandbox.EventImportStarted, sandbox.EventImportEnded, sandbox.EventImportFailed, sandbox.EventSourceChanged,
	}
	err := s.Events(s.Context(), sandbox.EventsRequest{Workspace: name}, func(e sandbox.Event) error {
		if slices.Contains(about, e.Kind) {
			kinds = append(kinds, e.Kind)
		}
		return nil
	})
	require.NoError(s, err)
	return kinds
}

// shows compares the tree of a mount with the one given.
func (s *standing) shows(want []treewalk.Node, at, when string) {
	s.Helper()
	got, err := treewalk.WalkApart(s.Context(), at)
	require.NoError(s, err)
	require.Empty(s, treewalk.Diff(want, got, treewalk.Options{Ino: true}), when)
}

// tidy fails for what the home should not have.
func (s *standing) tidy() {
	s.Helper()
	require.NoError(s, s.Settle(s.Context()))
	left, err := s.Leftovers(s.Context())
	require.NoError(s, err)
	require.Empty(s, left)
	res, err := s.Check(s.Context(), sandbox.CheckRequest{ReadData: true})
	require.NoError(s, err)
	require.Empty(s, res.Problems)
}

// brief is a context that ends before an import which is held back.
func (s *standing) brief() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), 50*time.Millisecond)
	s.Cleanup(cancel)
	return ctx
}

// TestStandOn lives the life of a workspace while the directory on which it stands is not imported yet, and after that.
func TestStandOn(t *testing.T) {
	s := newStanding(t)
	w := s.create(t.Context())
	require.NotNil(t, w.Import)
	require.Equal(t, s.src, w.Import.Directory)
	require.EqualValues(t, -1, w.Import.Total)
	s.mount("w", s.at)
	tree, err := treewalk.WalkApart(t.Context(), s.at)
	require.NoError(t, err)
	s.sh(`test "$(cat a)" = "as it was"; test "$(cat link)" = "$(cat sub/f1)"; echo more >> sub/f2; rm sub/f3; mv sub moved; mkdir sub`)
	one := s.snapshot("one")
	require.Equal(t, sandbox.Sealed, one.State)
	require.Equal(t, sandbox.Importing, one.Layers[len(one.Layers)-1].State)
	changed, err := treewalk.WalkApart(t.Context(), s.at)
	require.NoError(t, err)

	other := filepath.Join(s.dir, "other")
	_, err = s.Branch(t.Context(), sandbox.RestoreRequest{Snapshot: one.ID, Name: "branch", Mountpoint: other, MakeMountpoint: true})
	require.NoError(t, err)
	s.shows(changed, other, "a branch")
	_, err = s.Fork(t.Context(), sandbox.ForkRequest{Workspace: "w", Name: "fork"})
	require.NoError(t, err)
	require.NotNil(t, s.importOf("fork"))
	s.sh(`echo turned > turned`)
	_, err = s.Turn(t.Context(), sandbox.TurnRequest{Workspace: "w"})
	require.NoError(t, err)
	s.sh(`echo turned again > turned`)
	_, err = s.Turn(t.Context(), sandbox.TurnRequest{Workspace: "w"})
	require.NoError(t, err)
	_, err = s.Undo(t.Context(), sandbox.UndoRequest{Workspace: "w"})
	require.NoError(t, err)
	s.sh(`test "$(cat turned)" = turned`)
	var changes []string
	require.NoError(t, s.Diff(t.Context(), sandbox.DiffRequest{A: one.ID}, func(c sandbox.Change) error {
		changes = append(changes, c.Path)
		return nil
	}))
	require.Contains(t, changes, "turned")
	_, err = s.Apply(t.Context(), sandbox.ApplyRequest{From: "w", To: "fork"})
	require.NoError(t, err)
	_, err = s.Rollback(t.Context(), sandbox.RollbackRequest{Workspace: "w", Snapshot: one.ID, Discard: true})
	require.NoError(t, err)
	s.shows(changed, s.at, "after a rollback")
	_, err = s.GC(t.Context(), sandbox.GCRequest{Full: true})
	require.NoError(t, err)
	res, err := s.Check(t.Context(), sandbox.CheckRequest{ReadData: true})
	require.NoError(t, err)
	require.Empty(t, res.Problems)
	_, err = s.Stats(t.Context(), sandbox.StatsRequest{})
	require.NoError(t, err)
	_, err = s.Stats(t.Context(), sandbox.StatsRequest{Ref: "w"})
	require.NoError(t, err)

	// What needs all of it waits.
	var image bytes.Buffer
	_, err = s.Export(s.brief(), sandbox.ExportRequest{Snapshot: one.ID, Writer: &image})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = s.Apply(s.brief(), sandbox.ApplyRequest{From: "w", To: s.src})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = s.Base(s.brief(), sandbox.BaseRequest{Of: []string{"w"}})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = s.Extract(s.brief(), sandbox.ExtractRequest{Snapshot: one.ID, Path: filepath.Join(s.dir, "extracted")})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, []sandbox.EventKind{sandbox.EventImportStarted}, s.kinds("w"))

	s.release()
	_, err = s.Export(t.Context(), sandbox.ExportRequest{Snapshot: one.ID, Writer: &image})
	require.NoError(t, err)
	require.Nil(t, s.importOf("w"))
	require.Equal(t, []sandbox.EventKind{sandbox.EventImportStarted, sandbox.EventImportEnded}, s.kinds("w"))
	s.shows(changed, s.at, "imported")
	s.shows(changed, other, "a branch, imported")
	s.tidy()

	// The image is what the workspace showed.
	got, err := s.Base(t.Context(), sandbox.BaseRequest{Of: []string{"w"}})
	require.NoError(t, err)
	require.Equal(t, s.src, got.Path)
	_, err = s.Restore(t.Context(), sandbox.RestoreRequest{
		Snapshot: got.Snapshot.ID, Name: "base", Mountpoint: filepath.Join(s.dir, "base"), MakeMountpoint: true,
	})
	require.NoError(t, err)
	s.shows(tree, filepath.Join(s.dir, "base"), "the image")
	applied, err := s.Apply(t.Context(), sandbox.ApplyRequest{From: "w", To: s.src})
	require.NoError(t, err)
	require.True(t, applied.Applied)
	require.NoFileExists(t, filepath.Join(s.src, "moved", "f3"))
}

// TestStandOnDestroyed destroys a workspace before the directory on which it stands is imported.
func TestStandOnDestroyed(t *testing.T) {
	s := newStanding(t)
	s.create(t.Context())
	s.mount("w", s.at)
	s.sh(`cat a sub/* > all`)
	_, err := s.Unmount(t.Context(), sandbox.UnmountRequest{Workspace: "w"})
	require.NoError(t, err)
	_, err = s.Destroy(t.Context(), sandbox.DestroyRequest{Ref: "w", Now: true})
	require.NoError(t, err)
	s.release()
	s.tidy()
	st, err := s.Stats(t.Context(), sandbox.StatsRequest{})
	require.NoError(t, err)
	require.Zero(t, st.Layers)
	require.FileExists(t, filepath.Join(s.src, "a"))
}

// TestStandOnMissing removes a file before it is read, and another that comes back.
func TestStandOnMissing(t *testing.T) {
	s := newStanding(t)
	s.create(t.Context())
	s.mount("w", s.at)
	s.sh(`ls sub > /dev/null; rm "$2/sub/f1" "$2/sub/f2"; ! cat sub/f1 sub/f2; echo new > "$2/sub/f2"`)
	s.release()
	_, err := s.Base(t.Context(), sandbox.BaseRequest{Of: []string{"w"}})
	require.NoError(t, err)
	s.sh(`! cat sub/f1; test "$(cat sub/f2)" = new`)
	var ended []string
	err = s.Events(t.Context(), sandbox.EventsRequest{Workspace: "w"}, func(e sandbox.Event) error {
		if e.Kind == sandbox.EventImportEnded {
			ended = append(ended, e.Level, e.Detail)
		}
		return nil
	})
	require.NoError(t, err)
	require.Len(t, ended, 2)
	require.Equal(t, "warn", ended[0])
	require.Contains(t, ended[1], "1 names were gone before they were read: \"sub/f1\"")
}

// TestStandOnReopened opens a home again while an import is under way.
func TestStandOnReopened(t *testing.T) {
	s := newStanding(t)
	s.create(t.Context())
	s.mount("w", s.at)
	tree, err := treewalk.WalkApart(t.Context(), s.at)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	h := openHome(t, s.home, sandbox.StandOn(sandbox.Options{}))
	s.Home = h
	s.mount("w", s.at)
	s.shows(tree, s.at, "opened again")
	require.NoError(t, s.Settle(t.Context()))
	require.Nil(t, s.importOf("w"))
	s.shows(tree, s.at, "imported")
	s.tidy()
}

// TestStandOnPowerLoss takes the power away after a snapshot: what was read before it is as it was, whatever has become of
// the directory.
func TestStandOnPowerLoss(t *testing.T) {
	dir := t.TempDir()
	d := makeDisk(t, dir, os.Getenv("SNAPFS_DISK"), 400)
	s := newStandingIn(t, d.at)
	s.create(t.Context())
	s.snapshot("first") // which syncs all that was written before the home was opened
	for i, change := range []string{"", "chmod 600 a"} {
		s.mount("w", s.at)
		file := fmt.Sprint("sub/f", i)
		s.sh(`cat ` + file + ` >&2; ` + change)
		_, err := s.Unmount(t.Context(), sandbox.UnmountRequest{Workspace: "w"})
		require.NoError(t, err)
		s.snapshot(fmt.Sprint("after", i))
		require.NoError(t, os.WriteFile(filepath.Join(s.src, file), []byte("newer"), 0o644))

		image, mnt := filepath.Join(dir, "lost"), filepath.Join(dir, "lost.mnt")
		options := "loop"
		if os.Getenv("SNAPFS_DISK") == "xfs" {
			options += ",nouuid" // the device itself is mounted, too
		}
		script := `while cp --sparse=always "$1" "$2"; ! cmp -s "$1" "$2"; do :; done; mkdir -p "$3"; mount -o "$4" "$2" "$3"`
		require.NoError(t, shell(t.Context(), script, d.image, image, mnt, options))
		t.Run(file, func(t *testing.T) {
			t.Cleanup(func() { require.NoError(t, errors.Join(unix.Unmount(mnt, 0), os.Remove(image))) })
			h := openHome(t, filepath.Join(mnt, "home"), sandbox.StandOn(sandbox.Options{}))
			lost := &standing{T: t, Home: h, at: s.at}
			lost.mount("w", s.at)
			lost.sh(fmt.Sprintf(`test "$(head -n 1 %s)" = %d`, file, i))
			_, err := h.Unmount(t.Context(), sandbox.UnmountRequest{Workspace: "w"})
			require.NoError(t, err)
		})
	}
}

// TestImportFails takes the directory away on which a workspace stands, while the home is closed: what was read is shown,
// nothing else is in its place, that is told, and when it is back all goes on.
func TestImportFails(t *testing.T) {
	s := newStanding(t)
	s.create(t.Context())
	s.mount("w", s.at)
	s.sh(`test "$(cat a)" = "as it was"; ls -l sub > /dev/null; cat sub/f2 > /dev/null; echo new > new`)
	require.NoError(t, s.Close()) // the import has not begun
	away := s.src + ".away"
	require.NoError(t, os.Rename(s.src, away))
	s.Home = openHome(t, s.home, sandbox.StandOn(sandbox.Options{}))
	lacks := func(class error) {
		t.Helper()
		s.mount("w", s.at)
		s.sh(`test "$(cat a new)" = "as it wasnew"; test "$(head -n 1 sub/f2)" = 2; ls sub > /dev/null; if cat sub/f1; then exit 1; fi; echo more >> new; rm new; echo new > new`)
		_, err := s.Base(t.Context(), sandbox.BaseRequest{Of: []string{"w"}})
		require.ErrorIs(t, err, class)
		require.ErrorContains(t, err, s.src)
		i := s.importOf("w")
		require.NotNil(t, i)
		require.Contains(t, i.Problem, s.src)
		require.Contains(t, s.kinds("w"), sandbox.EventImportFailed)
		_, err = s.Unmount(t.Context(), sandbox.UnmountRequest{Workspace: "w"})
		require.NoError(t, err)
	}
	lacks(sandbox.ErrNotFound)
	require.NoError(t, os.Mkdir(s.src, 0o755))
	lacks(sandbox.ErrConflict)
	require.NoError(t, os.Remove(s.src))
	require.NoError(t, os.Rename(away, s.src))
	s.mount("w", s.at)
	require.Eventually(t, func() bool { return s.importOf("w") == nil }, time.Minute, 10*time.Millisecond)
	s.sh(`test "$(cat a new link)" = "$(cat "$2/a"; cat new sub/f1)"`)
	s.tidy()
}

// TestImportRights has a user's workspace stand on a directory of which the user may not read all: the daemon's rights
// are not used for it.
func TestImportRights(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to act for another user")
	}
	s := newStanding(t)
	secret := filepath.Join(s.src, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("root's"), 0o600))
	for dir := s.dir; dir != "/"; dir = filepath.Dir(dir) {
		fi, err := os.Stat(dir)
		require.NoError(t, err)
		require.NoError(t, os.Chmod(dir, fi.Mode()|0o011))
	}
	s.create(peer.With(t.Context(), &peer.User{UID: 4321, GID: 4321}))
	s.mount("w", s.at)
	s.sh(`test "$(cat a)" = "as it was"; ls -l secret; if cat secret; then exit 1; fi`)
	s.release()
	one := s.snapshot("one")
	_, err := s.Export(t.Context(), sandbox.ExportRequest{Snapshot: one.ID, Writer: new(bytes.Buffer)})
	require.ErrorIs(t, err, sandbox.ErrRefused)
	require.ErrorContains(t, err, "uid 4321")
	i := s.importOf("w")
	require.NotNil(t, i)
	require.Contains(t, i.Problem, `"secret" cannot be read: permission denied`)
	require.Contains(t, s.kinds("w"), sandbox.EventImportFailed)
	res, err := s.Check(t.Context(), sandbox.CheckRequest{})
	require.NoError(t, err)
	require.NotEmpty(t, res.Problems)
	require.Contains(t, res.Problems[0].What, `"secret" cannot be read`)
	require.NoError(t, os.Chmod(secret, 0o644))
	_, err = s.Unmount(t.Context(), sandbox.UnmountRequest{Workspace: "w"})
	require.NoError(t, err)
	require.NotNil(t, s.importOf("w"), "it is tried again though nobody asked")
	s.mount("w", s.at)
	s.sh(`test "$(cat secret)" = "root's"`)
	s.tidy()
	require.Nil(t, s.importOf("w"))
}

// TestCreateUnreadable refuses to make a workspace of a directory in which something cannot be read, if that is found
// while it is made.
func TestCreateUnreadable(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to act for another user")
	}
	s := newStanding(t)
	h := openHome(t, filepath.Join(s.dir, "plain"), sandbox.Options{})
	secret := filepath.Join(s.src, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("root's"), 0o600))
	for i := range 1001 {
		require.NoError(t, os.WriteFile(filepath.Join(s.src, "sub", fmt.Sprint("more", i)), nil, 0o644))
	}
	for dir := s.dir; dir != "/"; dir = filepath.Dir(dir) {
		fi, err := os.Stat(dir)
		require.NoError(t, err)
		require.NoError(t, os.Chmod(dir, fi.Mode()|0o011))
	}
	ctx := peer.With(t.Context(), &peer.User{UID: 4321, GID: 4321})
	_, err := h.Create(ctx, sandbox.CreateRequest{Name: "w", Source: s.src})
	require.ErrorIs(t, err, sandbox.ErrRefused)
	require.ErrorContains(t, err, secret+": permission denied")
	require.NoError(t, os.Chmod(secret, 0o644))
	_, err = h.Create(ctx, sandbox.CreateRequest{Name: "w", Source: s.src})
	require.NoError(t, err)
}

// TestMountOverImport mounts a workspace in a directory that is being imported, over it, and above it: that waits.
func TestMountOverImport(t *testing.T) {
	s := newStanding(t)
	s.create(t.Context())
	for _, at := range []string{filepath.Join(s.src, "sub"), s.src, filepath.Dir(s.src)} {
		_, err := s.Mount(s.brief(), sandbox.MountRequest{Workspace: "w", Mountpoint: at})
		require.ErrorIs(t, err, context.DeadlineExceeded, at)
	}
	s.release()
	s.mount("w", s.src)
	got, err := treewalk.WalkApart(t.Context(), s.src)
	require.NoError(t, err)
	require.Len(t, got, 45)
}

// TestStandOnSilent opens a home again when the directory that was being imported lies in a mount whose server does not
// answer: that fails for its workspace only.
func TestStandOnSilent(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount")
	}
	s := newStanding(t)
	s.create(t.Context())
	_, err := s.Create(t.Context(), sandbox.CreateRequest{Name: "other"})
	require.NoError(t, err)
	s.mount("w", s.at)
	s.mount("other", filepath.Join(s.dir, "other"))
	require.NoError(t, s.Close())
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	require.NoError(t, err)
	in := filepath.Dir(s.src)
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device.Fd())
	require.NoError(t, unix.Mount("silent", in, "fuse", 0, options))
	answer := sync.OnceFunc(func() {
		_ = device.Close() // what waits for an answer fails
		require.NoError(t, unix.Unmount(in, unix.MNT_DETACH))
	})
	defer answer()
	s.Home = openHome(t, s.home, sandbox.StandOn(sandbox.Options{Remount: true}))
	require.NoError(t, shell(t.Context(), `echo goes on > "$1/f"`, filepath.Join(s.dir, "other")))
	_, err = s.Mount(t.Context(), sandbox.MountRequest{Workspace: "w", Mountpoint: s.at})
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	answer()
	require.Eventually(t, func() bool {
		_, err = s.Mount(t.Context(), sandbox.MountRequest{Workspace: "w", Mountpoint: s.at})
		return err == nil
	}, time.Minute, 50*time.Millisecond)
	s.tidy()
}

// TestStandOnSilentInside has mounts whose servers do not answer in a directory that is imported: they are left out, and
// nobody waits for them.
func TestStandOnSilentInside(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount")
	}
	s := newStanding(t)
	sandbox.SilentMount(t, filepath.Join(s.src, "silent"), "user_id=0,group_id=0,allow_other")
	sandbox.SilentMount(t, filepath.Join(s.src, "sub", "foreign"), "user_id=4321,group_id=4321")
	late := filepath.Join(s.src, "sub", "late")
	require.NoError(t, os.MkdirAll(filepath.Join(late, "in"), 0o755))
	plain := openHome(t, filepath.Join(s.dir, "plain"), sandbox.Options{})
	for _, h := range []*sandbox.Home{plain, s.Home} {
		_, err := h.Create(t.Context(), sandbox.CreateRequest{Name: "w", Source: s.src})
		require.NoError(t, err)
	}
	s.mount("w", s.at)
	s.sh(`ls -lR > /dev/null; test -d silent; test -z "$(ls -A silent; ls -A sub/foreign)"; cat sub/f1 > /dev/null; touch sub/foreign/new`)
	s.snapshot("one")
	s.release()
	require.NoError(t, s.Settle(t.Context()))
	require.Nil(t, s.importOf("w"))
	require.NoError(t, s.Events(t.Context(), sandbox.EventsRequest{Workspace: "w"}, func(e sandbox.Event) error {
		if e.Kind == sandbox.EventImportEnded {
			require.Contains(t, e.Detail, "2 mounts in it were left out")
		}
		return nil
	}))
	s.sh(`test -d sub/late/in; test -e sub/foreign/new; test -z "$(ls -A silent)"`)
	_, err := s.Unmount(t.Context(), sandbox.UnmountRequest{Workspace: "w"})
	require.NoError(t, err)
	_, err = s.Destroy(t.Context(), sandbox.DestroyRequest{Ref: "w", Now: true})
	require.NoError(t, err)
	s.tidy()
}

// TestStandOnCovered has a mount come over a directory that was seen: what is under it is not lost, but told of.
func TestStandOnCovered(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount")
	}
	s := newStanding(t)
	s.create(t.Context())
	s.mount("w", s.at)
	s.sh(`ls -l > /dev/null`)
	sub := filepath.Join(s.src, "sub")
	t.Run("covered", func(t *testing.T) {
		sandbox.SilentMount(t, sub, "user_id=0,group_id=0,allow_other")
		s.sh(`if ls sub/f1; then exit 1; fi`)
		s.release()
		require.ErrorContains(t, s.Settle(t.Context()), "something is mounted over it")
		require.Contains(t, s.importOf("w").Problem, `"sub" cannot be read: something is mounted over it`)
	})
	_, err := s.Base(t.Context(), sandbox.BaseRequest{Of: []string{"w"}})
	require.NoError(t, err)
	s.sh(`test "$(head -n 1 sub/f1)" = 1`)
	s.tidy()
}

// TestMountNearForeignImport mounts below a directory that another user imports: that does not wait.
func TestMountNearForeignImport(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to act for another user")
	}
	s := newStanding(t)
	for dir := s.dir; dir != "/"; dir = filepath.Dir(dir) {
		fi, err := os.Stat(dir)
		require.NoError(t, err)
		require.NoError(t, os.Chmod(dir, fi.Mode()|0o011))
	}
	s.create(peer.With(t.Context(), &peer.User{UID: 4321, GID: 4321}))
	_, err := s.Create(t.Context(), sandbox.CreateRequest{Name: "other"})
	require.NoError(t, err)
	s.mount("other", filepath.Join(s.src, "sub"))
}
