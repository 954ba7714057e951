package tarlayer

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/layers"
	"snapfs/sandbox/api"
)

// stack is a stack of layers that a test unpacks, the lowest first.
type stack struct {
	t      testing.TB
	dir    string
	lowers []*layers.Lower // topmost first
}

func newStack(t testing.TB) *stack {
	s := &stack{t: t, dir: t.TempDir()}
	t.Cleanup(func() {
		for _, l := range s.lowers {
			require.NoError(t, l.Close())
		}
	})
	return s
}

// unpack unpacks one more layer.
func (s *stack) unpack(data []byte, limits *Limits) error {
	s.t.Helper()
	n := len(s.lowers) + 1
	upper, work := filepath.Join(s.dir, fmt.Sprint(n)), filepath.Join(s.dir, fmt.Sprint("work", n))
	require.NoError(s.t, errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)))
	base := uint64(n) << 32
	o, err := layers.New(upper, work, nil, layers.Options{InoBase: base})
	require.NoError(s.t, err)
	opts := Options{Whiteouts: true, Limits: limits}
	if len(s.lowers) > 0 {
		opts.Below = func() (*layers.Tree, func(), error) { return layers.OpenTree(s.lowers) }
	}
	err = Unpack(context.Background(), bytes.NewReader(data), o, opts)
	own, _ := o.Nodes()
	require.NoError(s.t, o.Close())
	if err != nil {
		require.NoError(s.t, os.RemoveAll(upper))
		return err
	}
	require.Zero(s.t, own, "nodes that are still known")
	low, err := layers.OpenSealed(fmt.Sprint(n), upper, base)
	require.NoError(s.t, err)
	s.lowers = append([]*layers.Lower{low}, s.lowers...)
	return nil
}

// list is what the stack shows: one line for each name, but for the root.
func (s *stack) list() []string {
	s.t.Helper()
	t, done, err := layers.OpenTree(s.lowers)
	require.NoError(s.t, err)
	defer done()
	var out []string
	var dir func(path string)
	dir = func(path string) {
		names, err := t.List(path)
		require.NoError(s.t, err)
		for _, name := range names {
			at := join(path, name)
			f, err := t.Lstat(at)
			require.NoError(s.t, err)
			line := at
			switch f.Mode & unix.S_IFMT {
			case unix.S_IFDIR:
				line += "/"
			case unix.S_IFREG:
				text, err := f.Read()
				require.NoError(s.t, err)
				line += "=" + string(text)
			case unix.S_IFLNK:
				target, err := f.Target()
				require.NoError(s.t, err)
				line += "->" + target
			}
			if f.Mode&unix.S_IFMT != unix.S_IFDIR && f.Nlink > 1 {
				line += fmt.Sprint(" x", f.Nlink)
			}
			out = append(out, line)
			if f.Mode&unix.S_IFMT == unix.S_IFDIR {
				dir(at)
			}
		}
	}
	dir("")
	return out
}

// layer makes a tar file of words: NAME/ is a directory, NAME=TEXT a file, NAME->TARGET a symbolic link, NAME:FILE a hard
// link.
func layer(t testing.TB, words ...string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, word := range words {
		h := &tar.Header{Name: word, Typeflag: tar.TypeReg, Mode: 0o644, ModTime: time.Unix(1000, 5), Format: tar.FormatPAX}
		text := ""
		if name, target, ok := strings.Cut(word, "->"); ok {
			h.Name, h.Linkname, h.Typeflag = name, target, tar.TypeSymlink
		} else if name, value, ok := strings.Cut(word, "="); ok {
			h.Name, text, h.Size = name, value, int64(len(value))
		} else if name, to, ok := strings.Cut(word, ":"); ok {
			h.Name, h.Linkname, h.Typeflag = name, to, tar.TypeLink
		} else if strings.HasSuffix(word, "/") {
			h.Typeflag, h.Mode = tar.TypeDir, 0o750
		}
		require.NoError(t, w.WriteHeader(h))
		_, err := io.WriteString(w, text)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return buf.Bytes()
}

func TestUnpack(t *testing.T) {
	for _, c := range []struct {
		name   string
		layers [][]string
		want   []string
	}{
		{
			"the last of one name counts",
			[][]string{{"a=1", "a=2", "d/", "d/x=1", "d=file", "e=1", "e/", "e/x=2"}},
			[]string{"a=2", "d=file", "e/", "e/x=2"},
		},
		{"a link replaced leaves the other name", [][]string{{"a=1", "b:a", "a=2"}}, []string{"a=2", "b=1"}},
		{"links within a layer", [][]string{{"a=1", "d/b:a", "d/b:d/b"}}, []string{"a=1 x2", "d/", "d/b=1 x2"}},
		{"links to lower layers copy the file", [][]string{{"d/", "d/a=1"}, {"b:d/a"}}, []string{"b=1 x2", "d/", "d/a=1 x2"}},
		{"links to a symbolic link", [][]string{{"s->t", "l:s"}}, []string{"l->t x2", "s->t x2"}},
		{"whiteouts", [][]string{{"a=1", "d/", "d/x=1", "k=1"}, {".wh.a=", ".wh.d=", ".wh.never="}}, []string{"k=1"}},
		{"a whiteout in the lowest layer", [][]string{{".wh.a=", "b=1", ".wh..wh..opq="}}, []string{"b=1"}},
		{"a whiteout and a new directory", [][]string{{"d/", "d/old=1"}, {".wh.d=", "d/", "d/new=2"}}, []string{"d/", "d/new=2"}},
		{"a new directory and a whiteout", [][]string{{"d/", "d/old=1"}, {"d/", "d/new=2", ".wh.d="}}, []string{"d/", "d/new=2"}},
		{"a whiteout beside a new file", [][]string{{"f=1"}, {"f=2", ".wh.f="}}, []string{"f=2"}},
		{"opaque", [][]string{{"d/", "d/s/", "d/s/old=1"}, {"d/s/new=2", "d/.wh..wh..opq="}}, []string{"d/", "d/s/", "d/s/new=2"}},
		{"an opaque root", [][]string{{"a=1"}, {".wh..wh..opq=", "b=2"}}, []string{"b=2"}},
		{"a whiteout below an opaque directory", [][]string{{"d/a=1"}, {"d/.wh..wh..opq="}, {"d/b=1"}, {"d/.wh.b="}}, []string{"d/"}},
		{"notes of a union file system", [][]string{{".wh..wh.plnk/", ".wh..wh.aufs=x", "a=1"}}, []string{"a=1"}},
		{
			"names from the root, and with dots",
			[][]string{{"/a=1", "./b=2", "d/../c=3", "//e=4", "d/./f=5"}},
			[]string{"a=1", "b=2", "c=3", "d/", "d/f=5", "e=4"},
		},
		{
			"through links of the layer",
			[][]string{{"t/", "s->t", "s/a=1", "u->/t/v", "u/b=2", "t/up->../..", "t/up/c=3"}},
			[]string{"c=3", "s->t", "t/", "t/a=1", "t/up->../..", "t/v/", "t/v/b=2", "u->/t/v"},
		},
		{"links of lower layers are replaced", [][]string{{"t/", "s->t"}, {"s/a=1"}}, []string{"s/", "s/a=1", "t/"}},
		{"a file becomes a directory", [][]string{{"a=1"}, {"a/", "a/b=2"}}, []string{"a/", "a/b=2"}},
		{"a directory becomes a file", [][]string{{"a/", "a/b=2"}, {"a=1"}}, []string{"a=1"}},
		{"a deep tree is replaced", [][]string{{strings.Repeat("d/", 400) + "f=1", "d=1"}}, []string{"d=1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStack(t)
			for _, l := range c.layers {
				require.NoError(t, s.unpack(layer(t, l...), nil))
			}
			require.ElementsMatch(t, c.want, s.list())
		})
	}
}

func TestUnpackRefuses(t *testing.T) {
	for name, words := range map[string][]string{
		"a way out":             {"../a=1"},
		"a way out in between":  {"a/../../b=1"},
		"a hard link out":       {"a:../b"},
		"a link to nothing":     {"a:b"},
		"a link to a directory": {"d/", "a:d"},
		"links in a circle":     {"a->b", "b->a", "a/c=1"},
		"a file as parent":      {"a=1", "a/b=1"},
		"a whiteout of nothing": {".wh.=1"},
		"a whiteout upwards":    {"d/.wh...=1"},
		"a long name":           {strings.Repeat("n", 256) + "=1"},
		"a long path":           {strings.Repeat("abc/", 1024) + "f=1"},
		"a long way by links":   {strings.Repeat("a/", 2000), "s->" + strings.Repeat("a/", 2000), "s/" + strings.Repeat("b/", 1000)},
		"a root that is a file": {".=1"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, newStack(t).unpack(layer(t, words...), nil), api.ErrInvalid)
		})
	}
	cut := layer(t, "a=1", "b="+strings.Repeat("b", 2000))
	require.ErrorIs(t, newStack(t).unpack(cut[:2100], nil), api.ErrCorrupt)
	require.ErrorIs(t, newStack(t).unpack(layer(t, "a/b/c=1"), &Limits{Entries: 2, Bytes: 1000}), api.ErrInvalid)
	require.ErrorIs(t, newStack(t).unpack(layer(t, "a=12345"), &Limits{Entries: 2, Bytes: 4}), api.ErrInvalid)
}

// TestImplicit finds what directories get that a layer does not list.
func TestImplicit(t *testing.T) {
	s := newStack(t)
	require.NoError(t, s.unpack(layer(t, "d/", "d/e/"), nil))
	require.NoError(t, s.unpack(layer(t, "d/e/f=1", "new/f=1"), nil))
	tree, done, err := layers.OpenTree(s.lowers)
	require.NoError(t, err)
	defer done()
	for path, mode := range map[string]uint32{"d": 0o750, "d/e": 0o750, "new": 0o755} {
		f, err := tree.Lstat(path)
		require.NoError(t, err)
		require.Equal(t, unix.S_IFDIR|mode, f.Mode, path)
		require.Equal(t, layers.Time{Sec: 1000, Nsec: 5}, f.Mtime, path)
	}
}

// TestManyDirectories has more directories than are known at a time.
func TestManyDirectories(t *testing.T) {
	var words []string
	for round := range 2 {
		for i := range 3 * maxDirs {
			if round == 0 {
				words = append(words, fmt.Sprintf("d%d/", i))
			} else {
				words = append(words, fmt.Sprintf("d%d/f=%d", i, i))
			}
		}
	}
	s := newStack(t)
	require.NoError(t, s.unpack(layer(t, words...), nil))
	tree, done, err := layers.OpenTree(s.lowers)
	require.NoError(t, err)
	defer done()
	for i := range 3 * maxDirs {
		f, err := tree.Lstat(fmt.Sprintf("d%d", i))
		require.NoError(t, err)
		require.Equal(t, layers.Time{Sec: 1000, Nsec: 5}, f.Mtime, i)
	}
}

// TestWrite writes the layers of a stack, unpacks them again, and finds the same tree, and the same bytes.
func TestWrite(t *testing.T) {
	s := newStack(t)
	for _, words := range [][]string{
		{"d/", "d/a=1", "d/b=2", "e/", "e/x=1", "h=3", "g=4", "g2:g", "s->d"},
		{"d/.wh.a=", "d/c=3", "e/.wh..wh..opq=", "e/y=2", "h3:h", "s/", "s/in=1"},
		{".wh.d=", "d/", "d/new=1"},
	} {
		require.NoError(t, s.unpack(layer(t, words...), nil))
	}
	again := newStack(t)
	for i := len(s.lowers) - 1; i >= 0; i-- {
		var bytes [2]bytes.Buffer
		for j := range bytes {
			src, err := layers.Unfold(s.lowers[i:], 1)
			require.NoError(t, err)
			_, err = Write(context.Background(), &bytes[j], src, WriteOptions{Image: true})
			require.NoError(t, errors.Join(err, src.Close()))
		}
		require.Equal(t, bytes[0].Bytes(), bytes[1].Bytes())
		require.NoError(t, again.unpack(bytes[0].Bytes(), nil))
	}
	require.ElementsMatch(t, s.list(), again.list())
	merged := newStack(t)
	var all bytes.Buffer
	src, err := layers.Unfold(s.lowers, len(s.lowers))
	require.NoError(t, err)
	_, err = Write(context.Background(), &all, src, WriteOptions{Image: true})
	require.NoError(t, errors.Join(err, src.Close()))
	require.NotContains(t, all.String(), whiteoutPrefix)
	require.NoError(t, merged.unpack(all.Bytes(), nil))
	require.ElementsMatch(t, s.list(), merged.list())
}

// FuzzUnpack unpacks anything, over a layer with a bit of everything. Whatever it is ends with an error or a tree, and
// nothing comes to be outside of the upper.
func FuzzUnpack(f *testing.F) {
	f.Add(layer(f, "d/", "d/.wh.a=", "e/.wh..wh..opq=", "h3:h", "s/x=1", "a->b", "a/c=1", "t->../..", "t/u=1"))
	f.Add(layer(f, "d/../../x=1", "/y=1", ".wh.d=", "d/z=1", "d=2", "d/", "h:h2", "e:d"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newStack(t)
		require.NoError(t, s.unpack(layer(t, "d/", "d/a=1", "d/b=2", "e/", "e/x=1", "h=3", "h2:h", "s->d"), nil))
		err := s.unpack(data, &Limits{Entries: 1000, Bytes: 1 << 20})
		names, rerr := os.ReadDir(s.dir)
		require.NoError(t, rerr)
		for _, n := range names {
			require.Contains(t, []string{"1", "work1", "2", "work2"}, n.Name())
		}
		if err == nil {
			s.list()
		}
	})
}
