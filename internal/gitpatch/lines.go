package gitpatch

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sergi/go-diff/diffmatchpatch"
)

// searchTime bounds the search for the shortest way from one text to another. What is not aligned by then is told as
// deleted and written anew, which is right, but longer.
const searchTime = 2 * time.Second

// contextLines is how many lines a hunk shows around a change.
const contextLines = 3

// step is one line of a script: ' ' in both texts, '-' in the old one only, '+' in the new one only.
type step struct {
	kind byte
	line string // with its newline, if it has one
}

// script leads from one text to another.
type script []step

// compare finds a short script. The library compares runes, so each different line becomes one.
func compare(old, new []byte) script {
	var all []string // lines by number
	numbers := map[string]rune{}
	encode := func(text []byte) []rune {
		var runes []rune
		for line := range bytes.Lines(text) {
			n, ok := numbers[string(line)]
			if !ok {
				n = rune(len(all))
				all = append(all, string(line))
				numbers[all[n]] = n
			}
			if n >= 0xd800 { // surrogates cannot be spelled in UTF-8, as the library does
				n += 0x800
			}
			runes = append(runes, n)
		}
		return runes
	}
	d := diffmatchpatch.New()
	d.DiffTimeout = searchTime
	var s script
	for _, part := range d.DiffMainRunes(encode(old), encode(new), false) {
		kind := byte(' ')
		switch part.Type {
		case diffmatchpatch.DiffDelete:
			kind = '-'
		case diffmatchpatch.DiffInsert:
			kind = '+'
		}
		for rest := part.Text; rest != ""; {
			n, size := utf8.DecodeRuneInString(rest)
			rest = rest[size:]
			if n >= 0xe000 {
				n -= 0x800
			}
			s = append(s, step{kind, all[n]})
		}
	}
	return s
}

// count counts the lines that a script adds and deletes.
func (s script) count() (added, deleted int) {
	for _, x := range s {
		switch x.kind {
		case '+':
			added++
		case '-':
			deleted++
		}
	}
	return added, deleted
}

// unified is the script as the hunks of a unified diff.
func (s script) unified() []byte {
	var b bytes.Buffer
	var heading headings
	old, new := 0, 0 // lines before s[at]
	for at := 0; at < len(s); {
		if s[at].kind == ' ' {
			at, old, new = at+1, old+1, new+1
			continue
		}
		begin := max(0, at-contextLines)
		end := s.hunkEnd(at)
		hunk := s[begin:end]
		added, deleted := hunk.count()
		same := len(hunk) - added - deleted
		fmt.Fprintf(&b, "@@ -%s +%s @@%s\n", span(old-(at-begin), same+deleted), span(new-(at-begin), same+added),
			heading.before(s[:begin]))
		for _, x := range hunk {
			b.WriteByte(x.kind)
			b.WriteString(x.line)
			if x.line[len(x.line)-1] != '\n' {
				b.WriteString("\n\\ No newline at end of file\n")
			}
		}
		old += same + deleted - (at - begin)
		new += same + added - (at - begin)
		at = end
	}
	return b.Bytes()
}

// headings finds the line that says what a hunk is in, as git does where it does not know the language.
type headings struct {
	seen int // steps that were looked at
	last string
}

// before is what follows the numbers of a hunk: the last line of the old text that begins with a letter, _ or $, cut.
func (h *headings) before(s script) string {
	const most = 80 // bytes
	for ; h.seen < len(s); h.seen++ {
		line := s[h.seen].line
		c := line[0] | 0x20
		if s[h.seen].kind != '+' && (c >= 'a' && c <= 'z' || line[0] == '_' || line[0] == '$') {
			h.last = " " + strings.TrimRight(line[:min(len(line), most)], " \t\n\v\f\r")
		}
	}
	return h.last
}

// hunkEnd finds the end of the hunk whose first change is at: changes with little between them are one hunk.
func (s script) hunkEnd(at int) int {
	last := at
	for i := at; i < len(s) && i-last <= 2*contextLines; i++ {
		if s[i].kind != ' ' {
			last = i
		}
	}
	return min(len(s), last+1+contextLines)
}

// span is a range of lines as a hunk's head spells it: the first one from 1, or the one before an empty range.
func span(before, lines int) string {
	switch lines {
	case 0:
		return fmt.Sprintf("%d,0", before)
	case 1:
		return fmt.Sprint(before + 1)
	}
	return fmt.Sprintf("%d,%d", before+1, lines)
}
