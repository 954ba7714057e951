package chunkstore

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/pack"
	"snapfs/chunkstore/internal/sample"
	"snapfs/internal/testseed"
)

// turns simulates the work of an agent: in each turn it edits sources, and sometimes builds a program, installs or
// removes packages, and writes a log and a database. Each turn is stored as one manifest.
type turns struct {
	s     *Store
	r     *rand.Rand
	files map[string]*turnFile
	words [][]byte
	kept  []ID       // of the turns, oldest first; deleted ones are 0
	trees []turnTree // of all turns
	fresh int        // names of installed packages
}

// text is made of few words. It is faster than the function text.
func (w *turns) text(n int) []byte {
	var b []byte
	for len(b) < n {
		b = append(append(b, w.words[w.r.IntN(len(w.words))]...), " \n"[w.r.IntN(2)])
	}
	return b[:n]
}

// turnTree is what a turn stored.
type turnTree struct {
	parts []turnPart
}

type turnPart struct {
	name  string
	at    Range
	bytes []byte
}

func (tr turnTree) data() []byte {
	var all []byte
	for _, p := range tr.parts {
		all = append(all, p.bytes...)
	}
	return all
}

type turnFile struct {
	data    []byte
	at      Range // in the newest manifest; none if Manifest is 0
	changed bool
}

func newTurns(s *Store, r *rand.Rand) *turns {
	w := &turns{s: s, r: r, files: map[string]*turnFile{}, words: bytes.Fields(text(r, 4000))}
	for i := range 20 {
		w.set(fmt.Sprintf("src/%d.go", i), w.text(1000+r.IntN(20_000)))
	}
	w.set("bin/prog", append(w.text(50<<10), noise(r, 100<<10)...))
	w.set("db.sqlite", append(w.text(60<<10), noise(r, 40<<10)...))
	w.set("log", nil)
	return w
}

func (w *turns) set(name string, data []byte) {
	f := w.files[name]
	if f == nil {
		f = &turnFile{}
		w.files[name] = f
	}
	f.data, f.changed = data, true
}

// turn changes files and stores the tree.
func (w *turns) turn(t *testing.T) {
	r := w.r
	for range 1 + r.IntN(3) {
		name := fmt.Sprintf("src/%d.go", r.IntN(20))
		next := bytes.Clone(w.files[name].data)
		at := r.IntN(len(next))
		w.set(name, slices.Concat(next[:at], w.text(20+r.IntN(600)), next[min(len(next), at+r.IntN(500)):]))
	}
	w.set("log", append(bytes.Clone(w.files["log"].data), w.text(500+r.IntN(1000))...))
	if r.IntN(3) == 0 { // a build
		next := bytes.Clone(w.files["bin/prog"].data)
		for range 4 {
			n := 2000 + r.IntN(10_000)
			copy(next[r.IntN(len(next)-n):], noise(r, n))
		}
		w.set("bin/prog", next)
	}
	if r.IntN(2) == 0 { // a database
		next := bytes.Clone(w.files["db.sqlite"].data)
		for range 5 {
			copy(next[r.IntN(len(next)/4096)*4096:], w.text(4096))
		}
		w.set("db.sqlite", next)
	}
	if r.IntN(12) == 0 { // an install, often of other versions
		for name := range w.files {
			if len(name) > 4 && name[:4] == "pkg/" && r.IntN(2) == 0 {
				delete(w.files, name)
			}
		}
		for range 15 {
			w.set(fmt.Sprintf("pkg/%d/index.js", w.fresh), w.text(300+r.IntN(9000)))
			w.fresh++
		}
	}
	w.kept = append(w.kept, w.store(t))
}

// store stores the tree as one manifest. What did not change is copied from the one before.
func (w *turns) store(t *testing.T) ID {
	ctx := context.Background()
	in, err := w.s.NewIngest(ctx, IngestOptions{Kind: KindImage})
	require.NoError(t, err)
	defer in.Abort()
	if last := len(w.kept) - 1; last >= 0 {
		rd, err := w.s.OpenManifest(ctx, w.kept[last])
		require.NoError(t, err)
		defer func() { require.NoError(t, rd.Close()) }()
	}
	off := int64(0)
	var tree []turnPart
	for _, name := range slices.Sorted(maps.Keys(w.files)) {
		f := w.files[name]
		size := int64(len(f.data))
		h := Hint{Path: name, Size: size}
		if f.changed && f.at.Manifest != 0 {
			h.Prev = []Range{f.at}
		}
		require.NoError(t, in.Hint(h))
		if f.changed {
			_, err = in.Write(f.data)
		} else {
			err = in.Copy(f.at)
		}
		require.NoError(t, err)
		tree = append(tree, turnPart{name, Range{Off: off, Len: size}, f.data})
		off += size
		f.changed = false
	}
	m, err := in.Commit(ctx, nil)
	require.NoError(t, err)
	for _, p := range tree {
		p.at.Manifest = m.ID
		w.files[p.name].at = p.at
	}
	w.trees = append(w.trees, turnTree{tree})
	return m.ID
}

const turnsOfDay = 16

// prune keeps the last 8 turns, every fourth of the last two days, and one of each day before.
func (w *turns) prune(t *testing.T) {
	var gone []ID
	for i, id := range w.kept {
		age := len(w.kept) - 1 - i
		keep := age < 8 || age < 2*turnsOfDay && i%4 == 3 || i%turnsOfDay == turnsOfDay-1
		if id != 0 && !keep {
			gone = append(gone, id)
			w.kept[i] = 0
		}
	}
	deleteManifest(t, w.s, gone...)
}

// alone returns how many bytes of packs a fresh store of the kept turns needs.
func (w *turns) alone(t *testing.T) int64 {
	s := openTest(t, t.TempDir())
	at := map[string]Range{}
	for i, id := range w.kept {
		if id == 0 {
			continue
		}
		data := w.trees[i].data()
		var parts []part
		for _, f := range w.trees[i].parts {
			p := part{path: f.name, data: data[f.at.Off:][:f.at.Len]}
			if r := at[f.name]; r.Manifest != 0 {
				p.prev = []Range{r}
			}
			parts = append(parts, p)
		}
		m := put(t, s, nil, parts...)
		for _, f := range w.trees[i].parts {
			at[f.name] = Range{m.ID, f.at.Off, f.at.Len}
		}
	}
	_, err := s.Optimize(t.Context(), nil)
	require.NoError(t, err)
	st, err := s.Stats(t.Context())
	require.NoError(t, err)
	return st.Payload
}

// TestWear keeps house for some days, as an idle home does, and bounds what that writes and what it leaves.
func TestWear(t *testing.T) {
	unraced(t)
	s := openTest(t, t.TempDir())
	w := newTurns(s, rand.New(rand.NewPCG(testseed.Of(t), 1)))
	for day := range 7 {
		for range turnsOfDay {
			w.turn(t)
		}
		w.prune(t)
		gc, err := s.GC(t.Context(), nil)
		require.NoError(t, err)
		optimized, err := s.Optimize(t.Context(), nil)
		require.NoError(t, err)
		st, err := s.Stats(t.Context())
		require.NoError(t, err)
		held, stored, moved := s.packBytes(), s.stored.Load(), s.moved.Load()
		t.Logf("day %d: %d bytes, %d needed; %d were new, %d moved; today %d by GC, %d by Optimize",
			day, held, st.Payload, stored, moved, gc.Rewritten, optimized.Rewritten)
		require.LessOrEqual(t, held, st.Payload*115/100)
		require.LessOrEqual(t, stored+moved, 4*stored, "bytes written")
	}
	alone := w.alone(t)
	t.Logf("stored afresh: %d bytes", alone)
	require.LessOrEqual(t, s.packBytes(), alone*14/10)
	before := s.packBytes()
	_, err := s.Compact(t.Context(), nil)
	require.NoError(t, err)
	require.LessOrEqual(t, s.packBytes(), before)
	for i, id := range w.kept {
		if id != 0 {
			require.True(t, bytes.Equal(w.trees[i].data(), readAll(t, s, id)))
		}
	}
}

// TestRebuildHoles: a collection moves nothing where a hole will do, and holes do not disturb a rebuild.
func TestRebuildHoles(t *testing.T) {
	dir := filepath.Join(sample.Disk(t, 300, "0"), "store")
	s := openTest(t, dir)
	r := rand.New(rand.NewPCG(1, 9))
	var ids []ID
	var want [][]byte
	for range 12 {
		data := noise(r, 120<<10)
		ids = append(ids, put(t, s, nil, part{"f", data, nil}).ID)
		want = append(want, data)
	}
	before := s.packBytes()
	for i := 0; i < 12; i += 2 {
		deleteManifest(t, s, ids[i])
	}
	gc, err := s.GC(t.Context(), nil)
	require.NoError(t, err)
	require.NotEqual(t, s.packs.Occupied()[1], s.packs.Sizes()[1]-pack.HeaderSize, "there are holes")
	require.Zero(t, gc.Rewritten)
	require.Less(t, s.packBytes(), before*2/3)
	require.NoError(t, s.Close())
	res, err := RebuildIndex(t.Context(), dir, RebuildOptions{})
	require.NoError(t, err)
	require.Empty(t, res.Problems)
	require.Equal(t, int64(6), res.Manifests)
	s = openTest(t, dir)
	require.Less(t, s.packBytes(), before*2/3)
	for i := 1; i < 12; i += 2 {
		require.True(t, bytes.Equal(want[i], readAll(t, s, ids[i])))
	}

	// A copy that was written without holes gets them back.
	require.NoError(t, s.Close())
	paths, err := filepath.Glob(filepath.Join(dir, packsName, "*"+pack.Ext))
	require.NoError(t, err)
	for _, path := range paths {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.WriteFile(path, b, 0o600))
	}
	s = openTest(t, dir)
	require.Greater(t, s.packBytes(), before*3/4)
	_, err = s.GC(t.Context(), nil)
	require.NoError(t, err)
	require.Less(t, s.packBytes(), before*2/3)
}
