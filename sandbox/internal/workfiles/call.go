package workfiles

import (
	"encoding/json"

	"snapfs/sandbox/internal/peer"
)

// Names of the calls.
const (
	Stat   = "stat"
	List   = "list"
	Get    = "get"
	Put    = "put"
	Edit   = "edit"
	Make   = "make"
	Move   = "move"
	Remove = "remove"
	Glob   = "glob"
	Grep   = "grep"
	Watch  = "watch"
	sweep  = "sweep" // removes what a child that was killed has left
)

// Mount is where a workspace is mounted.
type Mount struct {
	// Process has the mount namespace and the root directory in which Path is; 0: those of this process.
	Process int    `json:"process,omitempty"`
	Path    string `json:"path"`   // without symbolic links
	Device  uint64 `json:"device"` // of the file system
}

// task is what a child is to do.
type task struct {
	Do      string          `json:"do"`
	Mount   Mount           `json:"mount"`
	User    *peer.User      `json:"user,omitempty"`  // whose rights to files count; nil: those of the process
	Plain   bool            `json:"plain,omitempty"` // see Call
	Temp    string          `json:"temp,omitempty"`  // a name for a file that is not complete
	Request json.RawMessage `json:"request"`
}
