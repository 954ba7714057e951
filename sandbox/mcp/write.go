package mcp

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"snapfs/sandbox/api"
)

type writeInput struct {
	Path       string `json:"path" jsonschema:"the file to make or to replace; missing directories on the way are made"`
	Content    string `json:"content" verbatim:"yes" jsonschema:"all that the file is to hold, 4 MiB at most"`
	Encoding   string `json:"encoding,omitempty" jsonschema:"of content: utf-8 if it is not given, or base64 for binary files"`
	CreateOnly bool   `json:"create_only,omitempty" jsonschema:"refuse to replace a file that is there"`
	Mode       string `json:"mode,omitempty" jsonschema:"permissions of a new file, octal, such as 0755; 0644 if it is not given"`
}

type fileOutput struct {
	At
	Path string `json:"path"`
	Size int64  `json:"size" jsonschema:"bytes that the file has now"`
}

func (o fileOutput) text() string { return fmt.Sprintf("%s has %d bytes now.", o.Path, o.Size) }

type editInput struct {
	Path       string `json:"path" jsonschema:"the file to change"`
	OldText    string `json:"old_text" verbatim:"yes" jsonschema:"the text to replace, exactly as it is in the file; it must be there once, unless replace_all is set"`
	NewText    string `json:"new_text" verbatim:"yes" jsonschema:"the text that takes its place"`
	ReplaceAll bool   `json:"replace_all,omitempty" jsonschema:"replace it wherever it is"`
}

type editOutput struct {
	At
	Path     string `json:"path"`
	Replaced int    `json:"replaced" jsonschema:"how often the text was replaced"`
	Size     int64  `json:"size"`
}

func (o editOutput) text() string {
	return fmt.Sprintf("%s: replaced %s; it has %d bytes now.", o.Path, times(o.Replaced), o.Size)
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return strconv.Itoa(n) + " times"
}

type mkdirInput struct {
	Path string `json:"path" jsonschema:"the directory to make; missing directories on the way are made, and one that is there is no error"`
}

type doneOutput struct {
	At
	Path string `json:"path"`
	done string
}

func (o doneOutput) text() string { return o.Path + " " + o.done }

type rmInput struct {
	Path      string `json:"path" jsonschema:"the file or directory to remove"`
	Recursive bool   `json:"recursive,omitempty" jsonschema:"remove a directory with all that is in it"`
}

func (b *builder) addWrites() {
	add(b, tool{
		"workspace_write_file", "Write a file",
		"Makes a file of the workspace at hand, or replaces all that one holds. To change a part of a file, workspace_edit_file " +
			"is better.",
		api.ScopeWrite,
		effect{destructive: true, idempotent: true},
	}, writeFile)
	add(b, tool{
		"workspace_edit_file", "Edit a file",
		"Replaces a text in a file by another one, exactly. Read the file first.",
		api.ScopeWrite,
		effect{destructive: true},
	}, editFile)
	add(b, tool{
		"workspace_mkdir", "Make a directory", "Makes a directory in the workspace at hand.",
		api.ScopeWrite,
		effect{idempotent: true},
	}, mkdir)
	add(b, tool{
		"workspace_rm", "Remove a file", "Removes a file, or with recursive=true a directory with all that is in it.",
		api.ScopeWrite,
		effect{destructive: true, idempotent: true},
	}, rm)
}

func writeFile(ctx context.Context, c *call, in writeInput) (fileOutput, error) {
	content, mode := in.Content, uint64(0)
	switch in.Encoding {
	case "", "utf-8":
	case "base64":
		data, err := base64.StdEncoding.DecodeString(in.Content)
		if err != nil {
			return fileOutput{}, tell(api.ErrInvalid, "content is not base64: %v", err)
		}
		content = string(data)
	default:
		return fileOutput{}, tell(api.ErrInvalid, "encoding is utf-8 or base64")
	}
	if len(content) > maxContent {
		return fileOutput{}, tell(api.ErrInvalid, "content has %d bytes; one call writes %d at most", len(content), maxContent)
	}
	if in.Mode != "" {
		var err error
		if mode, err = strconv.ParseUint(in.Mode, 8, 12); err != nil || mode == 0 || mode > 0o777 {
			return fileOutput{}, tell(api.ErrInvalid, "mode is octal, 0001 to 0777")
		}
	}
	at, err := c.mounted(ctx)
	if err != nil {
		return fileOutput{}, err
	}
	f, err := c.service.PutFile(ctx, api.PutFileRequest{
		WorkFileRequest: api.WorkFileRequest{Access: c.Access, Workspace: at.ID, Path: in.Path},
		Mode:            uint32(mode), Parents: true, Exclusive: in.CreateOnly, Size: int64(len(content)),
	}, strings.NewReader(content))
	if errors.Is(err, api.ErrConflict) && in.CreateOnly {
		err = tell(api.ErrConflict, "%s is there already: leave create_only out to replace it, or choose another path", display(in.Path))
	}
	if err != nil {
		return fileOutput{}, about(err, in.Path)
	}
	return fileOutput{at.at(), display(in.Path), f.Size}, nil
}

func editFile(ctx context.Context, c *call, in editInput) (editOutput, error) {
	switch {
	case in.OldText == "":
		return editOutput{}, tell(api.ErrInvalid, "old_text is empty: workspace_write_file makes a file")
	case in.OldText == in.NewText:
		return editOutput{}, tell(api.ErrInvalid, "old_text and new_text are equal: there is nothing to do")
	case len(in.OldText)+len(in.NewText) > api.MaxEdit:
		return editOutput{}, tell(api.ErrInvalid, "old_text and new_text may have %d bytes together: make several edits", api.MaxEdit)
	}
	at, err := c.mounted(ctx)
	if err != nil {
		return editOutput{}, err
	}
	got, err := c.service.EditFile(ctx, api.EditFileRequest{
		WorkFileRequest: api.WorkFileRequest{Access: c.Access, Workspace: at.ID, Path: in.Path},
		Old:             in.OldText, New: in.NewText, All: in.ReplaceAll,
	})
	if errors.Is(err, api.ErrConflict) {
		return editOutput{}, tell(api.ErrConflict, "%s is not changed: %s. Read the file, and give more of the text around the "+
			"place, exactly as it is there, or set replace_all.", display(in.Path), c.scrub(err.Error()))
	}
	if err != nil {
		return editOutput{}, about(err, in.Path)
	}
	return editOutput{at.at(), display(in.Path), got.Replaced, got.Size}, nil
}

func mkdir(ctx context.Context, c *call, in mkdirInput) (doneOutput, error) {
	at, err := c.mounted(ctx)
	if err != nil {
		return doneOutput{}, err
	}
	_, err = c.service.MakeDir(ctx, api.MakeDirRequest{
		WorkFileRequest: api.WorkFileRequest{Access: c.Access, Workspace: at.ID, Path: in.Path}, Parents: true,
	})
	if errors.Is(err, api.ErrConflict) {
		err = tell(api.ErrConflict, "there is something at %s, or on the way, that is no directory", display(in.Path))
	}
	if err != nil {
		return doneOutput{}, about(err, in.Path)
	}
	return doneOutput{at.at(), display(in.Path), "is a directory."}, nil
}

func rm(ctx context.Context, c *call, in rmInput) (doneOutput, error) {
	if display(in.Path) == "/" {
		return doneOutput{}, tell(api.ErrInvalid, "the root of the workspace cannot be removed: remove what is in it")
	}
	at, err := c.mounted(ctx)
	if err != nil {
		return doneOutput{}, err
	}
	err = c.service.RemoveFile(ctx, api.RemoveFileRequest{
		WorkFileRequest: api.WorkFileRequest{Access: c.Access, Workspace: at.ID, Path: in.Path}, Recursive: in.Recursive,
	})
	if errors.Is(err, api.ErrConflict) && !in.Recursive {
		err = tell(api.ErrConflict, "%s is a directory that is not empty: recursive=true removes it with all that is in it; "+
			"workspace_snapshot before that makes it safe", display(in.Path))
	}
	if err != nil {
		return doneOutput{}, about(err, in.Path)
	}
	return doneOutput{at.at(), display(in.Path), "is removed."}, nil
}
