package textmerge

import (
	"bytes"
	"context"
)

// MaxBytes and MaxLines are what the largest text has. git takes files of more bytes for binary ones, too; the lines bound
// the memory and the time of a merge.
const (
	MaxBytes = 16 << 20
	MaxLines = 1 << 19
)

// binaryProbe is how far git looks for a NUL byte.
const binaryProbe = 8000

// IsText reports whether git takes the data for text that it can merge, and it is not too large.
func IsText(data []byte) bool {
	return len(data) <= MaxBytes && bytes.IndexByte(data[:min(len(data), binaryProbe)], 0) < 0 &&
		bytes.Count(data, []byte{'\n'}) <= MaxLines
}

// text is one of the texts, in lines.
type text struct {
	lines [][]byte
	class []int // of each line: equal lines have the same
}

// classes numbers different lines.
type classes map[string]int

func (c classes) text(data []byte) text {
	var t text
	for line := range bytes.Lines(data) {
		n, ok := c[string(line)]
		if !ok {
			n = len(c)
			c[string(line)] = n
		}
		t.lines = append(t.lines, line)
		t.class = append(t.class, n)
	}
	return t
}

// part is a range of lines as a text.
func (t text) part(begin, n int) text {
	return text{t.lines[begin : begin+n], t.class[begin : begin+n]}
}

// equal compares n lines of two texts.
func (t text) equal(at int, o text, other, n int) bool {
	for i := range n {
		if t.class[at+i] != o.class[other+i] {
			return false
		}
	}
	return true
}

// change says that count lines at old are newCount lines at now in the other text.
type change struct{ old, count, now, newCount int }

// diff is how one text becomes another; it is of no use when ctx is done.
func diff(ctx context.Context, old, now text) []change {
	a, b := newFile(old), newFile(now)
	compare(ctx, a, b)
	a.compact(b)
	b.compact(a)
	var all []change
	for i, j := len(a.class), len(b.class); i > 0 || j > 0; {
		if !a.is(i-1) && !b.is(j-1) {
			i, j = i-1, j-1
			continue
		}
		endI, endJ := i, j
		for a.is(i - 1) {
			i--
		}
		for b.is(j - 1) {
			j--
		}
		all = append(all, change{i, endI - i, j, endJ - j})
	}
	for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
		all[i], all[j] = all[j], all[i]
	}
	return all
}
