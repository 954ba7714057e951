package cli

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

// diffSum totals the changes of a diff.
type diffSum struct {
	Files     int   `json:"files"`
	Additions int   `json:"additions"`
	Deletions int   `json:"deletions"`
	Bytes     int64 `json:"bytes"` // of the changed files, now
	OldBytes  int64 `json:"old_bytes"`
}

// add counts a change. Directories have no contents of their own.
func (s *diffSum) add(c api.Change) {
	if c.Mode&unix.S_IFMT == unix.S_IFDIR {
		return
	}
	s.Files++
	if c.Stat != nil {
		s.Additions += c.Stat.Additions
		s.Deletions += c.Stat.Deletions
	}
	s.Bytes += c.Size
	s.OldBytes += c.OldSize
}

// statWidth is the width of a diffstat line, as git's without a terminal. The bars have what the names leave.
const statWidth = 80

// statDiff writes what 'git diff --stat' does.
func statDiff(ctx context.Context, w *bufio.Writer, c api.API, r api.DiffRequest) error {
	var sum diffSum
	var lines []statLine
	err := c.Diff(ctx, r, func(ch api.Change) error {
		if ch.Mode&unix.S_IFMT != unix.S_IFDIR {
			lines = append(lines, statOf(ch))
			sum.add(ch)
		}
		return nil
	})
	if err != nil {
		return err
	}
	names, most := 0, 0
	for _, l := range lines {
		names = max(names, utf8.RuneCountInString(l.name))
		most = max(most, l.added+l.deleted)
	}
	digits := len(fmt.Sprint(most))
	bars := max(10, statWidth-names-digits-5)
	for _, l := range lines {
		text := l.text
		if text == "" {
			text = fmt.Sprintf("%*d", digits, l.added+l.deleted)
		}
		if bar := l.bar(most, bars); bar != "" {
			text += " " + bar
		}
		fmt.Fprintf(w, " %s%s | %s\n", l.name, strings.Repeat(" ", names-utf8.RuneCountInString(l.name)), text)
	}
	_, err = fmt.Fprintln(w, sum)
	return err
}

// String is the last line of a diffstat.
func (s diffSum) String() string {
	count := func(n int, one, more string) string {
		if n == 1 {
			return fmt.Sprintf("%d %s", n, one)
		}
		return fmt.Sprintf("%d %s", n, more)
	}
	text := " " + count(s.Files, "file changed", "files changed")
	if s.Additions > 0 || s.Deletions == 0 && s.Files > 0 {
		text += ", " + count(s.Additions, "insertion(+)", "insertions(+)")
	}
	if s.Deletions > 0 || s.Additions == 0 && s.Files > 0 {
		text += ", " + count(s.Deletions, "deletion(-)", "deletions(-)")
	}
	return text
}

// statLine is a file of a diffstat.
type statLine struct {
	name           string
	text           string // instead of the number of lines
	added, deleted int
}

func statOf(c api.Change) statLine {
	l := statLine{name: quote(rawPath(c.Path, c.RawPath))}
	if c.Kind == "R" {
		l.name = quote(rawPath(c.OldPath, c.RawOldPath)) + " => " + l.name
	}
	switch {
	case c.Stat == nil:
		l.text = "special file"
	case c.Stat.Binary:
		l.text = fmt.Sprintf("Bin %d -> %d bytes", c.OldSize, c.Size)
	default:
		l.added, l.deleted = c.Stat.Additions, c.Stat.Deletions
	}
	return l
}

// bar draws added and deleted lines in proportion to the most that a file has.
func (l statLine) bar(most, width int) string {
	if l.added+l.deleted == 0 {
		return ""
	}
	scale := func(n int) int {
		if n == 0 || most <= width {
			return n
		}
		return 1 + n*(width-2)/most // at least one character each, and both fit
	}
	return strings.Repeat("+", scale(l.added)) + strings.Repeat("-", scale(l.deleted))
}
