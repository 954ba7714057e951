package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"unicode/utf8"

	"snapfs/sandbox/api"
)

const (
	usualLines = 2000
	maxLines   = 10000
	// maxSkipped bounds how much of a file is passed over to come to a line.
	maxSkipped = 64 << 20
	// maxBinary bounds what is read of a binary file, before it is base64.
	maxBinary = maxBytes / 4 * 3
)

type readInput struct {
	Path       string `json:"path" jsonschema:"the file to read"`
	Offset     int    `json:"offset,omitempty" jsonschema:"the first line to read, from 1"`
	Limit      int    `json:"limit,omitempty" jsonschema:"how many lines to read, 2000 if it is not given, 10000 at most; 64 KiB in any case"`
	ByteOffset int64  `json:"byte_offset,omitempty" jsonschema:"the first byte to read, in the place of offset, as next_byte_offset of the result before says"`
	Encoding   string `json:"encoding,omitempty" jsonschema:"utf-8 if it is not given; base64 reads binary files, 48 KiB at a time"`
}

type readOutput struct {
	At
	Path           string `json:"path"`
	Size           int64  `json:"size" jsonschema:"bytes that the whole file has"`
	Encoding       string `json:"encoding"`
	Content        string `json:"content"`
	Lines          int    `json:"lines" jsonschema:"how many lines content has"`
	FirstLine      int    `json:"first_line,omitempty" jsonschema:"the number of its first line, from 1"`
	Truncated      bool   `json:"truncated" jsonschema:"there is more of the file"`
	NextOffset     int    `json:"next_offset,omitempty" jsonschema:"pass it as offset for more"`
	NextByteOffset int64  `json:"next_byte_offset,omitempty" jsonschema:"pass it as byte_offset for more"`
}

func (o readOutput) text() string {
	switch {
	case o.Size == 0:
		return "[the file is empty]"
	case o.Content == "" && !o.Truncated:
		return fmt.Sprintf("[the file ends before that: it has %d bytes]", o.Size)
	case !o.Truncated:
		return o.Content
	case o.NextOffset > 0:
		return o.Content + fmt.Sprintf("\n[truncated: lines %d to %d of a file of %d bytes; go on with offset=%d]",
			o.FirstLine, o.FirstLine+o.Lines-1, o.Size, o.NextOffset)
	}
	return o.Content + fmt.Sprintf("\n[truncated: the file has %d bytes; go on with byte_offset=%d]", o.Size, o.NextByteOffset)
}

func (b *builder) addReads() {
	add(b, tool{
		"workspace_read_file", "Read a file",
		"Reads a text file of the workspace at hand, a part of a large one, or with encoding=base64 a binary one.",
		api.ScopeRead,
		effect{readOnly: true, idempotent: true},
	}, readFile)
}

func readFile(ctx context.Context, c *call, in readInput) (readOutput, error) {
	switch {
	case in.Offset < 0 || in.ByteOffset < 0:
		return readOutput{}, tell(api.ErrInvalid, "offset is a line, from 1, and byte_offset a byte, from 0")
	case in.Offset > 0 && in.ByteOffset > 0:
		return readOutput{}, tell(api.ErrInvalid, "give offset or byte_offset, not both")
	case in.Encoding != "" && in.Encoding != "utf-8" && in.Encoding != "base64":
		return readOutput{}, tell(api.ErrInvalid, "encoding is utf-8 or base64")
	case in.Encoding == "base64" && in.Offset > 0:
		return readOutput{}, tell(api.ErrInvalid, "with base64 give byte_offset, not offset")
	}
	at, err := c.mounted(ctx)
	if err != nil {
		return readOutput{}, err
	}
	file := api.WorkFileRequest{Access: c.Access, Workspace: at.ID, Path: in.Path}
	st, err := c.service.StatFile(ctx, file)
	if err != nil {
		return readOutput{}, about(err, in.Path)
	}
	if err := regular(st, in.Path); err != nil {
		return readOutput{}, err
	}
	out := readOutput{At: at.at(), Path: display(in.Path), Size: st.Size, Encoding: "utf-8"}
	r := api.GetFileRequest{WorkFileRequest: file, Offset: in.ByteOffset}
	if in.Encoding == "base64" {
		return readBinary(ctx, c, out, r)
	}
	p := &page{skip: max(in.Offset-1, 0), lines: clamp(in.Limit, usualLines, maxLines)}
	if r.Offset >= st.Size {
		return out, nil
	}
	_, err = c.service.GetFile(ctx, r, p)
	if err = enough(err); err != nil {
		return readOutput{}, about(err, in.Path)
	}
	content, more := p.content()
	if !utf8.Valid(content) || bytes.IndexByte(content, 0) >= 0 {
		return readOutput{}, tell(api.ErrInvalid, "%s is not a text file: %d bytes, %s. encoding=base64 reads it.",
			out.Path, st.Size, http.DetectContentType(content))
	}
	out.Content, out.Truncated = string(content), more
	out.Lines = countLines(content)
	if r.Offset == 0 {
		out.FirstLine = p.skip + 1
	}
	if more {
		out.NextByteOffset = r.Offset + p.skipped + int64(len(content))
		if r.Offset == 0 && bytes.HasSuffix(content, []byte("\n")) {
			out.NextOffset = p.skip + 1 + out.Lines
		}
	}
	return out, nil
}

// regular refuses what cannot be read as a file.
func regular(st api.File, name string) error {
	switch st.Mode & typeMask {
	case typeRegular:
		return nil
	case typeDirectory:
		return tell(api.ErrInvalid, "%s is a directory; workspace_ls lists it", display(name))
	}
	return tell(api.ErrInvalid, "%s is a %s, and has no contents", display(name), kindOf(st.Mode))
}

func readBinary(ctx context.Context, c *call, out readOutput, r api.GetFileRequest) (readOutput, error) {
	r.Length = maxBinary
	out.Encoding = "base64"
	if r.Offset >= out.Size {
		return out, nil
	}
	var data bytes.Buffer
	if _, err := c.service.GetFile(ctx, r, &data); err != nil {
		return readOutput{}, about(err, out.Path)
	}
	out.Content = base64.StdEncoding.EncodeToString(data.Bytes())
	if end := r.Offset + int64(data.Len()); end < out.Size && data.Len() > 0 {
		out.Truncated, out.NextByteOffset = true, end
	}
	return out, nil
}

// page takes some lines out of what is written to it: maxBytes at most.
type page struct {
	skip, lines int // lines to pass over, and to take
	skipped     int64

	passed int // lines that were passed over
	taken  int // lines that end in data
	data   []byte
	more   bool // there is something after data
}

// Write implements io.Writer.
func (p *page) Write(b []byte) (int, error) {
	n := len(b)
	for p.passed < p.skip && len(b) > 0 {
		end := bytes.IndexByte(b, '\n') + 1
		if end == 0 {
			end = len(b)
		} else {
			p.passed++
		}
		p.skipped += int64(end)
		b = b[end:]
		if p.skipped > maxSkipped {
			return 0, tell(api.ErrInvalid, "that line is more than %d MiB into the file: go on with byte_offset", maxSkipped>>20)
		}
	}
	for len(b) > 0 {
		if p.taken == p.lines || len(p.data) == maxBytes {
			p.more = true
			return 0, errEnough
		}
		end := bytes.IndexByte(b, '\n') + 1
		if whole := end > 0 && len(p.data)+end <= maxBytes; whole {
			p.taken++
		} else {
			end = min(len(b), maxBytes-len(p.data))
		}
		p.data = append(p.data, b[:end]...)
		b = b[end:]
	}
	return n, nil
}

// content is what was taken: whole lines if it is more than one, and whole characters.
func (p *page) content() (data []byte, more bool) {
	data = p.data
	if !p.more || len(data) < maxBytes {
		return data, p.more
	}
	if end := bytes.LastIndexByte(data, '\n') + 1; end > 0 {
		return data[:end], true
	}
	for i := 1; i < utf8.UTFMax && i <= len(data); i++ {
		if utf8.RuneStart(data[len(data)-i]) {
			if !utf8.FullRune(data[len(data)-i:]) {
				data = data[:len(data)-i]
			}
			break
		}
	}
	return data, true
}

// countLines counts lines, also a last one without an end.
func countLines(data []byte) int {
	n := bytes.Count(data, []byte("\n"))
	if len(data) > 0 && data[len(data)-1] != '\n' {
		n++
	}
	return n
}
