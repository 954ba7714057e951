package readset

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/internal/testseed"
)

func path(p string) []string {
	if p == "" {
		return nil
	}
	return strings.Split(p, "/")
}

// shown is the list of reads, for a comparison.
func shown(s *Set) string {
	var b strings.Builder
	for _, r := range s.Reads() {
		fmt.Fprintf(&b, "%s=%d", r.Path, r.Kinds)
		if r.Whole {
			b.WriteString("+")
		}
		b.WriteString(" ")
	}
	return strings.TrimSpace(b.String())
}

// rename is what the overlay does for one.
func rename(s *Set, from, to string) {
	e := s.At(path(from))
	s.Put(path(to), e)
	s.Put(path(from), Made())
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(s *Set)
		want string
	}{
		{"reads", func(s *Set) {
			s.Note(path("a/b"), Content)
			s.Note(path("a"), Listing)
			s.Note(path("a/c"), Missing)
			s.Note(nil, Listing)
		}, "=2 a=2 a/b=1 a/c=4"},
		{"renamed", func(s *Set) {
			rename(s, "a/b", "x")
			s.Note(path("x"), Content)
			s.Note(path("a/b"), Missing) // as the programs know
		}, "a/b=1"},
		{"in a renamed directory", func(s *Set) {
			rename(s, "a", "z/y")
			s.Note(path("z/y/b"), Content)
		}, "a/b=1"},
		{"removed", func(s *Set) {
			s.Note(path("a"), Content)
			s.Put(path("a"), Made())
			s.Note(path("a"), Content|Attributes)
		}, "a=1"},
		{"open without a name", func(s *Set) {
			e := s.At(path("a"))
			s.Put(path("a"), Made())
			s.NoteEntity(e, Content)
		}, "a=1"},
		{"replaced by a file of their own", func(s *Set) {
			s.Note(path("a.tmp"), Missing)
			s.Make(path("a.tmp"), false)
			rename(s, "a.tmp", "a")
			s.Note(path("a"), Content)
		}, "a.tmp=4"},
		{"cut off", func(s *Set) {
			s.Replaced(path("a"))
			s.Note(path("a"), Content)
			s.Note(path("a"), Attributes)
		}, "a=8"},
		{"in a directory of their own", func(s *Set) {
			s.Make(path("d"), true)
			s.Note(path("d/x"), Content)
			s.Note(path("d"), Listing)
			rename(s, "b", "d/e/b")
			s.Note(path("d/e/b"), Content)
			s.Note(path("d/e/c"), Content)
			rename(s, "d", "f")
			s.Note(path("f/e/b"), Attributes)
		}, "b=9"},
		{"further name", func(s *Set) {
			s.Put(path("l"), s.At(path("a")))
			s.Note(path("l"), Content)
		}, "a=1"},
		{"restarted", func(s *Set) {
			rename(s, "a", "x")
			s.Put(path("b"), Made())
			s.Next([]Move{{"d/c", "d2/c2"}, {"d", "d2"}}, true)
			s.Restart()
			s.Note(path("a"), Content)
			s.Note(path("b"), Content)
			s.Note(path("d2/c2"), Content)
			s.Note(path("d2/e"), Content)
		}, "a=1 b=1 d/c=1 d/e=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := New(100)
			c.do(s)
			require.Equal(t, c.want, shown(s))
			require.Empty(t, s.Gap())
			again, err := Decode(s.Encode(), 100)
			require.NoError(t, err)
			require.Equal(t, c.want, shown(again))
		})
	}
}

func TestRestartInTheDark(t *testing.T) {
	s := New(100)
	s.Note(path("a"), Content)
	s.Next(nil, true)
	s.Restart()
	require.Empty(t, s.Gap())
	require.EqualValues(t, 1, s.Epoch())
	s.Restart()
	require.Contains(t, s.Gap(), "set back")
	again, err := Decode(s.Encode(), 100)
	require.NoError(t, err)
	require.Equal(t, s.Gap(), again.Gap())
}

func TestFiles(t *testing.T) {
	dir := t.TempDir() + "/reads"
	require.NoError(t, Create(dir, "a"))
	s, err := Begin(dir, "a")
	require.NoError(t, err)
	s.Note(path("x"), Content)
	killed, err := Load(dir, "a")
	require.NoError(t, err)
	require.Contains(t, killed.Gap(), "ended before")
	require.NoError(t, End(dir, "a", s))
	s, err = Load(dir, "a")
	require.NoError(t, err)
	require.Empty(t, s.Gap())
	require.Equal(t, "x=1", shown(s))
	_, err = Begin(dir, "a")
	require.NoError(t, err)
	s, err = Begin(dir, "a") // after a crash
	require.NoError(t, err)
	require.Contains(t, s.Gap(), "ended before")
	require.Equal(t, "x=1", shown(s))
	require.NoError(t, End(dir, "a", s))
	s, err = Load(dir, "a")
	require.NoError(t, err)
	require.Contains(t, s.Gap(), "ended before", "a gap stays")
	s, err = Begin(dir, "b")
	require.NoError(t, err)
	require.Contains(t, s.Gap(), "missing")
	require.NoError(t, End(dir, "b", s))
	require.NoError(t, os.WriteFile(dir+"/b", []byte("x"), 0o600))
	s, err = Load(dir, "b")
	require.NoError(t, err)
	require.Contains(t, s.Gap(), "damaged")
	require.NoError(t, Sweep(dir, func(id string) bool { return id == "b" }))
	require.NoError(t, Remove(dir, "b"))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestDamaged(t *testing.T) {
	s := New(10)
	s.Note(path("a/b"), Content)
	b := s.Encode()
	for i := range b {
		bad := append([]byte{}, b...)
		bad[i] ^= 0x20
		_, err := Decode(bad, 10)
		require.ErrorIs(t, err, ErrDamaged)
		_, err = Decode(b[:i], 10)
		require.ErrorIs(t, err, ErrDamaged)
	}
}

// model is a naive set: where each thing of the base is, and what was read of it.
type model struct {
	at    map[string]string // path now to path in the base; "" for what programs made
	reads map[string]Kind
}

// base is the path in the base of what is at a path; false if programs made it.
func (m *model) base(p string) (string, bool) {
	if b, ok := m.at[p]; ok {
		return b, b != ""
	}
	i := strings.LastIndexByte(p, '/')
	if i < 0 {
		return p, true
	}
	b, ok := m.base(p[:i])
	return b + p[i:], ok
}

func (m *model) move(from, to string) {
	b, ok := m.base(from)
	if !ok {
		b = ""
	}
	next := map[string]string{}
	for p, x := range m.at {
		switch {
		case p == to || strings.HasPrefix(p, to+"/"), p == from:
		case strings.HasPrefix(p, from+"/"):
			next[to+p[len(from):]] = x
		default:
			next[p] = x
		}
	}
	next[to], next[from] = b, ""
	m.at = next
}

// TestRandom compares a set with the model, and one that is too small with that: it knows of everything that was read,
// perhaps as a part of something larger.
func TestRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.Of(t), 7))
	for range 300 {
		s, few := New(1<<20), New(8)
		m := model{at: map[string]string{}, reads: map[string]Kind{}}
		some := func() string {
			p := string(rune('a' + rng.IntN(4)))
			for rng.IntN(3) > 0 && len(p) < 7 {
				p += "/" + string(rune('a'+rng.IntN(4)))
			}
			return p
		}
		for range 60 {
			switch rng.IntN(4) {
			case 0:
				from, to := some(), some()
				if from == to || strings.HasPrefix(to, from+"/") || strings.HasPrefix(from, to+"/") {
					continue
				}
				m.move(from, to)
				rename(s, from, to)
				rename(few, from, to)
			case 1:
				if rng.IntN(8) > 0 {
					continue
				}
				b, err := Decode(few.Encode(), 8)
				require.NoError(t, err)
				few = b
				b, err = Decode(s.Encode(), 1<<20)
				require.NoError(t, err)
				s = b
			default:
				p, k := some(), Kind(1)<<rng.IntN(4)
				if b, ok := m.base(p); ok {
					m.reads[b] |= k
				}
				s.Note(path(p), k)
				few.Note(path(p), k)
			}
		}
		got := map[string]Kind{}
		for _, r := range s.Reads() {
			require.False(t, r.Whole)
			got[r.Path] = r.Kinds
		}
		require.Equal(t, m.reads, got)
		require.LessOrEqual(t, len(few.all), 8)
		coarse := NewIndex(few.Reads())
		for p, k := range m.reads {
			have, _ := coarse.Of(p)
			require.Equal(t, k, have&k, "%s in %s", p, shown(few))
		}
	}
}

func TestIndex(t *testing.T) {
	s := New(4)
	for _, p := range []string{"d/a", "d/b", "d/c", "e"} {
		s.Note(path(p), Content)
	}
	s.Note(path("d.x"), Missing)
	x := NewIndex(s.Reads())
	k, coarse := x.Of("d/zzz")
	require.Equal(t, Content, k)
	require.True(t, coarse)
	s = New(100)
	s.Note(path("d-x"), Content)
	s.Note(path("d/a/b"), Content)
	x = NewIndex(s.Reads())
	k, coarse = x.Of("d/a")
	require.Zero(t, k)
	require.False(t, coarse)
	r, ok := x.Below("d")
	require.True(t, ok)
	require.Equal(t, "d/a/b", r.Path)
	_, ok = x.Below("d-")
	require.False(t, ok)
	_, ok = x.Below("d/a/b")
	require.False(t, ok)
}

func BenchmarkNote(b *testing.B) {
	s := New(MaxEntities)
	names := make([][]string, 50_000)
	for i := range names {
		names[i] = path(fmt.Sprintf("src/pkg%d/internal/dir%d/file%d.go", i%50, i%1000, i))
	}
	i := 0
	for b.Loop() {
		s.Note(names[i%len(names)], Content)
		i++
	}
}
