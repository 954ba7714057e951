package textmerge

import (
	"bytes"
	"context"
	"slices"
	"strings"
)

// Favor says what becomes of conflicts.
type Favor int

// Conflicts get markers around what each side says, or become what one side says.
const (
	Markers Favor = iota
	Ours
	Theirs
)

// Options of a merge. The names stand behind the markers.
type Options struct {
	Favor              Favor
	OurName, TheirName string
}

// Result is a merged text, and how many conflicts there were.
type Result struct {
	Text      []byte
	Conflicts int
}

// side says whose lines a hunk has.
type side int

const (
	conflict side = iota
	ours
	theirs
	both // the sides say the same, as was found out by a second look
)

// hunk is a range of lines of the base, of ours and of theirs.
type hunk struct {
	whose                                 side
	base, baseN, our, ourN, their, theirN int
}

// merger is one merge.
type merger struct {
	base, ours, theirs text
	hunks              []hunk
}

// Merge merges ours and theirs, which stem from base. The only error is that of ctx.
func Merge(ctx context.Context, base, ourText, theirText []byte, o Options) (Result, error) {
	c := classes{}
	m := merger{base: c.text(base), ours: c.text(ourText), theirs: c.text(theirText)}
	x, y := diff(ctx, m.base, m.ours), diff(ctx, m.base, m.theirs)
	switch {
	case ctx.Err() != nil:
		return Result{}, ctx.Err()
	case len(x) == 0:
		return Result{Text: theirText}, nil
	case len(y) == 0:
		return Result{Text: ourText}, nil
	}
	m.join(x, y)
	m.refine(ctx)
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	m.simplify()
	return m.write(o), nil
}

// join makes hunks of the changes of both sides.
func (m *merger) join(x, y []change) {
	shift := func(c []change, at int) int { // from the base to the side, before a change or behind all
		if at < len(c) {
			return c[at].now - c[at].old
		}
		if last := len(c) - 1; last >= 0 {
			return c[last].now + c[last].newCount - c[last].old - c[last].count
		}
		return 0
	}
	i, j := 0, 0
	for i < len(x) || j < len(y) {
		switch {
		case j == len(y) || i < len(x) && x[i].old+x[i].count < y[j].old:
			a := x[i]
			m.add(hunk{ours, a.old, a.count, a.now, a.newCount, a.old + shift(y, j), a.count})
			i++
			continue
		case i == len(x) || y[j].old+y[j].count < x[i].old:
			b := y[j]
			m.add(hunk{theirs, b.old, b.count, b.old + shift(x, i), b.count, b.now, b.newCount})
			j++
			continue
		}
		a, b := x[i], y[j]
		if a.old != b.old || a.count != b.count || a.newCount != b.newCount ||
			!m.ours.equal(a.now, m.theirs, b.now, a.newCount) {
			m.add(overlap(a, b))
		}
		endA, endB := a.old+a.count, b.old+b.count
		if endA >= endB {
			j++
		}
		if endB >= endA {
			i++
		}
	}
}

// overlap is the conflict of two changes.
func overlap(a, b change) hunk {
	h := hunk{conflict, a.old, 0, a.now, 0, b.now, 0}
	if before := a.old - b.old; before > 0 {
		h.base -= before
		h.our -= before
	} else {
		h.their += before
	}
	h.baseN = a.old + a.count - h.base
	h.ourN = a.now + a.newCount - h.our
	h.theirN = b.now + b.newCount - h.their
	if after := a.old + a.count - b.old - b.count; after < 0 {
		h.baseN -= after
		h.ourN -= after
	} else {
		h.theirN += after
	}
	return h
}

// add appends a hunk, or makes it part of the last one if they touch.
func (m *merger) add(h hunk) {
	if n := len(m.hunks); n > 0 {
		last := &m.hunks[n-1]
		if h.our <= last.our+last.ourN || h.their <= last.their+last.theirN {
			if h.whose != last.whose {
				last.whose = conflict
			}
			last.baseN = h.base + h.baseN - last.base
			last.ourN = h.our + h.ourN - last.our
			last.theirN = h.their + h.theirN - last.their
			return
		}
	}
	m.hunks = append(m.hunks, h)
}

// refine leaves only those lines in conflicts in which the sides differ.
func (m *merger) refine(ctx context.Context) {
	var out []hunk
	for _, h := range m.hunks {
		if h.whose != conflict || h.ourN == 0 || h.theirN == 0 {
			out = append(out, h)
			continue
		}
		parts := diff(ctx, m.ours.part(h.our, h.ourN), m.theirs.part(h.their, h.theirN))
		if len(parts) == 0 {
			h.whose = both
			out = append(out, h)
		}
		for _, p := range parts {
			out = append(out, hunk{
				whose: conflict, our: h.our + p.old, ourN: p.count, their: h.their + p.now, theirN: p.newCount,
			})
		}
	}
	m.hunks = out
}

// near is how many lines between two conflicts make them one.
const near = 3

// simplify joins conflicts with little between them.
func (m *merger) simplify() {
	var out []hunk
	for _, h := range m.hunks {
		if n := len(out); n > 0 && h.whose == conflict && out[n-1].whose == conflict {
			last := &out[n-1]
			begin, end := last.our+last.ourN, h.our
			if end-begin <= near || !slices.ContainsFunc(m.ours.lines[begin:end], hasWord) {
				last.ourN = h.our + h.ourN - last.our
				last.theirN = h.their + h.theirN - last.their
				continue
			}
		}
		out = append(out, h)
	}
	m.hunks = out
}

// hasWord reports whether a line has a letter or a digit.
func hasWord(line []byte) bool {
	return slices.ContainsFunc(line, func(c byte) bool {
		return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z'
	})
}

// write spells the merged text.
func (m *merger) write(o Options) Result {
	var out bytes.Buffer
	conflicts, at := 0, 0
	for _, h := range m.hunks {
		whose := h.whose
		if whose == both {
			continue // the lines of ours follow with what comes next
		}
		if whose == conflict {
			conflicts++
			whose = side(o.Favor) // Ours and Theirs are ours and theirs
		}
		put(&out, m.ours.lines[at:h.our])
		switch whose {
		case conflict:
			m.mark(&out, h, o)
		case ours:
			put(&out, m.ours.lines[h.our:h.our+h.ourN])
		case theirs:
			put(&out, m.theirs.lines[h.their:h.their+h.theirN])
		}
		at = h.our + h.ourN
	}
	put(&out, m.ours.lines[at:])
	return Result{out.Bytes(), conflicts}
}

func put(out *bytes.Buffer, lines [][]byte) {
	for _, line := range lines {
		out.Write(line)
	}
}

// markerSize is how many signs a marker has.
const markerSize = 7

// mark writes a conflict.
func (m *merger) mark(out *bytes.Buffer, h hunk, o Options) {
	eol := "\n"
	if m.carriageReturns(h) {
		eol = "\r\n"
	}
	marker := func(sign, name string) {
		out.WriteString(strings.Repeat(sign, markerSize))
		if name != "" {
			out.WriteString(" " + name)
		}
		out.WriteString(eol)
	}
	whole := func(lines [][]byte) {
		put(out, lines)
		if n := len(lines); n > 0 && !bytes.HasSuffix(lines[n-1], []byte("\n")) {
			out.WriteString(eol)
		}
	}
	marker("<", o.OurName)
	whole(m.ours.lines[h.our : h.our+h.ourN])
	marker("=", "")
	whole(m.theirs.lines[h.their : h.their+h.theirN])
	marker(">", o.TheirName)
}

// carriageReturns reports whether lines around a conflict end in CR LF on both sides, and in the base as far as they do
// not tell.
func (m *merger) carriageReturns(h hunk) bool {
	how := m.ours.ending(max(0, h.our-1))
	if how != lf {
		how = m.theirs.ending(max(0, h.their-1))
	}
	if how != lf {
		how = m.base.ending(0)
	}
	return how == crlf
}

// How a line ends.
const (
	unknown = iota
	lf
	crlf
)

// ending is how the line ends, or the one before it if it is a last one without an end.
func (t text) ending(i int) int {
	ends := func(line []byte) int {
		if bytes.HasSuffix(line, []byte("\r\n")) {
			return crlf
		}
		return lf
	}
	switch {
	case len(t.lines) == 0:
		return unknown
	case i < len(t.lines)-1 || bytes.HasSuffix(t.lines[i], []byte("\n")):
		return ends(t.lines[i])
	case i == 0:
		return unknown
	}
	return ends(t.lines[i-1])
}
