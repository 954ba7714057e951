package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"snapfs/sandbox/api"
)

// Types of files, as in st_mode.
const (
	typeMask      = 0o170000
	typeRegular   = 0o100000
	typeDirectory = 0o040000
	typeLink      = 0o120000
)

// kindOf names the type of a file.
func kindOf(mode uint32) string {
	switch mode & typeMask {
	case typeRegular:
		return "file"
	case typeDirectory:
		return "directory"
	case typeLink:
		return "link"
	case 0o010000:
		return "pipe"
	case 0o140000:
		return "socket"
	}
	return "device"
}

// Entry is a file as tools tell of it.
type Entry struct {
	Path     string    `json:"path"`
	Type     string    `json:"type" jsonschema:"file, directory, link, pipe, socket or device"`
	Size     int64     `json:"size"`
	Mode     string    `json:"mode" jsonschema:"permissions, octal"`
	Modified time.Time `json:"modified"`
	Target   string    `json:"target,omitempty" jsonschema:"where a link leads"`
}

func entryOf(f api.File, path string) Entry {
	return Entry{
		Path: utf8Path(path), Type: kindOf(f.Mode), Size: f.Size, Mode: fmt.Sprintf("%04o", f.Mode&0o7777),
		Modified: f.Modified.UTC(), Target: utf8Path(f.Target),
	}
}

// line is the entry in a list.
func (e Entry) line() string {
	switch e.Type {
	case "directory":
		return e.Path + "/"
	case "link":
		return e.Path + " -> " + e.Target
	case "file":
		return fmt.Sprintf("%s  (%d bytes)", e.Path, e.Size)
	}
	return e.Path + "  (" + e.Type + ")"
}

type lsInput struct {
	Path  string `json:"path,omitempty" jsonschema:"the directory to list; the root of the workspace if it is not given"`
	Limit int    `json:"limit,omitempty" jsonschema:"how many names to list, 200 if it is not given, 1000 at most"`
	After string `json:"after,omitempty" jsonschema:"go on after this name, as next_after of the result before says"`
}

type lsOutput struct {
	At
	Path      string  `json:"path"`
	Entries   []Entry `json:"entries"`
	Truncated bool    `json:"truncated"`
	NextAfter string  `json:"next_after,omitempty" jsonschema:"pass it as after for more"`
}

func (o lsOutput) text() string {
	if len(o.Entries) == 0 {
		return "[" + o.Path + " is empty]"
	}
	var b strings.Builder
	for _, e := range o.Entries {
		b.WriteString(e.line() + "\n")
	}
	if o.Truncated {
		fmt.Fprintf(&b, "[truncated: more with after=%q]\n", o.NextAfter)
	}
	return b.String()
}

type statInput struct {
	Path     string `json:"path" jsonschema:"the file or directory"`
	NoFollow bool   `json:"no_follow,omitempty" jsonschema:"describe a symbolic link itself, not what it leads to"`
}

type statOutput struct {
	At
	Entry
	UID   uint32 `json:"uid"`
	GID   uint32 `json:"gid"`
	Links uint32 `json:"links"`
}

func (o statOutput) text() string {
	return fmt.Sprintf("%s: %s, %d bytes, mode %s, owner %d:%d, %d names, modified %s", o.line(), o.Type, o.Size, o.Mode,
		o.UID, o.GID, o.Links, o.Modified.Format(time.RFC3339))
}

func (b *builder) addLists() {
	add(b, tool{
		"workspace_ls", "List a directory", "Lists a directory of the workspace at hand, in the order of names.",
		api.ScopeRead,
		effect{readOnly: true, idempotent: true},
	}, ls)
	add(b, tool{
		"workspace_stat", "Describe a file", "Tells type, size, permissions, owner and time of a file or directory.",
		api.ScopeRead,
		effect{readOnly: true, idempotent: true},
	}, stat)
}

func ls(ctx context.Context, c *call, in lsInput) (lsOutput, error) {
	at, err := c.mounted(ctx)
	if err != nil {
		return lsOutput{}, err
	}
	if in.Path == "" {
		in.Path = "/"
	}
	first := &firstNames{after: in.After, most: clamp(in.Limit, 200, 1000)}
	err = c.service.ListDir(ctx, api.WorkFileRequest{Access: c.Access, Workspace: at.ID, Path: in.Path}, first.add)
	if errors.Is(err, api.ErrInvalid) {
		return lsOutput{}, tell(api.ErrInvalid, "%s is no directory; workspace_stat describes it", display(in.Path))
	}
	if err != nil {
		return lsOutput{}, about(err, in.Path)
	}
	out := lsOutput{At: at.at(), Path: display(in.Path), Entries: []Entry{}, Truncated: first.more}
	for _, f := range first.files {
		out.Entries = append(out.Entries, entryOf(f, f.Path))
	}
	if first.more {
		out.NextAfter = out.Entries[len(out.Entries)-1].Path
	}
	return out, nil
}

// firstNames keeps the first names of a directory, in their order, however many it has.
type firstNames struct {
	after string
	most  int
	files []api.File
	more  bool
}

func (n *firstNames) add(f api.File) error {
	if n.after != "" && f.Path <= n.after {
		return nil
	}
	at, _ := slices.BinarySearchFunc(n.files, f, func(a, b api.File) int { return strings.Compare(a.Path, b.Path) })
	if at == n.most {
		n.more = true
		return nil
	}
	n.files = slices.Insert(n.files, at, f)
	if len(n.files) > n.most {
		n.files, n.more = n.files[:n.most], true
	}
	return nil
}

func stat(ctx context.Context, c *call, in statInput) (statOutput, error) {
	at, err := c.mounted(ctx)
	if err != nil {
		return statOutput{}, err
	}
	f, err := c.service.StatFile(ctx, api.WorkFileRequest{
		Access: c.Access, Workspace: at.ID, Path: in.Path, NoFollow: in.NoFollow,
	})
	if err != nil {
		return statOutput{}, about(err, in.Path)
	}
	return statOutput{at.at(), entryOf(f, display(in.Path)), f.UID, f.GID, f.Links}, nil
}
