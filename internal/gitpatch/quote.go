package gitpatch

import (
	"fmt"
	"strings"
)

// side names a file, or what stands for none.
func side(prefix string, f File) string {
	if f.Mode == 0 {
		return "/dev/null"
	}
	return quote(prefix + f.Name)
}

// sideLine is side where a tab must end a name with blanks, as in the lines that begin with --- and +++.
func sideLine(prefix string, f File) string {
	name := side(prefix, f)
	if f.Mode != 0 && strings.ContainsRune(name, ' ') && name[0] != '"' {
		name += "\t"
	}
	return name
}

// quote is a name as git writes it: in C's quotes where it has control characters, quotes, backslashes or bytes beyond
// ASCII. Blanks at its ends and before a
// slash, which git leaves bare, are quoted, too: patch(1) drops the former, and git cannot read the latter.
func quote(name string) string {
	plain := strings.Trim(name, " ") == name && !strings.Contains(name, " /")
	for i := range len(name) {
		c := name[i]
		plain = plain && c >= ' ' && c < 0x7f && c != '"' && c != '\\'
	}
	if plain {
		return name
	}
	return quoted(name)
}

// quoted is a name in C's quotes.
func quoted(name string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(name) {
		switch c := name[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
