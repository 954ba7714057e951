package textmerge

import (
	"context"
	"math"
)

// Bounds of the search, as git has them.
const (
	maxOccurrences = 1024 // a line that occurs as often is common in any text
	window         = 100  // lines before and after a common line that decide whether it is set aside
	commonShare    = 4    // see discards
	leastCost      = 256  // of a search that is given up
	goodSnake      = 20   // so many matching lines in a row are worth following
	snakeFactor    = 4
)

// checkEvery is after how many steps a search looks whether it is cancelled.
const checkEvery = 64

// file is one of two texts that are compared, with what is known of its lines.
type file struct {
	class   []int
	changed []bool
	kept    []int // the lines that are compared, in order; the others are changed, or match at the ends
}

func newFile(t text) *file { return &file{class: t.class, changed: make([]bool, len(t.class))} }

// is reports whether a line is changed; there are none outside.
func (f *file) is(i int) bool { return i >= 0 && i < len(f.changed) && f.changed[i] }

// roughRoot is a power of two near the square root.
func roughRoot(n int) int {
	r := 1
	for ; n > 0; n >>= 2 {
		r <<= 1
	}
	return r
}

// compare marks the lines that differ. When ctx is done, what it has marked is of no use.
func compare(ctx context.Context, a, b *file) {
	begin := 0
	least := min(len(a.class), len(b.class))
	for begin < least && a.class[begin] == b.class[begin] {
		begin++
	}
	end := 0
	for end < least-begin && a.class[len(a.class)-1-end] == b.class[len(b.class)-1-end] {
		end++
	}
	a.discard(b, begin, end)
	b.discard(a, begin, end)
	s := &search{ctx: ctx, a: a, b: b}
	diagonals := len(a.kept) + len(b.kept) + 3
	s.origin = len(b.kept) + 1
	s.forward, s.backward = make([]int, diagonals+1), make([]int, diagonals+1)
	s.maxCost = max(roughRoot(diagonals), leastCost)
	s.run(0, len(a.kept), 0, len(b.kept), false)
}

// Occurrences of a line in the other text.
const (
	none = iota
	some
	many
)

// discard sets lines aside between the first begin and the last end lines: what has no match, and what has many matches
// among lines that have none.
func (f *file) discard(other *file, begin, end int) {
	count := map[int]int{}
	for _, c := range other.class {
		count[c]++
	}
	limit := min(roughRoot(len(f.class)), maxOccurrences)
	how := make([]byte, len(f.class))
	last := len(f.class) - end - 1
	for i := begin; i <= last; i++ {
		switch n := count[f.class[i]]; {
		case n == 0:
			how[i] = none
		case n >= limit:
			how[i] = many
		default:
			how[i] = some
		}
	}
	for i := begin; i <= last; i++ {
		if how[i] == some || how[i] == many && !discards(how, i, begin, last) {
			f.kept = append(f.kept, i)
		} else {
			f.changed[i] = true
		}
	}
}

// discards reports whether a line with many matches lies in a run of lines most of which have none.
func discards(how []byte, i, begin, last int) bool {
	begin, last = max(begin, i-window), min(last, i+window)
	unmatched, common := 0, 2 // the line itself counts on both sides
	for _, step := range []int{-1, 1} {
		found := 0
		for j := i + step; j >= begin && j <= last && how[j] != some; j += step {
			if how[j] == none {
				found++
			} else {
				common++
			}
		}
		if found == 0 {
			return false
		}
		unmatched += found
	}
	return common*commonShare < common+unmatched
}

// search looks for the shortest way from the kept lines of one text to those of another. A diagonal d has the places
// where line i of a meets line i-d of b.
type search struct {
	ctx               context.Context // looked at now and then; its end leaves the search undone
	a, b              *file
	forward, backward []int // by diagonal: how far a way from the begin, or from the end, has come
	origin            int   // index of diagonal 0
	maxCost           int
}

func (s *search) same(i, j int) bool { return s.a.class[s.a.kept[i]] == s.b.class[s.b.kept[j]] }

// run marks what differs between lines [i, iEnd) and [j, jEnd); minimal says that no bound ends the search.
func (s *search) run(i, iEnd, j, jEnd int, minimal bool) {
	for i < iEnd && j < jEnd && s.same(i, j) {
		i, j = i+1, j+1
	}
	for i < iEnd && j < jEnd && s.same(iEnd-1, jEnd-1) {
		iEnd, jEnd = iEnd-1, jEnd-1
	}
	switch {
	case i == iEnd:
		for ; j < jEnd; j++ {
			s.b.changed[s.b.kept[j]] = true
		}
	case j == jEnd:
		for ; i < iEnd; i++ {
			s.a.changed[s.a.kept[i]] = true
		}
	default:
		if s.ctx.Err() != nil {
			return
		}
		at := s.split(box{i, iEnd, j, jEnd}, minimal)
		s.run(i, at.i, j, at.j, at.minimalBefore)
		s.run(at.i, iEnd, at.j, jEnd, at.minimalAfter)
	}
}

// box is a range of lines of both texts.
type box struct{ i, iEnd, j, jEnd int }

// place is where a search is split in two.
type place struct {
	i, j                        int
	minimalBefore, minimalAfter bool
}

// reach is the range of diagonals that ways have come to.
type reach struct{ mid, min, max int }

// widen lets the ways go one further to both sides, where there is room, and marks what is beyond.
func (r *reach) widen(ways []int, origin, least, most, beyond int) {
	if r.min > least {
		r.min--
		ways[origin+r.min-1] = beyond
	} else {
		r.min++
	}
	if r.max < most {
		r.max++
		ways[origin+r.max+1] = beyond
	} else {
		r.max--
	}
}

func (r *reach) has(d int) bool { return r.min <= d && d <= r.max }

// split finds a place on a shortest way, from both ends at once, or if that takes too long on a good way.
func (s *search) split(x box, minimal bool) place {
	least, most := x.i-x.jEnd, x.iEnd-x.j
	f := reach{x.i - x.j, x.i - x.j, x.i - x.j}
	b := reach{x.iEnd - x.jEnd, x.iEnd - x.jEnd, x.iEnd - x.jEnd}
	odd := (f.mid-b.mid)&1 != 0
	s.forward[s.origin+f.mid], s.backward[s.origin+b.mid] = x.i, x.iEnd
	for cost := 1; ; cost++ {
		snake := false
		f.widen(s.forward, s.origin, least, most, -1)
		for d := f.max; d >= f.min; d -= 2 {
			k := s.origin + d
			i := max(s.forward[k-1]+1, s.forward[k+1])
			from := i
			for i < x.iEnd && i-d < x.jEnd && s.same(i, i-d) {
				i++
			}
			snake = snake || i-from > goodSnake
			s.forward[k] = i
			if odd && b.has(d) && s.backward[k] <= i {
				return place{i, i - d, true, true}
			}
		}
		b.widen(s.backward, s.origin, least, most, math.MaxInt)
		for d := b.max; d >= b.min; d -= 2 {
			k := s.origin + d
			i := min(s.backward[k-1], s.backward[k+1]-1)
			from := i
			for i > x.i && i-d > x.j && s.same(i-1, i-d-1) {
				i--
			}
			snake = snake || from-i > goodSnake
			s.backward[k] = i
			if !odd && f.has(d) && i <= s.forward[k] {
				return place{i, i - d, true, true}
			}
		}
		if minimal {
			if cost%checkEvery == 0 && s.ctx.Err() != nil {
				return s.furthest(x, f, b)
			}
			continue
		}
		if snake && cost > leastCost {
			if at, ok := s.interesting(x, f, b, cost); ok {
				return at
			}
		}
		if cost >= s.maxCost {
			return s.furthest(x, f, b)
		}
	}
}

// interesting finds a way that has come far along many matching lines.
func (s *search) interesting(x box, f, b reach, cost int) (place, bool) {
	best, at := 0, place{minimalBefore: true}
	for d := f.max; d >= f.min; d -= 2 {
		i := s.forward[s.origin+d]
		j := i - d
		v := (i - x.i) + (j - x.j) - distance(d, f.mid)
		if v > snakeFactor*cost && v > best && x.i+goodSnake <= i && i < x.iEnd && x.j+goodSnake <= j && j < x.jEnd &&
			s.snake(i-goodSnake, j-goodSnake) {
			best, at.i, at.j = v, i, j
		}
	}
	if best > 0 {
		return at, true
	}
	at = place{minimalAfter: true}
	for d := b.max; d >= b.min; d -= 2 {
		i := s.backward[s.origin+d]
		j := i - d
		v := (x.iEnd - i) + (x.jEnd - j) - distance(d, b.mid)
		if v > snakeFactor*cost && v > best && x.i < i && i <= x.iEnd-goodSnake && x.j < j && j <= x.jEnd-goodSnake &&
			s.snake(i, j) {
			best, at.i, at.j = v, i, j
		}
	}
	return at, best > 0
}

func distance(a, b int) int { return max(a-b, b-a) }

// snake reports whether many lines in a row match.
func (s *search) snake(i, j int) bool {
	for k := range goodSnake {
		if !s.same(i+k, j+k) {
			return false
		}
	}
	return true
}

// furthest is where the way has come that has come furthest.
func (s *search) furthest(x box, f, b reach) place {
	forth, forthI := -1, -1
	for d := f.max; d >= f.min; d -= 2 {
		i := min(s.forward[s.origin+d], x.iEnd)
		j := i - d
		if x.jEnd < j {
			i, j = x.jEnd+d, x.jEnd
		}
		if forth < i+j {
			forth, forthI = i+j, i
		}
	}
	back, backI := math.MaxInt, math.MaxInt
	for d := b.max; d >= b.min; d -= 2 {
		i := max(s.backward[s.origin+d], x.i)
		j := i - d
		if j < x.j {
			i, j = x.j+d, x.j
		}
		if i+j < back {
			back, backI = i+j, i
		}
	}
	if x.iEnd+x.jEnd-back < forth-(x.i+x.j) {
		return place{i: forthI, j: forth - forthI, minimalBefore: true}
	}
	return place{i: backI, j: back - backI, minimalAfter: true}
}
