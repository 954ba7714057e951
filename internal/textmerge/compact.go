package textmerge

// group is a run of changed lines, which may be empty: there is one before each line that is not changed, and one at the
// end.
type group struct{ begin, end int }

func (f *file) firstGroup() group {
	g := group{}
	for f.is(g.end) {
		g.end++
	}
	return g
}

// next moves on to the next group; false if there is none.
func (f *file) next(g *group) bool {
	if g.end == len(f.class) {
		return false
	}
	g.begin = g.end + 1
	for g.end = g.begin; f.is(g.end); {
		g.end++
	}
	return true
}

// previous moves back to the group before.
func (f *file) previous(g *group) {
	g.end = g.begin - 1
	for g.begin = g.end; f.is(g.begin - 1); {
		g.begin--
	}
}

// down moves a group one line down, over a line that is the same as its first; it takes in what it then touches.
func (f *file) down(g *group) bool {
	if g.end == len(f.class) || f.class[g.begin] != f.class[g.end] {
		return false
	}
	f.changed[g.begin], f.changed[g.end] = false, true
	g.begin++
	for g.end++; f.is(g.end); {
		g.end++
	}
	return true
}

// up moves a group one line up, over a line that is the same as its last.
func (f *file) up(g *group) bool {
	if g.begin == 0 || f.class[g.begin-1] != f.class[g.end-1] {
		return false
	}
	g.begin--
	g.end--
	f.changed[g.begin], f.changed[g.end] = true, false
	for f.is(g.begin - 1) {
		g.begin--
	}
	return true
}

// compact moves groups that could as well stand elsewhere: where they touch they become one, then to the last place
// beside a change of the other text, or else as far down as they can.
func (f *file) compact(other *file) {
	g, o := f.firstGroup(), other.firstGroup()
	for {
		if g.begin != g.end {
			f.settle(&g, other, &o)
		}
		if !f.next(&g) {
			return
		}
		other.next(&o)
	}
}

// settle is compact for one group; o is the group of the other text that belongs to it.
func (f *file) settle(g *group, other *file, o *group) {
	first, beside := 0, -1 // ends of the group: at its highest, and beside a change of the other text
	for size := -1; size != g.end-g.begin; {
		size = g.end - g.begin
		beside = -1
		for f.up(g) {
			other.previous(o)
		}
		first = g.end
		if o.begin != o.end {
			beside = g.end
		}
		for f.down(g) {
			other.next(o)
			if o.begin != o.end {
				beside = g.end
			}
		}
	}
	if g.end == first || beside < 0 {
		return
	}
	for o.begin == o.end {
		f.up(g)
		other.previous(o)
	}
}
