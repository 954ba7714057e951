package api

import (
	"context"
	"io"
	"path/filepath"
	"time"
)

// WorkFiles are calls about the files of a workspace as a program in it would make them: what they write, programs see
// at once, and the other way round. The workspace must be mounted: ErrConflict if it is not. Changes of a paused
// workspace wait until it is resumed, or ctx ends.
//
// Paths are those of the workspace, "/" is its root, and they may begin with a slash or not. Symbolic links are
// followed as if the workspace were the whole file system: no path leads out of it, whatever programs change meanwhile.
// What else is mounted inside the workspace is not entered: ErrRefused.
//
// Safe for concurrent use. A cancelled call leaves nothing half done, but for RemoveFile with Recursive. Functions that
// a call is given, readers and writers, are called one at a time, and not after it has returned.
type WorkFiles interface {
	// StatFile describes what a path leads to; with NoFollow a symbolic link itself.
	StatFile(ctx context.Context, r WorkFileRequest) (File, error)
	// ListDir calls fn for each name in a directory, in no order; Path of a File is the name. An error of fn ends it.
	ListDir(ctx context.Context, r WorkFileRequest, fn func(File) error) error
	// GetFile writes a range of a regular file, ErrInvalid for anything else.
	GetFile(ctx context.Context, r GetFileRequest, w io.Writer) (File, error)
	// PutFile makes a file of what body gives, or replaces one. Others see the old contents or the new ones, whole; an
	// error or the end of ctx leaves the old ones. What has the file open, and its other hard links, keep the old ones.
	// The last link of a path is followed, be what it leads to there or not; with NoFollow it is replaced.
	PutFile(ctx context.Context, r PutFileRequest, body io.Reader) (File, error)
	// EditFile replaces a text in a file, which is read and replaced as by PutFile. ErrConflict if the text is not there,
	// or more than once without All, or if the file changes meanwhile.
	EditFile(ctx context.Context, r EditFileRequest) (EditFileResult, error)
	// MakeDir makes a directory; ErrConflict if there is something, unless it is a directory and Parents is set.
	MakeDir(ctx context.Context, r MakeDirRequest) (File, error)
	// MoveFile renames.
	MoveFile(ctx context.Context, r MoveFileRequest) error
	// RemoveFile removes a file or a directory; ErrConflict for one that is not empty, unless Recursive is set.
	// ErrNotFound if there is nothing.
	RemoveFile(ctx context.Context, r RemoveFileRequest) error
	// Glob calls fn for the paths that match a pattern, in the order of names.
	Glob(ctx context.Context, r GlobRequest, fn func(File) error) (SearchResult, error)
	// Grep calls fn for the lines that match a regular expression, file by file in the order of names.
	Grep(ctx context.Context, r GrepRequest, fn func(GrepMatch) error) (SearchResult, error)
	// WatchFiles calls fn for what happens to files until ctx ends, or the workspace is unmounted: ErrConflict. It calls
	// ready, if that is not nil, when nothing that happens from then on is missed. It tells what programs do; a rollback,
	// an undo and what else moves the workspace is told as FileOverflow.
	WatchFiles(ctx context.Context, r WatchFilesRequest, ready func(), fn func(FileEvent) error) error
}

// ServiceMountpoint is where a service that uses the files of a workspace mounts it unless it is told where: in the
// directory mnt of the home, as the home itself calls its directory. Name it in a MountRequest, with MakeMountpoint.
// The directory is removed when the workspace is unmounted. A workspace that was renamed keeps its place.
func ServiceMountpoint(home, workspace string) string { return filepath.Join(home, "mnt", workspace) }

// WorkFileRequest names something in a workspace.
type WorkFileRequest struct {
	Access
	Workspace string `json:"workspace"`
	Path      string `json:"path"`
	NoFollow  bool   `json:"no_follow,omitempty"`
}

// GetFileRequest reads a file from Offset, at most Length bytes; all that follows if Length is 0.
type GetFileRequest struct {
	WorkFileRequest
	Offset int64 `json:"offset,omitempty"`
	Length int64 `json:"length,omitempty"`
}

// PutFileRequest writes a file.
type PutFileRequest struct {
	WorkFileRequest
	// Mode are the permissions of a new file, 0 for 0644. A file that is replaced keeps its permissions, its owner, its
	// ACL and its attributes named user.*. By who has a token, no file gets or keeps the bits setuid and setgid.
	Mode uint32 `json:"mode,omitempty"`
	// Parents makes missing directories on the way.
	Parents bool `json:"parents,omitempty"`
	// Exclusive refuses to replace anything: ErrConflict.
	Exclusive bool `json:"exclusive,omitempty"`
	// Size is how many bytes body gives: fewer are an error. -1: not known.
	Size int64 `json:"size"`
}

// MaxEdit is how many bytes the two texts of an edit have at most.
const MaxEdit = 768 << 10

// EditFileRequest replaces Old, which is not empty, by New in a file of at most 16 MiB; with All wherever it is. Both
// have MaxEdit bytes at most.
type EditFileRequest struct {
	WorkFileRequest
	Old string `json:"old"`
	New string `json:"new"`
	All bool   `json:"all,omitempty"`
}

// EditFileResult is the file after an edit.
type EditFileResult struct {
	File
	Replaced int `json:"replaced"`
}

// MakeDirRequest makes a directory, with Parents also those on the way. Mode 0 is 0755.
type MakeDirRequest struct {
	WorkFileRequest
	Mode    uint32 `json:"mode,omitempty"`
	Parents bool   `json:"parents,omitempty"`
}

// MoveFileRequest renames Path to To, in the same workspace. With NoReplace it is ErrConflict if To exists.
type MoveFileRequest struct {
	WorkFileRequest
	To        string `json:"to"`
	NoReplace bool   `json:"no_replace,omitempty"`
}

// RemoveFileRequest removes what is at Path, a symbolic link itself.
type RemoveFileRequest struct {
	WorkFileRequest
	Recursive bool `json:"recursive,omitempty"`
}

// GlobRequest looks below Path, which is a directory, for names that match Pattern: *, ?, [a-z], {a,b} and ** for any
// number of directories. Directories named .git are passed over unless Hidden is set.
type GlobRequest struct {
	WorkFileRequest
	Pattern string `json:"pattern"`
	Hidden  bool   `json:"hidden,omitempty"`
	Limit   int    `json:"limit,omitempty"` // of results; 0 means 1,000, and it is clamped at 10,000
}

// GrepRequest looks in the regular files below Path, or in the file at Path, for lines that match Pattern, in the
// syntax of RE2. Binary files, and directories named .git unless Hidden is set, are passed over.
type GrepRequest struct {
	WorkFileRequest
	Pattern string `json:"pattern"`
	// Include: only files that match this, as by GlobRequest; without a slash, their last name.
	Include    string `json:"include,omitempty"`
	IgnoreCase bool   `json:"ignore_case,omitempty"`
	Hidden     bool   `json:"hidden,omitempty"`
	Limit      int    `json:"limit,omitempty"` // of lines; 0 means 200, and it is clamped at 2,000
}

// GrepMatch is a line that matches. Text is at most 1,000 bytes of it.
type GrepMatch struct {
	Path    string `json:"path"` // in the workspace, beginning with a slash
	RawPath []byte `json:"raw_path,omitempty"`
	Line    int    `json:"line"` // from 1
	Text    string `json:"text"`
}

// SearchResult says how complete a search was.
type SearchResult struct {
	Truncated bool  `json:"truncated"` // a limit or bound ended it early
	Files     int64 `json:"files"`     // that were looked at
}

// WatchFilesRequest watches a directory, with Recursive all that is in it, or a file.
type WatchFilesRequest struct {
	WorkFileRequest
	Recursive bool `json:"recursive,omitempty"`
}

// FileEventKind is what happened to a file.
type FileEventKind string

// Kinds of a FileEvent.
const (
	FileCreated  FileEventKind = "created"
	FileModified FileEventKind = "modified"
	FileDeleted  FileEventKind = "deleted"
	FileRenamed  FileEventKind = "renamed"
	// FileOverflow: events were lost, because the reader was too slow or there are too many directories.
	FileOverflow FileEventKind = "overflow"
)

// FileEvent is something that happened to a file.
type FileEvent struct {
	Kind       FileEventKind `json:"kind"`
	Path       string        `json:"path"` // in the workspace, beginning with a slash
	RawPath    []byte        `json:"raw_path,omitempty"`
	OldPath    string        `json:"old_path,omitempty"`
	RawOldPath []byte        `json:"raw_old_path,omitempty"`
	Dir        bool          `json:"dir,omitempty"`
	At         time.Time     `json:"at"`
}
