package extract_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/testseed"
	"snapfs/sandbox/internal/extract"
	"snapfs/squashfs"
)

func TestTree(t *testing.T) {
	dir := scratch(t)
	want, got := dir+"/want", dir+"/got"
	torture(t, want)
	r, err := write(t.Context(), source(t, want), got, snapshot, extract.Options{})
	require.NoError(t, err)
	require.Empty(t, r.Skips)
	require.Equal(t, int64(3+1+1), r.Links, "of the big file, the symbolic link and the device")
	require.Zero(t, r.Kept)
	same(t, want, got)
	left, err := filepath.Glob(got + "/.snapfs-restore-*")
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestInherits: nothing comes from the directory that the tree is written into.
func TestInherits(t *testing.T) {
	dir := scratch(t)
	want, got := dir+"/want", dir+"/got"
	torture(t, want)
	require.NoError(t, os.Mkdir(got, 0o755))
	require.NoError(t, os.Chown(got, 3, 4))
	require.NoError(t, os.Chmod(got, 0o777|os.ModeSetgid))
	require.NoError(t, unix.Setxattr(got, "system.posix_acl_default", []byte("\x02\x00\x00\x00\x01\x00\x07\x00\xff\xff\xff\xff"+
		"\x04\x00\x07\x00\xff\xff\xff\xff\x20\x00\x07\x00\xff\xff\xff\xff"), 0))
	_, err := write(t.Context(), source(t, want), got, snapshot, extract.Options{NoSync: true})
	require.NoError(t, err)
	same(t, want, got)
}

// TestResume interrupts extractions anywhere; the next ones continue.
func TestResume(t *testing.T) {
	seed := testseed.Of(t)
	r := rand.New(rand.NewPCG(seed, 1))
	dir := scratch(t)
	want := dir + "/want"
	torture(t, want)
	for round := range 2 {
		got := fmt.Sprintf("%s/got%d", dir, round)
		for most := int64(1 + r.IntN(60)); ; most += int64(40 + r.IntN(60)) {
			ctx, cancel := context.WithCancel(t.Context())
			res, err := write(ctx, source(t, want), got, snapshot, extract.Options{
				NoSync: true, Workers: 1 + r.IntN(4), Progress: func(files, _ int64) {
					if files >= most {
						cancel()
					}
				},
			})
			cancel()
			if err == nil {
				require.Empty(t, res.Skips)
				require.Positive(t, res.Kept)
				break
			}
			require.ErrorIs(t, err, context.Canceled)
			spoil(t, got, r)
		}
		same(t, want, got)
	}
}

// spoil leaves behind what a killed process may have: a file without its contents, another type, a missing name.
func spoil(t *testing.T, got string, r *rand.Rand) {
	t.Helper()
	names, err := filepath.Glob(got + "/*/*")
	require.NoError(t, err)
	for _, name := range names {
		fi, err := os.Lstat(name)
		require.NoError(t, err)
		if !fi.Mode().IsRegular() {
			continue
		}
		switch r.IntN(12) {
		case 0:
			require.NoError(t, os.Truncate(name, fi.Size()/2))
		case 1:
			require.NoError(t, os.Remove(name))
		case 2:
			require.NoError(t, os.Remove(name))
			require.NoError(t, os.Symlink("/etc/passwd", name))
		}
	}
}

// TestResumeElsewhere: after a crash of the machine no file counts as complete, whatever its size and time.
func TestResumeElsewhere(t *testing.T) {
	dir := scratch(t)
	want, got := dir+"/want", dir+"/got"
	torture(t, want)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := write(ctx, source(t, want), got, snapshot, extract.Options{NoSync: true, Progress: func(files, _ int64) {
		if files > 100 {
			cancel()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	mark := got + "/.snapfs-restore-1"
	require.NoError(t, os.WriteFile(mark, []byte(`{"version":1,"snapshot":"`+snapshot+`","boot":"another"}`+"\nher\"}\n"), 0o600))
	lost := 0
	names, err := filepath.Glob(got + "/*/*")
	require.NoError(t, err)
	for _, name := range names {
		fi, err := os.Lstat(name)
		require.NoError(t, err)
		if fi.Mode().IsRegular() && fi.Size() > 0 {
			lost++
			f, err := os.OpenFile(name, os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte{0}, fi.Size()-1)
			require.NoError(t, err)
			require.NoError(t, f.Close())
			require.NoError(t, os.Chtimes(name, fi.ModTime(), fi.ModTime()))
		}
	}
	require.Positive(t, lost)
	r, err := write(t.Context(), source(t, want), got, snapshot, extract.Options{NoSync: true})
	require.NoError(t, err)
	require.Zero(t, r.Kept)
	same(t, want, got)
}

func TestRefuses(t *testing.T) {
	dir := scratch(t)
	src := madeUp{dirOf("f", fileOf("text"))}
	stop := func(int64, int64) {}
	try := func(path, id string) error {
		_, err := write(t.Context(), src, path, id, extract.Options{NoSync: true, Progress: stop})
		return err
	}
	full := dir + "/full"
	require.NoError(t, os.Mkdir(full, 0o755))
	require.NoError(t, os.WriteFile(full+"/mine", []byte("x"), 0o644))
	require.ErrorIs(t, try(full, snapshot), extract.ErrNotEmpty)
	fi, err := os.Stat(full)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), fi.Mode().Perm(), "what is refused is not changed")
	require.NoError(t, os.WriteFile(full+"/.snapfs-restore", []byte("{}"), 0o600))
	require.ErrorIs(t, try(full, snapshot), extract.ErrNotEmpty)
	require.NoError(t, os.WriteFile(full+"/.snapfs-restore", nil, 0o600))
	require.ErrorIs(t, try(full, snapshot), extract.ErrNotEmpty)

	// A marker that is another file, too.
	linked := dir + "/linked"
	require.NoError(t, os.Mkdir(linked, 0o755))
	require.NoError(t, os.WriteFile(dir+"/other", nil, 0o644))
	require.NoError(t, os.Link(dir+"/other", linked+"/.snapfs-restore"))
	require.ErrorIs(t, try(linked, snapshot), extract.ErrNotEmpty)
	text, err := os.ReadFile(dir + "/other")
	require.NoError(t, err)
	require.Empty(t, text)

	require.NoError(t, os.WriteFile(dir+"/file", nil, 0o644))
	require.ErrorIs(t, try(dir+"/file", snapshot), unix.ENOTDIR)
	require.ErrorIs(t, try(dir+"/no/where", snapshot), unix.ENOENT)
	require.NoError(t, os.Symlink(full, dir+"/link"))
	require.Error(t, try(dir+"/link", snapshot))
	require.Error(t, try(dir+"/link/x", snapshot))

	// Two at once, and another snapshot.
	half := dir + "/half"
	ctx, cancel := context.WithCancel(t.Context())
	_, err = write(ctx, src, half, snapshot, extract.Options{NoSync: true, Progress: func(int64, int64) {
		require.ErrorIs(t, try(half, snapshot), extract.ErrBusy)
		cancel()
	}, Workers: 1})
	_ = err // the last file may have been done
	mark, err := os.OpenFile(half+"/.snapfs-restore", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	require.NoError(t, err)
	_, err = mark.WriteString(`{"version":1,"snapshot":"` + snapshot + `"}`)
	require.NoError(t, err)
	require.NoError(t, mark.Close())
	require.ErrorIs(t, try(half, "another"), extract.ErrOther)
	require.NoError(t, try(half, snapshot))

	// A call that writes nothing leaves nothing.
	done, end := context.WithCancel(t.Context())
	end()
	_, err = write(done, src, dir+"/none", snapshot, extract.Options{})
	require.ErrorIs(t, err, context.Canceled)
	require.NoFileExists(t, dir+"/none")
}

// TestStrangers: what others have put into the target meanwhile stays, and is told.
func TestStrangers(t *testing.T) {
	dir := scratch(t)
	got := dir + "/got"
	src := madeUp{dirOf("d", dirOf("f", fileOf("text")), "g", fileOf("more"))}
	require.NoError(t, os.MkdirAll(got+"/d", 0o755))
	require.NoError(t, os.WriteFile(got+"/.snapfs-restore", []byte(`{"version":1,"snapshot":"`+snapshot+`"}`), 0o600))
	require.NoError(t, os.WriteFile(got+"/d/mine", []byte("m"), 0o644))
	r, err := write(t.Context(), src, got, snapshot, extract.Options{})
	require.NoError(t, err)
	require.Equal(t, int64(1), r.Skipped)
	require.Equal(t, "d/mine extra", r.Skips[0].Path+" "+r.Skips[0].What)
	require.FileExists(t, got+"/d/mine")
	require.FileExists(t, got+"/d/f")
}

// TestHostileNames: names that no directory can have are damage, and nothing is made of them.
func TestHostileNames(t *testing.T) {
	for _, name := range []string{"..", ".", "", "a/b", "/etc/x", "../x", "a\x00b"} {
		dir := scratch(t)
		for i, root := range []*node{
			dirOf(name, fileOf("x")), dirOf("d", dirOf(name, dirOf("in", fileOf("x")))),
		} {
			path := fmt.Sprintf("%s/t%d/got", dir, i)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			_, err := write(t.Context(), madeUp{root}, path, snapshot, extract.Options{NoSync: true})
			require.ErrorIs(t, err, squashfs.ErrCorrupt, "%q", name)
			there, err := os.ReadDir(filepath.Dir(path))
			require.NoError(t, err)
			require.LessOrEqual(t, len(there), 1)
		}
	}
}

// TestHostileTrees: a directory that contains itself, or has a name twice, is damage.
func TestHostileTrees(t *testing.T) {
	itself, twice := dirOf("f", fileOf("x")), dirOf("f", fileOf("x"), "d", dirOf("f", fileOf("y")))
	itself.attr.Ino = 5
	itself.names, itself.nodes["again"] = append(itself.names, "again"), itself
	twice.names = append(twice.names, "f")
	for says, root := range map[string]*node{"contains itself": itself, "twice": twice} {
		for _, root := range []*node{root, dirOf("in", root)} {
			_, err := write(t.Context(), madeUp{root}, scratch(t)+"/got", snapshot, extract.Options{NoSync: true})
			require.ErrorIs(t, err, squashfs.ErrCorrupt)
			require.ErrorContains(t, err, says)
		}
	}
}

// TestRacing: programs that replace names in the target while it is written get nothing written elsewhere.
func TestRacing(t *testing.T) {
	dir := scratch(t)
	outside := dir + "/outside"
	require.NoError(t, os.MkdirAll(outside+"/sub", 0o755))
	require.NoError(t, os.WriteFile(outside+"/f0", []byte("precious"), 0o644))
	var pairs []any
	for i := range 40 {
		var in []any
		for k := range 12 {
			in = append(in, fmt.Sprintf("f%d", k), fileOf(strings.Repeat("x", 100*k)))
		}
		in = append(in, "sub", dirOf("f0", fileOf("y")))
		pairs = append(pairs, fmt.Sprintf("d%02d", i), dirOf(in...))
	}
	src := madeUp{dirOf(pairs...)}
	for round := range 6 {
		got := fmt.Sprintf("%s/got%d", dir, round)
		var stop atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				d := fmt.Sprintf("%s/d%02d", got, i%40)
				aside := fmt.Sprintf("%s/aside%d", dir, i%7)
				switch i % 3 {
				case 0:
					_ = os.Rename(d, aside)
					_ = os.Symlink(outside, d)
				default:
					fd, err := unix.Open(d, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
					if err != nil {
						continue
					}
					_ = unix.Unlinkat(fd, "sub", unix.AT_REMOVEDIR)
					_ = unix.Symlinkat(outside+"/sub", fd, "sub")
					_ = unix.Unlinkat(fd, "f0", 0)
					_ = unix.Symlinkat(outside+"/f0", fd, "f0")
					unix.Close(fd)
				}
				_ = os.RemoveAll(aside)
			}
		})
		_, _ = write(t.Context(), src, got, snapshot, extract.Options{NoSync: true}) // it may fail
		stop.Store(true)
		wg.Wait()
		there, err := os.ReadDir(outside + "/sub")
		require.NoError(t, err)
		require.Empty(t, there)
		text, err := os.ReadFile(outside + "/f0")
		require.NoError(t, err)
		require.Equal(t, "precious", string(text))
		there, err = os.ReadDir(outside)
		require.NoError(t, err)
		require.Len(t, there, 2)
		fi, err := os.Stat(outside)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o755), fi.Mode().Perm())
	}
}

// TestManyNames: an inode has more names than the file system has room for, and fewer than it claims.
func TestManyNames(t *testing.T) {
	dir := scratch(t)
	many, claims := fileOf("many"), fileOf("claims")
	const names = 66_000 // ext4 has 65,000
	many.attr.Nlink, many.id = names, 7
	claims.attr.Nlink, claims.id = 5, 8
	d := dirOf()
	for i := range names {
		name := fmt.Sprintf("%05d", i)
		d.names, d.nodes[name] = append(d.names, name), many
	}
	e := dirOf("c1", claims, "c2", claims)
	got := dir + "/got"
	r, err := write(t.Context(), madeUp{dirOf("d", d, "e", e)}, got, snapshot, extract.Options{NoSync: true})
	require.NoError(t, err)
	require.Equal(t, int64(names+2), r.Files+r.Links)
	require.Equal(t, r.Skipped, r.Files-2, "each further file is told")
	there, err := os.ReadDir(got + "/d")
	require.NoError(t, err)
	require.Len(t, there, names)
	var st unix.Stat_t
	require.NoError(t, unix.Stat(got+"/e/c1", &st))
	require.Equal(t, uint64(2), st.Nlink)
	require.NoError(t, unix.Stat(got+"/e", &st))
	require.Zero(t, st.Mtim.Sec, "the directory is finished all the same")
}

// TestLargeAttribute: an attribute that the file system has no room for is told, and is no full disk.
func TestLargeAttribute(t *testing.T) {
	dir := scratch(t)
	f := fileOf("x")
	f.xattrs = []squashfs.Xattr{
		{Name: "user.a", Value: []byte("1")},
		{Name: "user.big", Value: make([]byte, 1<<16)},
		{Name: "user.z", Value: []byte("2")},
		{Name: "nonsense", Value: []byte("3")},
	}
	r, err := write(t.Context(), madeUp{dirOf("f", f)}, dir+"/got", snapshot, extract.Options{NoSync: true})
	require.NoError(t, err)
	value := make([]byte, 10)
	n, err := unix.Getxattr(dir+"/got/f", "user.z", value)
	require.NoError(t, err)
	require.Equal(t, "2", string(value[:n]))
	told := ""
	for _, s := range r.Skips {
		told += s.Path + " " + s.What + ";"
	}
	require.Contains(t, told, "f xattr nonsense;")
	if n, err := unix.Getxattr(dir+"/got/f", "user.big", nil); err != nil || n != 1<<16 {
		require.Contains(t, told, "f xattr user.big;")
	}
}

// TestHoles: a file of a tebibyte takes what its data takes.
func TestHoles(t *testing.T) {
	dir := scratch(t)
	require.NoError(t, os.Mkdir(dir+"/want", 0o755))
	sparse, err := os.Create(dir + "/want/sparse")
	require.NoError(t, err)
	const size = 1 << 40
	require.NoError(t, sparse.Truncate(size))
	for _, off := range []int64{1 << 20, 1<<39 + 4096, size - 8192} {
		_, err = sparse.WriteAt([]byte("data"), off)
		require.NoError(t, err)
	}
	require.NoError(t, sparse.Close())
	r, err := write(t.Context(), source(t, dir+"/want"), dir+"/got", snapshot, extract.Options{NoSync: true})
	require.NoError(t, err)
	require.Equal(t, int64(3*4096), r.Bytes)
	var st unix.Stat_t
	require.NoError(t, unix.Stat(dir+"/got/sparse", &st))
	require.Equal(t, int64(size), st.Size)
	require.Less(t, st.Blocks*512, int64(1<<20))
	f, err := os.Open(dir + "/got/sparse")
	require.NoError(t, err)
	defer f.Close()
	b := make([]byte, 4)
	_, err = f.ReadAt(b, 1<<39+4096)
	require.NoError(t, err)
	require.Equal(t, "data", string(b))
}

// TestFails: damage ends the call, which leaves something to continue with.
func TestFails(t *testing.T) {
	dir := scratch(t)
	short := fileOf("short")
	src := madeUp{dirOf("a", fileOf("x"), "b", short)}
	short.ends = 3
	_, err := write(t.Context(), src, dir+"/got", snapshot, extract.Options{NoSync: true, Workers: 1})
	require.ErrorIs(t, err, squashfs.ErrCorrupt)
	require.ErrorContains(t, err, "b: ")
	short.ends = 0
	r, err := write(t.Context(), src, dir+"/got", snapshot, extract.Options{NoSync: true})
	require.NoError(t, err)
	require.Equal(t, int64(2), r.Files)
	text, err := os.ReadFile(dir + "/got/b")
	require.NoError(t, err)
	require.Equal(t, "short", string(text))
}
