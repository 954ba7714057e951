package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
)

// note prints a message for a person on standard error. With --quiet it prints nothing. Neither does it with --json,
// where standard error is only for errors.
func (a *app) note(format string, args ...any) {
	if !a.quiet && !a.json {
		fmt.Fprintf(a.err, "snapfs: "+format+"\n", args...)
	}
}

// printError prints the error of the verb on one line.
func (a *app) printError(err error) {
	text := plain(strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
	if text == "" {
		return
	}
	if a.json {
		code := exitCode(err)
		line, jsonErr := json.Marshal(map[string]any{"error": text, "kind": errorKind(code), "exit_code": code})
		if jsonErr == nil {
			fmt.Fprintf(a.err, "%s\n", line)
			return
		}
	}
	fmt.Fprintf(a.err, "snapfs: %s\n", text)
}

// result prints the result of a verb: v as JSON, or as text.
func (a *app) result(v any, text func(w io.Writer) error) error {
	if a.json {
		enc := json.NewEncoder(a.out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	return text(a.out)
}

// line is the text of a result that is one string.
func line(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := fmt.Fprintln(w, s)
		return err
	}
}

// table writes rows below a header in aligned columns.
func table(w io.Writer, header string, rows [][]string) error {
	return columns(w, func(t io.Writer) {
		fmt.Fprintln(t, strings.ReplaceAll(header, " ", "\t"))
		for _, r := range rows {
			fmt.Fprintln(t, strings.Join(r, "\t"))
		}
	})
}

// fields writes "key  value" lines, except those with an empty value.
func fields(w io.Writer, pairs ...string) error {
	return columns(w, func(t io.Writer) {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i+1] != "" {
				fmt.Fprintf(t, "%s\t%s\n", pairs[i], pairs[i+1])
			}
		}
	})
}

// columns aligns what write writes to t, and writes it to w in one piece: a tabwriter writes cell by cell.
func columns(w io.Writer, write func(t io.Writer)) error {
	out := bufio.NewWriter(w)
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	write(t)
	if err := t.Flush(); err != nil {
		return err
	}
	return out.Flush()
}

// size formats a number of bytes for a person.
func size(n int64) string {
	if n < 0 {
		return "-" + humanize.IBytes(uint64(-n))
	}
	return humanize.IBytes(uint64(n))
}

// moment formats a time for a person, in the local time zone.
func moment(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// orDash fills an empty cell of a table.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// quote returns a path as it is, or as a Go string literal if a terminal or a script that reads lines could misread it:
// control characters, bytes that are not UTF-8, leading or trailing blanks, quotes and backslashes.
func quote(path string) string {
	ambiguous := path == "" || !utf8.ValidString(path) || strings.TrimSpace(path) != path ||
		strings.ContainsAny(path, `"\`)
	for _, r := range path {
		ambiguous = ambiguous || !unicode.IsPrint(r)
	}
	if ambiguous {
		return strconv.Quote(path)
	}
	return path
}

// quoteIf is quote, but keeps an empty path empty.
func quoteIf(path string) string {
	if path == "" {
		return ""
	}
	return quote(path)
}
