package dirapply

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/testseed"
	"snapfs/layers"
)

// TestStrangers has somebody make directories where a run takes things from or puts them, while it works and after it was
// stopped. Nothing that was moved stays in the stage, or is lost, and the directory can be worked with afterwards.
func TestStrangers(t *testing.T) {
	rounds, step := 4, 5
	if os.Getenv("SNAPFS_LONG") != "" {
		rounds, step = 40, 1
	}
	seed := testseed.Of(t)
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			s := newScene(t, rand.New(rand.NewPCG(seed, uint64(round)+1000)))
			points := s.attempt(t, -1, false)
			for at := round % step; at < points; at += step {
				for _, stop := range []bool{false, true} {
					s.reset(t)
					s.visit(t, at, stop)
				}
			}
		})
	}
}

// visit runs, and is disturbed at a point.
func (s *scene) visit(t *testing.T, at int, stop bool) {
	private := s.private(t)
	n, met := 0, ""
	run := func(back bool, disturb bool) (err error) {
		r := s.open(t, "d")
		defer r.Close() //nolint:errcheck // nothing is written
		defer func() {
			if p := recover(); p != nil {
				require.Equal(t, errStopped, p)
				err = errStopped
			}
		}()
		_, err = r.Run(t.Context(), Run{
			Steps: s.steps, Old: s.tree(t, "old"), New: s.tree(t, "new"), Back: back, Lenient: back, Resume: back || !disturb,
			Name: "x", Stage: s.stage, Made: s.made,
			Points: func(string) {
				if n++; disturb && n-1 == at {
					if met = s.intrude(); stop {
						panic(errStopped)
					}
				}
			},
		})
		return err
	}
	err := run(false, true)
	if stop {
		require.ErrorIs(t, err, errStopped)
		err = run(false, false)
	}
	if err != nil {
		require.ErrorIs(t, err, ErrChanged)
		require.NoError(t, run(true, false))
	}
	r := s.open(t, "d")
	defer r.Close() //nolint:errcheck // nothing is written
	_, err = r.Scan(t.Context(), s.tree(t, "old"))
	require.NoError(t, err)
	if met != "" {
		require.NotEmpty(t, s.find(t, "stranger"), met)
	}
	require.Equal(t, len(private), len(s.find(t, "private")), "stranger %s, steps: %v", met, s.steps)
}

// private puts into each directory that is moved a file of which no tree tells.
func (s *scene) private(t *testing.T) (all []string) {
	for i, m := range s.steps {
		path := fmt.Sprintf("%s/d/%s/private%d", s.dir, m.Old, i)
		if fi, err := os.Lstat(filepath.Dir(path)); m.Kind == layers.Renamed && err == nil && fi.IsDir() {
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			all = append(all, path)
		}
	}
	return all
}

// intrude makes a directory where a step wants something else to be; "" if there is something everywhere.
func (s *scene) intrude() string {
	for _, i := range s.rnd.Perm(len(s.steps)) {
		m := s.steps[i]
		for _, path := range []Path{m.New, m.Old} {
			at := s.dir + "/d/" + string(path)
			if path != "" && os.Mkdir(at, 0o700) == nil && os.WriteFile(at+"/stranger", nil, 0o600) == nil {
				return at + "/stranger"
			}
		}
	}
	return ""
}

// find lists the files in the directory, but not in a stage, whose names begin with a word.
func (s *scene) find(t *testing.T, word string) (all []string) {
	require.NoError(t, filepath.WalkDir(s.dir+"/d", func(path string, d fs.DirEntry, err error) error {
		if strings.HasPrefix(d.Name(), stageStart) {
			return fs.SkipDir
		}
		if strings.HasPrefix(d.Name(), word) {
			all = append(all, path)
		}
		return err
	}))
	return all
}

// TestNoLinkIsFollowed exchanges a directory whose permissions are to change with a link that leads outside, at each
// moment: what is there stays as it is.
func TestNoLinkIsFollowed(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"old", "new", "d"} {
		require.NoError(t, os.MkdirAll(dir+"/"+name+"/sub", 0o700))
	}
	require.NoError(t, os.Chmod(dir+"/new/sub", 0o777)) //nolint:gosec // it is to change
	s := &scene{dir: dir, trees: map[string]Tree{}}
	changes := []layers.Change{{Kind: layers.Modified, Path: "sub"}}
	for at := 0; ; at++ {
		outside := dir + "/outside"
		require.NoError(t, os.WriteFile(outside, nil, 0o600))
		require.NoError(t, os.RemoveAll(dir+"/d"))
		s.copy(t, "old", "d")
		calls := -1 << 30
		r, err := Open(dir+"/d", func(fn func() error) error {
			if calls++; calls == at {
				_ = os.RemoveAll(dir + "/d/sub")
				require.NoError(t, os.Symlink("../outside", dir+"/d/sub"))
			}
			return fn()
		})
		require.NoError(t, err)
		steps, _, err := r.Steps(t.Context(), changes, s.tree(t, "old"), s.tree(t, "new"))
		require.NoError(t, err)
		calls = -1
		_, _ = r.Run(t.Context(), Run{Steps: steps, Old: s.tree(t, "old"), New: s.tree(t, "new"), Name: "x"})
		require.NoError(t, r.Close())
		fi, err := os.Lstat(outside)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), fi.Mode(), "call %d", at)
		if calls < at {
			require.Greater(t, at, 3)
			return
		}
	}
}

// TestForeignStage puts a directory in the place of a stage after a run was stopped: nothing of what is in it is used,
// and the run ends.
func TestForeignStage(t *testing.T) {
	s := newScene(t, rand.New(rand.NewPCG(testseed.Of(t), 3000)))
	points := s.attempt(t, -1, false)
	s.reset(t)
	s.attempt(t, points/2, false)
	stage := s.dir + "/d/" + stageStart + "x"
	require.NoError(t, os.Rename(stage, s.dir+"/d/moved"))
	require.NoError(t, os.Mkdir(stage, 0o755)) //nolint:gosec // it is another's
	for i := range s.steps {
		require.NoError(t, unix.Mkfifo(stage+"/"+slotOf('m', i), 0o600))
	}
	r := s.open(t, "d")
	got, err := r.Run(t.Context(), Run{
		Steps: s.steps, Old: s.tree(t, "old"), New: s.tree(t, "new"), Back: true, Lenient: true, Resume: true, Name: "x",
		Stage: s.stage, Made: s.made,
	})
	require.NoError(t, err)
	require.Contains(t, got.Left, stageStart[1:]+"x"+asideEnd)
	require.NoError(t, r.Close())
	require.NoDirExists(t, stage)
	require.Contains(t, namesOf(t, s.dir+"/d/"+stageStart[1:]+"x"+asideEnd), slotOf('m', 0))
}

func namesOf(t *testing.T, dir string) (names []string) {
	all, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}
