package api

import (
	"strings"
	"time"
)

// FilesRequest asks what is at a path of a snapshot, or of what a workspace holds now.
//
// Ref names the snapshot or the workspace, and Path is the path in it; "" and "/" are its root. With an empty Path, Ref
// may have both, as REF:PATH. If PATH begins with a slash, REF ends before the first ":/". Else every colon may be the
// one: ErrConflict if more than one way to read it names something.
//
// Symbolic links on the way, and at the end, are followed, as if the tree were the whole file system; ErrRefused for one
// that leads above the root.
type FilesRequest struct {
	Access
	Ref  string `json:"ref"`
	Path string `json:"path,omitempty"`
	// Recursive lists what is in directories, too.
	Recursive bool `json:"recursive,omitempty"`
}

// File is something in a tree. RawPath and RawTarget are the base64 of what is not UTF-8.
type File struct {
	Path      string    `json:"path"` // relative to the directory that was asked for; of a file its name
	RawPath   []byte    `json:"raw_path,omitempty"`
	Mode      uint32    `json:"mode"` // type and permissions, as of stat(2)
	UID       uint32    `json:"uid"`
	GID       uint32    `json:"gid"`
	Links     uint32    `json:"links"`
	Size      int64     `json:"size"`
	Modified  time.Time `json:"modified"`
	Device    uint64    `json:"device,omitempty"` // number of a device file
	Target    string    `json:"target,omitempty"` // of a symbolic link
	RawTarget []byte    `json:"raw_target,omitempty"`
}

// SplitPlace divides REF:PATH where PATH begins with a slash.
func SplitPlace(place string) (ref, path string, ok bool) {
	if IsRef(place) { // JSON may have any text in it
		end := strings.LastIndexByte(place, '}') + 1
		if path, ok = strings.CutPrefix(place[end:], ":"); ok {
			return place[:end], path, true
		}
		return "", "", false
	}
	i := strings.Index(place, ":/")
	if i < 0 {
		return "", "", false
	}
	return place[:i], place[i+1:], true
}
