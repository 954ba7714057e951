package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"snapfs/sandbox/api"
)

// Bounds of what the service looks for in one call: what is passed over by an offset counts.
const (
	mostGlob = 10000
	mostGrep = 2000
)

type globInput struct {
	Pattern string `json:"pattern" jsonschema:"names with *, ?, [a-z], {a,b}, and ** for any number of directories, such as **/*.go"`
	Path    string `json:"path,omitempty" jsonschema:"the directory to look in; the root of the workspace if it is not given"`
	Hidden  bool   `json:"hidden,omitempty" jsonschema:"also look in directories named .git"`
	Limit   int    `json:"limit,omitempty" jsonschema:"how many paths to list, 200 if it is not given, 1000 at most"`
	Offset  int    `json:"offset,omitempty" jsonschema:"pass over so many paths, as next_offset of the result before says"`
}

type globOutput struct {
	At
	Entries    []Entry `json:"entries"`
	Truncated  bool    `json:"truncated"`
	NextOffset int     `json:"next_offset,omitempty" jsonschema:"pass it as offset for more"`
}

func (o globOutput) text() string {
	if len(o.Entries) == 0 && !o.Truncated {
		return "No files match."
	}
	var b strings.Builder
	for _, e := range o.Entries {
		b.WriteString(e.line() + "\n")
	}
	b.WriteString(goOn(o.Truncated, o.NextOffset))
	return b.String()
}

// goOn says how to get the rest.
func goOn(truncated bool, next int) string {
	switch {
	case !truncated:
		return ""
	case next > 0:
		return fmt.Sprintf("[truncated: more with offset=%d, or narrow the search down]\n", next)
	}
	return "[truncated: the search was too large; narrow it down with path or pattern]\n"
}

type grepInput struct {
	Pattern    string `json:"pattern" jsonschema:"a regular expression, in the syntax of RE2"`
	Path       string `json:"path,omitempty" jsonschema:"the file, or the directory to look in; the root of the workspace if it is not given"`
	Include    string `json:"include,omitempty" jsonschema:"only files whose names match, such as *.go or src/**/*.ts"`
	IgnoreCase bool   `json:"ignore_case,omitempty"`
	Hidden     bool   `json:"hidden,omitempty" jsonschema:"also look in directories named .git"`
	Limit      int    `json:"limit,omitempty" jsonschema:"how many lines to list, 100 if it is not given, 500 at most"`
	Offset     int    `json:"offset,omitempty" jsonschema:"pass over so many lines, as next_offset of the result before says"`
}

// Match is a line that was found.
type Match struct {
	Path string `json:"path"`
	Line int    `json:"line" jsonschema:"its number, from 1"`
	Text string `json:"text" jsonschema:"the line, at most 1000 bytes of it"`
}

type grepOutput struct {
	At
	Matches    []Match `json:"matches"`
	Files      int64   `json:"files" jsonschema:"how many files were looked at"`
	Truncated  bool    `json:"truncated"`
	NextOffset int     `json:"next_offset,omitempty" jsonschema:"pass it as offset for more"`
}

func (o grepOutput) text() string {
	if len(o.Matches) == 0 && !o.Truncated {
		return fmt.Sprintf("No line matches; %d files were looked at.", o.Files)
	}
	var b strings.Builder
	for _, m := range o.Matches {
		fmt.Fprintf(&b, "%s:%d:%s\n", m.Path, m.Line, m.Text)
	}
	b.WriteString(goOn(o.Truncated, o.NextOffset))
	return b.String()
}

func (b *builder) addSearches() {
	add(b, tool{
		"workspace_glob", "Find files by name", "Finds files and directories of the workspace at hand whose paths match a pattern.",
		api.ScopeRead,
		effect{readOnly: true, idempotent: true},
	}, glob)
	add(b, tool{
		"workspace_grep", "Find lines", "Finds lines of text files of the workspace at hand that match a regular expression.",
		api.ScopeRead,
		effect{readOnly: true, idempotent: true},
	}, grep)
}

// window is the part of a search that is wanted.
type window struct {
	offset, limit, most int
	seen, bytes         int
	truncated           bool
}

// ask is how many results the service is to give: one more than wanted tells that there are more.
func (w *window) ask() int { return min(w.offset+w.limit+1, w.most) }

// take reports whether a result of some bytes is wanted; errEnough after the last one.
func (w *window) take(size int) (bool, error) {
	if w.seen == w.offset+w.limit || w.bytes > 0 && w.bytes+size > maxBytes {
		w.truncated = true
		return false, errEnough
	}
	w.seen++
	if w.seen <= w.offset {
		return false, nil
	}
	w.bytes += size
	return true, nil
}

// next is the offset of what follows, and whether anything does; 0 if that is beyond what can be asked for.
func (w *window) next(bound bool) (truncated bool, next int) {
	if !w.truncated && !bound {
		return false, 0
	}
	if w.seen >= w.most || !w.truncated {
		return true, 0
	}
	return true, w.seen
}

// searched words the error of a search.
func searched(err error, path string) error {
	if errors.Is(err, api.ErrNotFound) || errors.Is(err, api.ErrRefused) {
		return about(err, path)
	}
	return enough(err)
}

func glob(ctx context.Context, c *call, in globInput) (globOutput, error) {
	w := &window{offset: in.Offset, limit: clamp(in.Limit, 200, 1000), most: mostGlob}
	if in.Offset < 0 || in.Offset >= w.most {
		return globOutput{}, tell(api.ErrInvalid, "offset is 0 to %d: narrow the search down instead", w.most-1)
	}
	at, err := c.mounted(ctx)
	if err != nil {
		return globOutput{}, err
	}
	out := globOutput{At: at.at(), Entries: []Entry{}}
	got, err := c.service.Glob(ctx, api.GlobRequest{
		WorkFileRequest: api.WorkFileRequest{Access: c.Access, Workspace: at.ID, Path: root(in.Path)},
		Pattern:         in.Pattern, Hidden: in.Hidden, Limit: w.ask(),
	}, func(f api.File) error {
		ok, err := w.take(len(f.Path) + len(f.Target))
		if ok {
			out.Entries = append(out.Entries, entryOf(f, f.Path))
		}
		return err
	})
	out.Truncated, out.NextOffset = w.next(got.Truncated)
	return out, searched(err, in.Path)
}

func grep(ctx context.Context, c *call, in grepInput) (grepOutput, error) {
	w := &window{offset: in.Offset, limit: clamp(in.Limit, 100, 500), most: mostGrep}
	if in.Offset < 0 || in.Offset >= w.most {
		return grepOutput{}, tell(api.ErrInvalid, "offset is 0 to %d: narrow the search down instead", w.most-1)
	}
	at, err := c.mounted(ctx)
	if err != nil {
		return grepOutput{}, err
	}
	out := grepOutput{At: at.at(), Matches: []Match{}}
	got, err := c.service.Grep(ctx, api.GrepRequest{
		WorkFileRequest: api.WorkFileRequest{Access: c.Access, Workspace: at.ID, Path: root(in.Path)},
		Pattern:         in.Pattern, Include: in.Include, IgnoreCase: in.IgnoreCase, Hidden: in.Hidden, Limit: w.ask(),
	}, func(m api.GrepMatch) error {
		ok, err := w.take(len(m.Path) + len(m.Text))
		if ok {
			out.Matches = append(out.Matches, Match{utf8Path(m.Path), m.Line, utf8Path(m.Text)})
		}
		return err
	})
	out.Files = got.Files
	out.Truncated, out.NextOffset = w.next(got.Truncated)
	return out, searched(err, in.Path)
}

// root is the path of what is looked in.
func root(path string) string {
	if path == "" {
		return "/"
	}
	return path
}
