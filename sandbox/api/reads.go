package api

import "time"

// What was read.
const (
	ReadContent    = "content"    // of a file, or where a symbolic link leads
	ReadListing    = "listing"    // the names in a directory
	ReadMissing    = "missing"    // that there is nothing of that name
	ReadAttributes = "attributes" // that there is something of that name, or what stat tells
)

// MaxStaleReads is how many stale reads a result lists.
const MaxStaleReads = 1000

// Read is what programs have read of a file, a directory or a name.
type Read struct {
	Path    string `json:"path"` // relative, in the tree that the workspace was made with; "" is the root
	RawPath []byte `json:"raw_path,omitempty"`
	// Kinds are read kinds, see the constants.
	Kinds []string `json:"kinds"`
	// Whole says that something in the directory was read, and not what: there was too much to keep it apart.
	Whole bool `json:"whole,omitempty"`
}

// ReadsResult says what the record of reads is worth.
type ReadsResult struct {
	Workspace string     `json:"workspace"`
	Tracked   bool       `json:"tracked"` // reads are recorded, whenever the workspace is mounted
	Since     *time.Time `json:"since,omitempty"`
	// Gaps says why reads may be missing; it is empty if all are there since the workspace was made.
	Gaps []string `json:"gaps"`
}

// StaleRead is something that programs of an attempt have read and that the target has changed.
type StaleRead struct {
	Workspace string   `json:"workspace"` // whose programs
	Path      string   `json:"path"`
	RawPath   []byte   `json:"raw_path,omitempty"`
	Kinds     []string `json:"kinds"`  // as Read.Kinds
	Change    string   `json:"change"` // A added, M modified, D deleted, R renamed, T of another type: it, or what is in it
	// Coarse says that only is known that something in a directory above was read: see Read.Whole.
	Coarse bool `json:"coarse,omitempty"`
}
