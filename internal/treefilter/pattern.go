package treefilter

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

// pattern is a line of a .gitignore file.
type pattern struct {
	negated  bool
	dirOnly  bool
	anchored bool // it is held against the path from the file's directory, else against the name
	literal  string
	match    *regexp.Regexp // of bytes as runes; nil: literal; matches nothing if that is "" too
}

// parse reads a .gitignore file.
func parse(text []byte) ([]pattern, error) {
	if len(text) > MaxIgnoreFile {
		return nil, ErrTooMany
	}
	var list []pattern
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	for line := range bytes.Lines(text) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		line = bytes.TrimSuffix(line, []byte("\r"))
		if glob := trimBlanks(string(line)); glob != "" && glob[0] != '#' {
			if len(list) == maxPatterns {
				return nil, ErrTooMany
			}
			list = append(list, parsePattern(glob))
		}
	}
	return list, nil
}

// parsePattern reads one pattern.
func parsePattern(line string) pattern {
	var p pattern
	line, p.negated = strings.CutPrefix(line, "!")
	line, p.dirOnly = strings.CutSuffix(line, "/")
	p.anchored = strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if !strings.ContainsAny(line, `*?[\`) {
		p.literal = line
		return p
	}
	if expr, ok := translate(line); ok {
		p.match = regexp.MustCompile(expr)
	}
	return p
}

// trimBlanks drops blanks at the end, unless they are escaped.
func trimBlanks(line string) string {
	for strings.HasSuffix(line, " ") {
		rest := line[:len(line)-1]
		if escapes := len(rest) - len(strings.TrimRight(rest, `\`)); escapes%2 == 1 {
			break
		}
		line = rest
	}
	return line
}

// matches reports whether the pattern means something.
func (p *pattern) matches(path, name string, dir bool) bool {
	if p.dirOnly && !dir {
		return false
	}
	if p.anchored {
		name = path
	}
	if p.match != nil {
		return p.match.MatchString(runes(name))
	}
	return p.literal != "" && p.literal == name
}

// runes spells each byte as a rune, so that a regular expression sees bytes.
func runes(s string) string {
	for i := range len(s) {
		if s[i] >= 0x80 {
			r := make([]rune, len(s))
			for i := range len(s) {
				r[i] = rune(s[i])
			}
			return string(r)
		}
	}
	return s
}

// translate makes a regular expression of a glob, as git's wildmatch.c reads it; false if it can match nothing.
func translate(glob string) (expr string, ok bool) {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	for i := 0; i < len(glob); {
		switch c := glob[i]; c {
		case '*':
			stars := i
			for i < len(glob) && glob[i] == '*' {
				i++
			}
			// git matches what precedes the first special character by itself: behind that, a path begins, too.
			begins := stars == 0 || glob[stars-1] == '/' || stars == strings.IndexAny(glob, `*?[\`)
			switch {
			case i-stars < 2 || !begins || i < len(glob) && glob[i] != '/':
				b.WriteString(`[^/]*`)
			case i == len(glob):
				b.WriteString(`.*`)
			default: // "**/"
				b.WriteString(`(?:.*/)?`)
				i++
			}
		case '?':
			b.WriteString(`[^/]`)
			i++
		case '[':
			class, next, ok := translateClass(glob, i)
			if !ok {
				return "", false
			}
			b.WriteString(class)
			i = next
		case '\\':
			if i+1 == len(glob) {
				return "", false
			}
			b.WriteString(regexp.QuoteMeta(runes(glob[i+1 : i+2])))
			i += 2
		default:
			b.WriteString(regexp.QuoteMeta(runes(glob[i : i+1])))
			i++
		}
	}
	b.WriteString(`\z`)
	return b.String(), true
}

// byteSet is a class of bytes.
type byteSet [256]bool

func (s *byteSet) add(from, to byte) {
	for c := int(from); c <= int(to); c++ {
		s[c] = true
	}
}

// posix are the classes that may stand in brackets, in ASCII, as pairs of ends.
var posix = map[string]string{
	"alnum": "09AZaz", "alpha": "AZaz", "blank": "  \t\t", "cntrl": "\x00\x1f\x7f\x7f", "digit": "09", "graph": "!~",
	"lower": "az", "print": " ~", "punct": "!/:@[`{~", "space": "\t\r  ", "upper": "AZ", "xdigit": "09AFaf",
}

// translateClass makes an expression of the class that begins at glob[i], and says where it ends.
func translateClass(glob string, i int) (expr string, next int, ok bool) {
	i++
	negated := i < len(glob) && (glob[i] == '!' || glob[i] == '^')
	if negated {
		i++
	}
	var set byteSet
	last := -1 // the byte before, with which a range may begin
	for first := true; ; first = false {
		if i == len(glob) {
			return "", 0, false
		}
		c := glob[i]
		switch {
		case c == ']' && !first:
			return set.expr(negated), i + 1, true
		case c == '-' && last >= 0 && i+1 < len(glob) && glob[i+1] != ']':
			if i++; glob[i] == '\\' {
				if i++; i == len(glob) {
					return "", 0, false
				}
			}
			set.add(byte(last), glob[i])
			last = -1
			i++
			continue
		case c == '[' && strings.HasPrefix(glob[i:], "[:"):
			end := strings.IndexByte(glob[i+2:], ']')
			if end < 0 {
				return "", 0, false
			}
			if name, isClass := strings.CutSuffix(glob[i+2:i+2+end], ":"); isClass {
				ends, known := posix[name]
				if !known {
					return "", 0, false
				}
				for ; ends != ""; ends = ends[2:] {
					set.add(ends[0], ends[1])
				}
				last = -1
				i += 2 + end + 1
				continue
			}
		case c == '\\':
			if i++; i == len(glob) {
				return "", 0, false
			}
			c = glob[i]
		}
		set.add(c, c)
		last = int(c)
		i++
	}
}

// expr spells a set, or the bytes that are not in it, without the slash.
func (s *byteSet) expr(negated bool) string {
	var b strings.Builder
	for c, in := range s {
		if in != negated && c != '/' {
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	if b.Len() == 0 {
		return `[^\x00-\x{10ffff}]`
	}
	return "[" + b.String() + "]"
}
