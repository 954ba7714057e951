package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

const maxLinks = 40 // as the kernel's limit

// location is what a path from outside leads to.
type location struct {
	path    string      // absolute, without symbolic links as far as it was followed
	inside  string      // workspace of this home whose mount it leads into; nothing is known beyond the mountpoint then
	missing int         // elements at the end that do not exist
	info    os.FileInfo // nil if missing or inside

	holdsHome bool // the home is in it or is it; by outside

	// Of a place in another mount namespace, or in a mount of this home. Another process has looked, so info is nil.
	apart   bool
	view    view
	dir     bool // it is a directory
	covered bool // something is mounted there
}

// locate follows symbolic links as the kernel does, but never asks a mount of this home anything: that would have to be
// answered by this process. links reports whether a link at the very end is followed too.
func (h *Home) locate(path string, mounts mountTable) (location, error) {
	if !filepath.IsAbs(path) {
		return location{}, fmt.Errorf("%w: path %s is not absolute", ErrInvalid, api.Quoted(path))
	}
	if strings.ContainsRune(path, 0) || len(path) >= unix.PathMax {
		return location{}, fmt.Errorf("%w: path %s", ErrInvalid, api.Quoted(path))
	}
	ours := h.mountpoints(mounts)
	cur := "/"
	todo := strings.Split(path, "/")
	var info os.FileInfo
	for links := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			cur, info = filepath.Dir(cur), nil
			continue
		}
		next := filepath.Join(cur, name)
		if ws, ok := ours[next]; ok {
			return location{path: filepath.Join(append([]string{next}, todo...)...), inside: ws}, nil
		}
		fi, err := os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) {
			return location{path: filepath.Join(append([]string{next}, todo...)...), missing: 1 + elements(todo)}, nil
		}
		if err != nil {
			return location{}, pathError(next, err)
		}
		if fi.Mode()&fs.ModeSymlink == 0 {
			cur, info = next, fi
			continue
		}
		if links++; links > maxLinks {
			return location{}, pathError(path, unix.ELOOP)
		}
		target, err := os.Readlink(next)
		if err != nil {
			return location{}, pathError(next, err)
		}
		if filepath.IsAbs(target) {
			cur = "/"
		}
		todo = append(strings.Split(target, "/"), todo...)
		info = nil
	}
	if info == nil { // "/" or ended by ".."
		fi, err := os.Lstat(cur)
		if err != nil {
			return location{}, pathError(cur, err)
		}
		info = fi
	}
	return location{path: cur, info: info}, nil
}

// elements counts the names in what is left of a path.
func elements(todo []string) int {
	n := 0
	for _, name := range todo {
		if name != "" && name != "." {
			n++
		}
	}
	return n
}

// pathError puts what is wrong with a path that the caller gave into a class.
func pathError(path string, err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = errno // os errors repeat the path
	}
	switch {
	case errors.Is(err, unix.ENOTCONN):
		return fmt.Errorf("%w: %s is a mount whose server is gone: umount -l %s", ErrConflict, path, path)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s does not exist", ErrNotFound, path)
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG):
		return fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// mountpoints maps where mounts of this home are to their workspaces; bind mounts of them elsewhere count.
func (h *Home) mountpoints(mounts mountTable) map[string]string {
	devices := map[string]string{}
	points := map[string]string{}
	h.mu.Lock()
	for name, l := range h.live {
		devices[l.device] = name
		if at := l.at(); at.view.own() {
			points[at.path] = name
		}
	}
	h.mu.Unlock()
	delete(devices, "")
	for point := range points {
		if _, ok := mounts.at(point); !ok {
			delete(points, point)
		}
	}
	for _, e := range mounts {
		if name, ok := devices[e.device]; ok {
			points[e.point] = name
		}
	}
	return points
}
