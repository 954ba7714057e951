package gitpatch

import (
	"bytes"
	"fmt"
	"strings"
)

// What a text may have at most to be compared line by line: beyond that the memory for it is out of proportion.
const (
	MaxText  = 16 << 20 // bytes
	maxLines = 1 << 19  // such that all lines of both sides can have a rune of their own
)

// MaxLiteral is how many bytes a binary file may have to be put into a patch.
const MaxLiteral = 64 << 20

// Types of a file, as git spells them.
const (
	Regular    = 0o100644
	Executable = 0o100755
	Link       = 0o120000
)

// File is one side of a section; Mode 0 means that there is no file.
type File struct {
	Name string // relative, slash-separated, raw bytes
	Mode uint32 // Regular, Executable or Link; 0: none
	// Data is what it holds, or the target of a link. Nil with Large: not read.
	Data []byte
	// Large says that the contents are too large to be compared as text.
	Large bool
}

// Stat counts what a section changes. Lines are those of text.
type Stat struct {
	Binary    bool
	Additions int
	Deletions int
}

// Options of a section.
type Options struct {
	// StatOnly leaves the text out.
	StatOnly bool
	// Literal puts binary contents into the patch; else it says only that they differ.
	Literal bool
}

// Section is the change that leads from old to new, which have different contents, names or modes. At most one of them
// may be missing. A change of the type (file to link), or of a link or its name, is two sections, a deletion and a
// creation: patch(1) refuses to change a link.
func Section(old, new File, opts Options) ([]byte, Stat) {
	types := (old.Mode == Link) != (new.Mode == Link)
	if old.Mode != 0 && new.Mode != 0 && (types || old.Mode == Link) {
		gone, a := Section(old, File{Name: old.Name}, opts)
		made, b := Section(File{Name: new.Name}, new, opts)
		return append(gone, made...), Stat{a.Binary || b.Binary, a.Additions + b.Additions, a.Deletions + b.Deletions}
	}
	var st Stat
	same := !old.Large && !new.Large && bytes.Equal(old.Data, new.Data) && (old.Mode == 0) == (new.Mode == 0)
	st.Binary = !same && (!isText(old) || !isText(new))
	var hunks []byte
	if !st.Binary && !bytes.Equal(old.Data, new.Data) {
		script := compare(old.Data, new.Data)
		st.Additions, st.Deletions = script.count()
		if !opts.StatOnly {
			hunks = script.unified()
		}
	}
	if opts.StatOnly {
		return nil, st
	}
	var b bytes.Buffer
	header(&b, old, new)
	switch {
	case st.Binary && opts.Literal && !old.Large && !new.Large:
		literals(&b, old, new)
	case st.Binary:
		fmt.Fprintf(&b, "Binary files %s and %s differ\n", side("a/", old), side("b/", new))
	case hunks != nil:
		fmt.Fprintf(&b, "--- %s\n+++ %s\n", sideLine("a/", old), sideLine("b/", new))
		b.Write(hunks)
	}
	return b.Bytes(), st
}

// header writes the lines above the contents.
func header(b *bytes.Buffer, old, new File) {
	fmt.Fprintf(b, "diff --git %s %s\n", quote("a/"+old.Name), quote("b/"+new.Name))
	switch {
	case old.Mode == 0:
		fmt.Fprintf(b, "new file mode %06o\n", new.Mode)
	case new.Mode == 0:
		fmt.Fprintf(b, "deleted file mode %06o\n", old.Mode)
	case old.Mode != new.Mode:
		fmt.Fprintf(b, "old mode %06o\nnew mode %06o\n", old.Mode, new.Mode)
	}
	if old.Mode != 0 && new.Mode != 0 && old.Name != new.Name {
		fmt.Fprintf(b, "rename from %s\nrename to %s\n", quote(old.Name), quote(new.Name))
	}
}

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

// isText tells whether a file's contents can be compared line by line.
func isText(f File) bool {
	return !f.Large && len(f.Data) <= MaxText && bytes.IndexByte(f.Data, 0) < 0 &&
		bytes.Count(f.Data, []byte{'\n'}) <= maxLines
}

// quote is a name as git writes it: in C's quotes where it has control characters, quotes, backslashes or bytes beyond
// ASCII. Blanks at its ends, which git leaves bare, are quoted, too: patch(1) drops them.
func quote(name string) string {
	plain := strings.Trim(name, " ") == name
	for i := range len(name) {
		c := name[i]
		plain = plain && c >= ' ' && c < 0x7f && c != '"' && c != '\\'
	}
	if plain {
		return name
	}
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
