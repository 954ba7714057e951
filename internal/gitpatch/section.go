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

// MaxBinary is how many bytes a file may have to be put into a patch.
const MaxBinary = 64 << 20

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
	// Large says that the contents are too large for a patch.
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
}

// Guard is put before a patch that patch(1) would apply in part. It makes it say that and why, end with exit code 2, and
// change nothing: to it, this is a context diff without an end. git skips it.
func Guard(why string) []byte {
	return fmt.Appendf(nil, "*** /dev/null\n--- /dev/null\n***************\n*** 1 ****\n"+
		"patch(1) would apply a part of this patch only, which %s: use 'git apply'\n\n", why)
}

// Section is the change that leads from old to new, which have different contents, names or modes. At most one of them
// may be missing. A change of the type (file to link), or of a link or its name, is two sections, a deletion and a
// creation: patch(1) refuses to change a link. Data that is the same on both sides may be left out of both.
// With Large, only StatOnly is possible.
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
	header(&b, old, new, same, hunks != nil)
	switch {
	case st.Binary:
		binaryPatch(&b, old, new)
	case hunks != nil:
		fmt.Fprintf(&b, "--- %s\n+++ %s\n", sideLine("a/", old), sideLine("b/", new))
		b.Write(hunks)
	}
	return b.Bytes(), st
}

// header writes the lines above the contents. Without lines with --- and +++ below, patch(1) has the names from the
// first one, where it takes the first blank for the end of a name without quotes.
func header(b *bytes.Buffer, old, new File, same, named bool) {
	spell := quote
	if !named && strings.ContainsRune(old.Name+new.Name, ' ') {
		spell = quoted
	}
	fmt.Fprintf(b, "diff --git %s %s\n", spell("a/"+old.Name), spell("b/"+new.Name))
	switch {
	case old.Mode == 0:
		fmt.Fprintf(b, "new file mode %06o\n", new.Mode)
	case new.Mode == 0:
		fmt.Fprintf(b, "deleted file mode %06o\n", old.Mode)
	case old.Mode != new.Mode:
		fmt.Fprintf(b, "old mode %06o\nnew mode %06o\n", old.Mode, new.Mode)
	}
	if old.Mode != 0 && new.Mode != 0 && old.Name != new.Name {
		fmt.Fprintf(b, "similarity index %d%%\nrename from %s\nrename to %s\n",
			similarity(old.Data, new.Data), quote(old.Name), quote(new.Name))
	}
	if same {
		return
	}
	fmt.Fprintf(b, "index %s..%s", oid(old), oid(new))
	if old.Mode == new.Mode {
		fmt.Fprintf(b, " %06o", new.Mode)
	}
	b.WriteByte('\n')
}

// isText reports whether a file's contents can be compared line by line.
func isText(f File) bool {
	if f.Large {
		return false
	}
	var t Text
	_, _ = t.Write(f.Data) // it takes everything
	return t.Is()
}

// Text finds out whether contents, which are written to it, can be compared line by line. The zero value is ready.
type Text struct {
	bytes, lines int64
	binary       bool
}

// Write implements io.Writer.
func (t *Text) Write(p []byte) (int, error) {
	t.bytes += int64(len(p))
	t.lines += int64(bytes.Count(p, []byte{'\n'}))
	t.binary = t.binary || bytes.IndexByte(p, 0) >= 0 || t.bytes > MaxText || t.lines > maxLines
	return len(p), nil
}

// Is gives the answer for what was written so far: true may still become false.
func (t *Text) Is() bool { return !t.binary }
