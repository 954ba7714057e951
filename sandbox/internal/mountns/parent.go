package mountns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Name is the first argument, the program's name, by which a program knows that it is to call Main.
const Name = "snapfs-mounts"

// enabled says that this program calls Main when it is started under Name.
var enabled atomic.Bool

// Enable is called by a program that calls Main when it is started under Name. To call disable takes that back.
func Enable() (disable func()) {
	enabled.Store(true)
	return func() { enabled.Store(false) }
}

// Enabled reports whether Run can do anything.
func Enabled() bool { return enabled.Load() }

// ErrDisabled says that this program has no child processes that mount.
var ErrDisabled = errors.New("this program cannot mount in other mount namespaces, nor inside its own mounts")

// limit bounds a child. What it asks may hang with the server of the file system in which the directory is.
const limit = 20 * time.Second

// Operations of a Request.
const (
	Look    = "look"    // look a directory up
	Attach  = "attach"  // attach a mount to a directory
	Copy    = "copy"    // attach a copy of a mount that is somewhere else
	Detach  = "detach"  // take a mount away
	Change  = "change"  // change the attributes of a mount
	Vacate  = "vacate"  // give a directory back: clear its guard, remove it if it was made for the mount
	Sync    = "sync"    // write back what programs stored through shared mappings
	Overlay = "overlay" // attach an overlay of the kernel, which is made for it
	Users   = "users"   // tell by Place.Users which processes use the file system of Device, or the mount ID
	InUse   = "in use"  // tell by Place.Mounted whether an overlay of the kernel has an upper
)

// Request is what a child is to do. Path is absolute; for Look, Attach and Copy it is that of the process whose root is
// given, for the others, what Place.Path told.
type Request struct {
	Do   string `json:"do"`
	Path string `json:"path"`

	Make    bool   `json:"make,omitempty"`    // the last element of the path, if it is missing
	Guard   bool   `json:"guard,omitempty"`   // the directory, if that is possible
	Guarded uint64 `json:"guarded,omitempty"` // inode number of the directory that has a guard of ours already

	From   string `json:"from,omitempty"`   // Copy: path of the mount, in the namespace from
	Device uint64 `json:"device,omitempty"` // of the file system that is meant

	ID uint64 `json:"id,omitempty"` // Users: of a mount, as Place.ID told; 0 if it is not known

	Lazy  bool   `json:"lazy,omitempty"`  // Detach
	Set   uint64 `json:"set,omitempty"`   // Change, Copy: attributes as mount_setattr(2) has them
	Clear uint64 `json:"clear,omitempty"` // as above

	Merge *Merge `json:"merge,omitempty"` // Overlay, InUse

	Namespace int `json:"-"` // descriptors; 0: that of this process, or none
	Root      int `json:"-"`
	Mount     int `json:"-"`
	Source    int `json:"-"`
}

// Place is what a child found or did.
type Place struct {
	Path    string `json:"path"` // without symbolic links, from the root of the namespace
	Missing bool   `json:"missing,omitempty"`
	Dir     bool   `json:"dir,omitempty"`
	Mounted bool   `json:"mounted,omitempty"` // something is mounted there
	Made    bool   `json:"made,omitempty"`
	Guarded uint64 `json:"guarded,omitempty"` // inode number of the directory, if it has a guard of ours
	Device  uint64 `json:"device,omitempty"`  // of an overlay that was made
	ID      uint64 `json:"id,omitempty"`      // of its mount
	Users   []User `json:"users,omitempty"`
}

// answer is what a child prints.
type answer struct {
	Place Place  `json:"place"`
	Error string `json:"error,omitempty"`
	Errno int    `json:"errno,omitempty"`
}

// fds are the descriptors that a request has, by their places in the child.
type fds struct {
	Namespace int `json:"namespace,omitempty"`
	Root      int `json:"root,omitempty"`
	Mount     int `json:"mount,omitempty"`
	Source    int `json:"source,omitempty"`
}

// order is what a child reads.
type order struct {
	Request
	FDs fds `json:"fds"`
}

// Run has a child carry out a request. Errors: ErrDisabled, and others with the errno of what
// failed.
func Run(ctx context.Context, r Request) (Place, error) {
	if !enabled.Load() {
		return Place{}, ErrDisabled
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	o := order{Request: r}
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{Name}
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	var files []*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close() // nothing was written
		}
	}()
	for _, pass := range []struct {
		from int
		to   *int
	}{{r.Namespace, &o.FDs.Namespace}, {r.Root, &o.FDs.Root}, {r.Mount, &o.FDs.Mount}, {r.Source, &o.FDs.Source}} {
		if pass.from == 0 {
			continue
		}
		fd, err := unix.FcntlInt(uintptr(pass.from), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return Place{}, fmt.Errorf("passing a descriptor: %w", err)
		}
		files = append(files, os.NewFile(uintptr(fd), "passed"))
		*pass.to = 2 + len(files)
	}
	cmd.ExtraFiles = files
	in, err := json.Marshal(o)
	if err != nil {
		return Place{}, err
	}
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &said
	runErr := cmd.Run()
	var a answer
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		if ctx.Err() != nil {
			runErr = ctx.Err()
		}
		return Place{}, fmt.Errorf("a process that mounts: %w: %s", errors.Join(runErr, err), bytes.TrimSpace(said.Bytes()))
	}
	if a.Error != "" {
		return a.Place, childError{a.Error, unix.Errno(a.Errno)}
	}
	return a.Place, nil
}

// childError is an error of a child, with its errno.
type childError struct {
	text  string
	errno unix.Errno
}

func (e childError) Error() string { return e.text }

func (e childError) Unwrap() error {
	if e.errno == 0 {
		return nil
	}
	return e.errno
}
