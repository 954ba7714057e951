package threeway_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/internal/testseed"
	"snapfs/layers"
	"snapfs/sandbox/internal/threeway"
)

// entity is a file or a directory of a world. What worlds that stem from one another have in common has the same number.
type entity struct {
	up   int // the directory that it is in; 0 is the root
	name string
	dir  bool
	data string
	mode uint32
}

// world is a tree by numbers.
type world map[int]entity

func (w world) path(id int) string {
	if id == 0 {
		return ""
	}
	if up := w.path(w[id].up); up != "" {
		return up + "/" + w[id].name
	}
	return w[id].name
}

// tree is a world as a plan looks at it.
type tree map[string]file

func (w world) tree() tree {
	t := tree{"": file{mode: unix.S_IFDIR | 0o755}}
	for id, e := range w {
		typ := uint32(unix.S_IFREG)
		if e.dir {
			typ = unix.S_IFDIR
		}
		t[w.path(id)] = file{e.mode | typ, e.data}
	}
	return t
}

func (t tree) Lstat(path string) (threeway.File, error) {
	if f, ok := t[path]; ok {
		return f, nil
	}
	return nil, nil
}

func (t tree) List(path string) ([]string, error) {
	var names []string
	for at := range t {
		if dir, name, _ := cutLast(at); at != "" && dir == path {
			names = append(names, name)
		}
	}
	return names, nil
}

// file is an entity in a tree.
type file struct {
	mode uint32
	data string
}

func (f file) Stat() layers.Attr {
	return layers.Attr{Mode: f.mode, Size: uint64(len(f.data)), Nlink: 1}
}
func (f file) Target() (string, error)            { return "", nil }
func (f file) Read() ([]byte, error)              { return []byte(f.data), nil }
func (f file) Xattrs() (map[string]string, error) { return nil, nil }
func (f file) CopyTo(_ context.Context, w io.Writer) error {
	_, err := io.WriteString(w, f.data)
	return err
}

// history makes worlds.
type history struct {
	*rand.Rand
	next int
}

// edited is a world after random changes. What is new gets one of few names, so that both sides choose the same ones.
func (h *history) edited(w world, n int) world {
	out := maps.Clone(w)
	for range n {
		ids := slices.Sorted(maps.Keys(out))
		dirs := []int{0}
		for _, id := range ids {
			if out[id].dir {
				dirs = append(dirs, id)
			}
		}
		free := func(up int, name string) bool {
			return !slices.ContainsFunc(ids, func(id int) bool { return out[id].up == up && out[id].name == name })
		}
		name, up := fmt.Sprint("n", h.IntN(4)), dirs[h.IntN(len(dirs))]
		data := fmt.Sprint("\x00", h.IntN(3))
		if len(ids) == 0 || h.IntN(4) == 0 {
			if free(up, name) {
				h.next++
				out[h.next] = entity{up, name, h.IntN(3) == 0, "", 0o644}
				if e := out[h.next]; !e.dir {
					e.data = data
					out[h.next] = e
				}
			}
			continue
		}
		id := ids[h.IntN(len(ids))]
		e := out[id]
		switch h.IntN(4) {
		case 0:
			e.mode = []uint32{0o600, 0o644, 0o755}[h.IntN(3)]
		case 1:
			if !e.dir {
				e.data = data
			}
		case 2:
			inside := false
			for at := up; at != 0; at = out[at].up {
				inside = inside || at == id
			}
			if !inside && free(up, name) {
				e.up, e.name = up, name
			}
		case 3:
			h.remove(out, id)
			continue
		}
		out[id] = e
	}
	return out
}

// side is edited, without new files where deleted ones were: layers.Compare takes those for the same file, changed.
func (h *history) side(base world, n int) world {
again:
	out := h.edited(base, n)
	for id, e := range out {
		for old, was := range base {
			_, stays := out[old]
			if _, there := base[id]; !there && !stays && was.up == e.up && was.name == e.name {
				goto again
			}
		}
	}
	return out
}

func (h *history) remove(w world, id int) {
	for other, e := range w {
		if e.up == id && other != id {
			h.remove(w, other)
		}
	}
	delete(w, id)
}

// changes is how one world became another, as layers.Compare tells it.
func changes(old, now world) []layers.Change {
	var all []layers.Change
	over := map[string]bool{} // files of the old world over which another was moved
	add := func(k layers.Kind, path, was string) {
		all = append(all, layers.Change{Kind: k, Path: path, OldPath: was})
	}
	for id, e := range now {
		was, there := old[id]
		switch {
		case !there:
			add(layers.Added, now.path(id), "")
			continue
		case was.up != e.up || was.name != e.name:
			add(layers.Renamed, now.path(id), old.path(id))
			if _, ok := old[e.up]; !e.dir && (ok || e.up == 0) {
				over[fmt.Sprint(e.up, "/", e.name)] = true
			}
		}
		if was.mode != e.mode || was.data != e.data {
			add(layers.Modified, now.path(id), "")
		}
	}
	for id, e := range old {
		if _, there := now[id]; !there && (e.dir || !over[fmt.Sprint(e.up, "/", e.name)]) {
			add(layers.Deleted, old.path(id), "")
		}
	}
	slices.SortFunc(all, func(a, b layers.Change) int { return strings.Compare(a.Path, b.Path) })
	return all
}

// merged is the naive merge of worlds; false if something is in conflict.
func merged(base, from, target world) (world, bool) {
	out := world{}
	ok := true
	united := map[int]int{} // new directories of from that are those of the target, too
	place := func(e entity) entity {
		if id, is := united[e.up]; is {
			e.up = id
		}
		return e
	}
	pick := func(was, f, t any) any {
		switch {
		case f == t, t == was:
			return f
		case f == was:
			return t
		}
		ok = false
		return t
	}
	doomed := world{} // directories that one side has deleted, as they would be
	for id, was := range base {
		f, inF := from[id]
		t, inT := target[id]
		switch {
		case inF && inT:
			e := was
			e.up, e.name = t.up, t.name
			if p := pick([2]any{was.up, was.name}, [2]any{f.up, f.name}, [2]any{t.up, t.name}).([2]any); true {
				e.up, e.name = p[0].(int), p[1].(string)
			}
			e.mode = pick(was.mode, f.mode, t.mode).(uint32)
			e.data = pick(was.data, f.data, t.data).(string)
			out[id] = e
		case inF && was.dir:
			if f.up != was.up || f.name != was.name {
				ok = false
			}
			doomed[id] = f
		case inF:
			ok = ok && f == was
		case inT && was.dir:
			doomed[id] = t
		case inT:
			ok = ok && t == was
		}
	}
	for id, t := range target {
		if _, old := base[id]; !old {
			out[id] = t
		}
	}
	taken := func(up int, name string) (int, bool) {
		for id, e := range out {
			if e.up == up && e.name == name {
				return id, true
			}
		}
		return 0, false
	}
	fresh := slices.Sorted(maps.Keys(from))
	slices.SortStableFunc(fresh, func(a, b int) int { return strings.Count(from.path(a), "/") - strings.Count(from.path(b), "/") })
	for _, id := range fresh {
		if _, old := base[id]; old {
			continue
		}
		e := place(from[id])
		for other, d := range doomed { // the target has moved it to where from has a new one
			if _, theirs := from[other]; !theirs && e.dir && d.up == e.up && d.name == e.name && d.mode == e.mode {
				out[other] = d
			}
		}
		if other, met := taken(e.up, e.name); met {
			_, old := base[other]
			_, theirs := from[other]
			switch o := out[other]; {
			case old && theirs:
			case o.dir && e.dir && o.mode == e.mode:
				united[id] = other
				continue
			case !o.dir && !e.dir && o.mode == e.mode && o.data == e.data:
				continue
			}
			ok = false
		}
		out[id] = e
	}
	for id, e := range out {
		out[id] = place(e)
	}
	for again := true; again; { // a directory is needed for what is in it
		again = false
		for _, e := range out {
			if d, gone := doomed[e.up]; gone {
				if _, there := out[e.up]; !there {
					out[e.up] = place(d)
					again = true
					break
				}
			}
		}
	}
	seen := map[string]bool{}
	for id, e := range out {
		at := fmt.Sprint(e.up, "/", e.name)
		ok = ok && !seen[at]
		seen[at] = true
		steps := 0
		for up := id; up != 0 && ok; up = out[up].up {
			if steps++; steps > len(out) {
				ok = false
			}
		}
	}
	return out, ok
}

// carryOut does to a tree what a plan says, as simply as can be.
func carryOut(t *testing.T, p *threeway.Plan, target tree) tree {
	t.Helper()
	out := maps.Clone(target)
	staged := map[string]tree{}
	has := func(t tree, dir string) bool {
		names, _ := t.List(dir)
		return len(names) > 0
	}
	for _, x := range p.Takes {
		if _, there := out[x.Path]; !there {
			t.Fatalf("%s is taken away, and is not there", x.Path)
		}
		if x.Moved {
			part := tree{}
			for path, f := range out {
				if path == x.Path || strings.HasPrefix(path, x.Path+"/") {
					part[strings.TrimPrefix(path, x.Path)] = f
					delete(out, path)
				}
			}
			staged[x.Path] = part
			continue
		}
		if x.Dir && has(out, x.Path) {
			t.Fatalf("%s is taken away, and not empty", x.Path)
		}
		delete(out, x.Path)
	}
	for _, x := range p.Puts {
		dir, _, _ := cutLast(x.Path)
		if _, there := out[x.Path]; there || out[dir].mode&unix.S_IFMT != unix.S_IFDIR {
			t.Fatalf("%s cannot be put: %v", x.Path, there)
		}
		if x.New != nil {
			out[x.Path] = x.New.(file)
			continue
		}
		for rest, f := range staged[x.Old] {
			out[x.Path+rest] = f
		}
	}
	for _, x := range p.Sets {
		f, there := out[x.Path]
		if !there {
			t.Fatalf("%s is changed, and is not there", x.Path)
		}
		if x.Mode != nil {
			f.mode = f.mode&unix.S_IFMT | *x.Mode
		}
		if x.Content {
			f.data = x.From.(file).data
		}
		out[x.Path] = f
	}
	return out
}

func cutLast(path string) (dir, name string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(0, i)], path[i+1:], i >= 0
}

// TestModel plans random merges and compares the results with a naive one that knows what is what by number.
func TestModel(t *testing.T) {
	rounds := 2000
	if os.Getenv("SNAPFS_LONG") != "" {
		rounds = 100000
	}
	h := &history{Rand: rand.New(rand.NewPCG(testseed.Of(t), 2))}
	clean := 0
	for round := range rounds {
		h.next = 0
		base := h.edited(world{}, 12)
		from, target := h.side(base, 1+h.IntN(6)), h.side(base, h.IntN(6))
		in := threeway.Input{
			Base: base.tree(), From: from.tree(), Target: target.tree(),
			FromChanges: changes(base, from), TargetChanges: changes(base, target),
		}
		p, err := threeway.Make(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		want, ok := merged(base, from, target)
		describe := func() string {
			return fmt.Sprintf("round %d\nbase %v\nfrom %v\ntarget %v\nchanges %+v\nof the target %+v\nconflicts %v\nplan %+v",
				round, in.Base, in.From, in.Target, in.FromChanges, in.TargetChanges, p.Conflicts, *p)
		}
		if ok != (len(p.Conflicts) == 0) {
			t.Fatalf("without conflicts: want %v\n%s", ok, describe())
		}
		if !ok {
			continue
		}
		clean++
		if got := carryOut(t, p, target.tree()); !maps.Equal(got, want.tree()) {
			t.Fatalf("got  %v\nwant %v\n%s", got, want.tree(), describe())
		}
	}
	if clean < rounds/10 || clean == rounds {
		t.Errorf("%d of %d merges had no conflict", clean, rounds)
	}
}
