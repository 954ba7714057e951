package dirapply

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/testseed"
	"snapfs/internal/treewalk"
	"snapfs/layers"
	"snapfs/sandbox/internal/threeway"
)

// TestStepsEverywhere changes random trees into others and is stopped at each point on the way: another run goes on to
// the new tree, or back to the old one, and leaves exactly that.
func TestStepsEverywhere(t *testing.T) {
	rounds, step := 2, 5
	if os.Getenv("SNAPFS_LONG") != "" {
		rounds, step = 60, 1
	}
	seed := testseed.Of(t)
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			s := newScene(t, rand.New(rand.NewPCG(seed, uint64(round))))
			points := s.attempt(t, -1, false)
			s.is(t, "new")
			s.again(t, true)
			s.is(t, "old")
			require.Greater(t, points, 10)
			for at := round % step; at < points; at += step {
				for _, back := range []bool{false, true} {
					s.reset(t)
					s.attempt(t, at, false)
					s.again(t, back)
					s.is(t, map[bool]string{false: "new", true: "old"}[back])
				}
			}
			for at := round % step; at < points; at += step {
				s.reset(t)
				s.attempt(t, at, false)
				if s.attempt(t, at/2, true); t.Failed() { // stopped on the way back, too
					return
				}
				s.again(t, true)
				s.is(t, "old")
			}
		})
	}
}

// scene is a directory with two trees: it is to be changed from the one into the other.
type scene struct {
	dir   string
	rnd   *rand.Rand
	steps []Step
	stage Stage
	trees map[string]Tree
}

func newScene(t *testing.T, rnd *rand.Rand) *scene {
	s := &scene{dir: t.TempDir(), rnd: rnd, trees: map[string]Tree{}}
	require.NoError(t, os.Mkdir(s.dir+"/old", 0o755))
	for range 16 {
		s.add(t, s.dir+"/old")
	}
	s.stamp(t, s.dir+"/old")
	s.copy(t, "old", "new")
	before := inodes(t, s.dir+"/new")
	for range 12 {
		s.change(t, s.dir+"/new")
	}
	s.stamp(t, s.dir+"/new")
	changes := naive(t, s.dir+"/old", s.dir+"/new", before)
	s.reset(t)
	r := s.open(t, "d")
	defer r.Close() //nolint:errcheck // nothing is written
	var obstacles []Obstacle
	var err error
	s.steps, obstacles, err = r.Steps(t.Context(), changes, s.tree(t, "old"), s.tree(t, "new"))
	require.NoError(t, err)
	require.Empty(t, obstacles)
	return s
}

func (s *scene) open(t *testing.T, name string) *Root {
	r, err := Open(s.dir+"/"+name, nil)
	require.NoError(t, err)
	return r
}

func (s *scene) tree(t *testing.T, name string) Tree {
	if _, ok := s.trees[name]; !ok {
		r := s.open(t, name)
		t.Cleanup(func() { _ = r.Close() })
		s.trees[name] = r.Tree()
	}
	return s.trees[name]
}

func (s *scene) copy(t *testing.T, from, to string) {
	out, err := exec.CommandContext(t.Context(), "cp", "-a", s.dir+"/"+from, s.dir+"/"+to).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// reset makes the directory the old tree, with the inode numbers that the steps know.
func (s *scene) reset(t *testing.T) {
	require.NoError(t, os.RemoveAll(s.dir+"/d"))
	s.copy(t, "old", "d")
	r := s.open(t, "d")
	defer r.Close() //nolint:errcheck // nothing is written
	for i := range s.steps {
		if st, err := r.lstat(string(s.steps[i].Old)); err == nil && st != nil && s.steps[i].Kind != layers.Added {
			s.steps[i].Was = identityOf(st)
		}
	}
}

func (s *scene) made(is Stage) error {
	s.stage = is
	return nil
}

// errStopped is the panic of a run that is stopped.
var errStopped = errors.New("stopped")

// attempt runs until a point of a number, and counts the points.
func (s *scene) attempt(t *testing.T, at int, back bool) (points int) {
	r := s.open(t, "d")
	defer r.Close() //nolint:errcheck // nothing is written
	defer func() {
		if p := recover(); p != nil && p != errStopped { //nolint:errorlint // it is the very one
			panic(p)
		}
	}()
	_, err := r.Run(t.Context(), Run{
		Steps: s.steps, Old: s.tree(t, "old"), New: s.tree(t, "new"), Back: back, Resume: back, Name: "x",
		Stage: s.stage, Made: s.made, Points: func(string) {
			if points++; points-1 == at {
				panic(errStopped)
			}
		},
	})
	require.NoError(t, err)
	return points
}

// again goes on after a run that was stopped.
func (s *scene) again(t *testing.T, back bool) {
	r := s.open(t, "d")
	defer r.Close() //nolint:errcheck // nothing is written
	got, err := r.Run(t.Context(), Run{
		Steps: s.steps, Old: s.tree(t, "old"), New: s.tree(t, "new"), Back: back, Resume: true, Name: "x",
		Stage: s.stage, Made: s.made,
	})
	require.NoError(t, err)
	require.Empty(t, got)
}

// is fails unless the directory is one of the trees.
func (s *scene) is(t *testing.T, name string) {
	t.Helper()
	want, err := treewalk.Walk(s.dir + "/" + name)
	require.NoError(t, err)
	got, err := treewalk.Walk(s.dir + "/d")
	require.NoError(t, err)
	if diff := treewalk.Diff(want, got, treewalk.Options{IgnoreExtents: true}); len(diff) > 0 {
		t.Fatalf("not the %s tree:\n%s\nsteps: %v", name, strings.Join(diff, "\n"), s.steps)
	}
}

var names = []string{"a", "b", "c", "d\xff", "e\nf"}

// pick gives a random path of some kind in a tree; "" if there is none.
func (s *scene) pick(t *testing.T, root string, want func(m fs.FileMode) bool) string {
	var all []string
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != root && want(d.Type()) {
			all = append(all, path)
		}
		return err
	}))
	if len(all) == 0 {
		return ""
	}
	return all[s.rnd.IntN(len(all))]
}

// free gives a path at which nothing is.
func (s *scene) free(t *testing.T, root string) string {
	dir := root
	if s.rnd.IntN(4) > 0 {
		if in := s.pick(t, root, fs.FileMode.IsDir); in != "" {
			dir = in
		}
	}
	path := dir + "/" + names[s.rnd.IntN(len(names))]
	for i := 0; ; i++ {
		if _, err := os.Lstat(path); err != nil {
			return path
		}
		path = fmt.Sprint(dir, "/", names[s.rnd.IntN(len(names))], i)
	}
}

func (s *scene) add(t *testing.T, root string) {
	path := s.free(t, root)
	other := s.pick(t, root, fs.FileMode.IsRegular)
	switch n := s.rnd.IntN(10); {
	case n < 3:
		require.NoError(t, os.Mkdir(path, 0o700|fs.FileMode(s.rnd.IntN(8))))
	case n < 7:
		require.NoError(t, os.WriteFile(path, s.text(), 0o600|fs.FileMode(s.rnd.IntN(8))))
		if n == 6 {
			require.NoError(t, unix.Setxattr(path, "user.x", []byte{byte(s.rnd.IntN(3))}, 0))
		}
	case n == 7:
		require.NoError(t, os.Symlink(fmt.Sprint(s.rnd.IntN(4)), path))
	case n == 8 && other != "":
		require.NoError(t, os.Link(other, path))
	default:
		require.NoError(t, unix.Mkfifo(path, 0o640))
	}
}

func (s *scene) text() []byte {
	return slices.Concat([]byte(fmt.Sprint(s.rnd.IntN(1000))), make([]byte, s.rnd.IntN(3)*5000))
}

func (s *scene) change(t *testing.T, root string) {
	any := func(fs.FileMode) bool { return true }
	switch path := s.pick(t, root, any); {
	case path == "" || s.rnd.IntN(3) == 0:
		s.add(t, root)
	case s.rnd.IntN(4) == 0:
		require.NoError(t, os.RemoveAll(path))
	case s.rnd.IntN(3) == 0:
		to := s.free(t, root)
		if over := s.pick(t, root, func(m fs.FileMode) bool { return !m.IsDir() }); over != "" && s.rnd.IntN(2) == 0 {
			to = over
		}
		_ = os.Rename(path, to) // into itself, or a directory over a file: refused
	default:
		fi, err := os.Lstat(path)
		require.NoError(t, err)
		switch {
		case fi.Mode().IsRegular() && s.rnd.IntN(2) == 0:
			require.NoError(t, os.WriteFile(path, s.text(), 0))
		case fi.Mode()&fs.ModeSymlink != 0:
			require.NoError(t, os.Remove(path))
			require.NoError(t, os.Symlink("elsewhere", path))
		default:
			require.NoError(t, os.Chmod(path, 0o700|fs.FileMode(s.rnd.IntN(64))))
		}
	}
}

// stamp gives a tree random times.
func (s *scene) stamp(t *testing.T, root string) {
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || s.rnd.IntN(3) > 0 && d.Type()&fs.ModeSymlink == 0 && !d.IsDir() {
			return err
		}
		ts := unix.Timespec{Sec: 1e9 + int64(s.rnd.IntN(1e6)), Nsec: int64(s.rnd.IntN(1e9))}
		if d.IsDir() { // innermost last, but that changes nothing above
			ts.Sec += 5
		}
		return unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
	}))
}

// inodes maps inode numbers to paths; of files with several names, which count as new if they have changed, none.
func inodes(t *testing.T, root string) map[uint64]string {
	all := map[uint64]string{}
	r, err := Open(root, nil)
	require.NoError(t, err)
	defer r.Close() //nolint:errcheck // nothing is written
	for _, path := range paths(t, root) {
		st, err := r.lstat(path)
		require.NoError(t, err)
		if isDir(st.Mode) || st.Nlink == 1 {
			all[st.Ino] = path
		}
	}
	return all
}

// paths lists everything in a tree, a directory before what is in it.
func paths(t *testing.T, root string) []string {
	var all []string
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if path != root {
			all = append(all, strings.TrimPrefix(path, root+"/"))
		}
		return err
	}))
	return all
}

// naive lists what leads from one tree to another, which began as a copy of it with these inode numbers.
func naive(t *testing.T, old, now string, before map[uint64]string) (changes []layers.Change) {
	open := func(path string) *Root {
		r, err := Open(path, nil)
		require.NoError(t, err)
		return r
	}
	a, b := open(old), open(now)
	defer func() { require.NoError(t, errors.Join(a.Close(), b.Close())) }()
	was := map[string]string{"": ""} // by path now
	met := map[string]bool{}
	for _, path := range paths(t, now) {
		st, err := b.lstat(path)
		require.NoError(t, err)
		dir, name := threeway.Split(path)
		from, known := before[st.Ino]
		if st.Nlink > 1 && !isDir(st.Mode) {
			known = false
		}
		if known {
			o, err := a.lstat(from)
			require.NoError(t, err)
			known = kind(o.Mode) == kind(st.Mode)
		}
		in, ok := was[dir]
		if st.Nlink > 1 && !isDir(st.Mode) && ok {
			// A file with several names is the same if each is where it was, and nothing has changed.
			if o, err := a.lstat(threeway.Join(in, name)); err == nil && o != nil && o.Nlink == st.Nlink && same(t, a, b, threeway.Join(in, name), path) &&
				group(t, a, old, o.Ino) == group(t, b, now, st.Ino) {
				was[path], met[threeway.Join(in, name)] = threeway.Join(in, name), true
				continue
			}
		}
		if !known || met[from] {
			changes = append(changes, layers.Change{Kind: layers.Added, Path: path})
			continue
		}
		was[path], met[from] = from, true
		if !ok || threeway.Join(in, name) != from {
			changes = append(changes, layers.Change{Kind: layers.Renamed, Path: path, OldPath: from})
		}
		if !same(t, a, b, from, path) {
			changes = append(changes, layers.Change{Kind: layers.Modified, Path: path, OldPath: from})
		}
	}
	for _, path := range paths(t, old) {
		if !met[path] {
			changes = append(changes, layers.Change{Kind: layers.Deleted, Path: path})
		}
	}
	return changes
}

func same(t *testing.T, a, b *Root, x, y string) bool {
	f, err := a.Tree().Lstat(x)
	require.NoError(t, err)
	g, err := b.Tree().Lstat(y)
	require.NoError(t, err)
	if f.Stat().Mtime != g.Stat().Mtime { // of directories, too
		return false
	}
	ok, err := alike(t.Context(), f, g, true)
	require.NoError(t, err)
	return ok
}

// group names the files of a hard link.
func group(t *testing.T, r *Root, root string, ino uint64) string {
	var all []string
	for _, path := range paths(t, root) {
		if st, err := r.lstat(path); err == nil && st.Ino == ino {
			all = append(all, path)
		}
	}
	return strings.Join(all, "\x00")
}
