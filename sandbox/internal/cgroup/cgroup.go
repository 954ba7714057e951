// Package cgroup freezes the processes of control groups, and finds in which group a process is.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

const (
	// freezeWait bounds how long the kernel may take to freeze a group: a process that waits for a disk freezes after
	// it.
	freezeWait = 10 * time.Second
	// freezePoll is how often it is looked at meanwhile.
	freezePoll = time.Millisecond
	// freezeAgain is after how many looks a group of version 1 is told again, and thawEvery every which of these times it
	// goes on for a moment first: the freezer of version 1 misses processes of groups that start new ones all the time.
	freezeAgain, thawEvery = 20, 20
)

// Group is the directory of a control group whose processes can be frozen: of version 2, or of the freezer of version
// 1.
type Group string

// Open checks that a path is such a directory, and not one that this process, or another one that must go on, is in: it
// would freeze itself.
func Open(path string, others ...int) (Group, error) {
	if !filepath.IsAbs(path) || strings.ContainsAny(path, "\x00\n") || len(path) > 4096 {
		return "", fmt.Errorf("%w: cgroup %s: the absolute path of its directory is needed",
			api.ErrInvalid, api.Quoted(path))
	}
	if slices.Contains(strings.Split(path, "/"), "..") {
		return "", fmt.Errorf("%w: cgroup %s: the path of its directory without '..' is needed", api.ErrInvalid, api.Quoted(path))
	}
	g := Group(filepath.Clean(path))
	if !g.Exists() {
		return "", g.notFound()
	}
	real, err := filepath.EvalSymlinks(string(g)) // the processes of what a link leads to are those that freeze
	if err != nil {
		return "", g.notFound()
	}
	g = Group(real)
	for _, pid := range g.Processes() {
		if pid == os.Getpid() {
			return "", fmt.Errorf("%w: the process that serves the workspaces is in cgroup %s itself", api.ErrInvalid, g)
		}
		if slices.Contains(others, pid) {
			return "", fmt.Errorf("%w: process %d, which asks for it, is in cgroup %s itself", api.ErrInvalid, pid, g)
		}
	}
	return g, nil
}

func (g Group) notFound() error {
	return fmt.Errorf("%w: %s is no cgroup whose processes can be frozen", api.ErrNotFound, api.Quoted(string(g)))
}

// Writable gives the group by a path without symbolic links, if the calling thread may freeze it.
func (g Group) Writable() (Group, error) {
	dir, err := os.OpenFile(string(g), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = dir.Close() }() // nothing was written
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &fs); err != nil {
		return "", fmt.Errorf("cgroup %s: %w", g, err)
	}
	// Nobody but root makes a file system of this type, and it has no links that lead elsewhere.
	if fs.Type != unix.CGROUP2_SUPER_MAGIC && fs.Type != unix.CGROUP_SUPER_MAGIC {
		return "", fmt.Errorf("%w: %s is not in a file system of control groups", api.ErrInvalid, api.Quoted(string(g)))
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		return "", err
	}
	control, _, err := Group(path).files()
	if err != nil {
		return "", err
	}
	f, err := os.OpenFile(control, os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	return Group(path), f.Close()
}

// files are what is written to freeze, and what tells whether all are frozen.
func (g Group) files() (control, state string, err error) {
	for _, names := range [][2]string{{"cgroup.freeze", "cgroup.events"}, {"freezer.state", "freezer.state"}} {
		control, state = filepath.Join(string(g), names[0]), filepath.Join(string(g), names[1])
		if _, err := os.Stat(control); err == nil {
			return control, state, nil
		}
	}
	return "", "", g.notFound()
}

// Freeze stops all processes of the group where they are. If it cannot, or ctx ends, they go on.
func (g Group) Freeze(ctx context.Context) error {
	control, state, err := g.files()
	if err != nil {
		return err
	}
	word, done := "1", "frozen 1"
	if control == state {
		word, done = "FROZEN", "FROZEN"
	}
	freeze := func() error {
		if err := os.WriteFile(control, []byte(word), 0); err != nil {
			return fmt.Errorf("freezing cgroup %s: %w", g, err)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, freezeWait)
	defer cancel()
	err = freeze()
	for poll := 1; err == nil; poll++ {
		var now []byte
		if now, err = os.ReadFile(state); err == nil && strings.Contains(string(now), done) {
			return nil
		}
		select {
		case <-time.After(freezePoll):
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err == nil && control == state && poll%freezeAgain == 0 {
			if poll%(thawEvery*freezeAgain) == 0 {
				err = g.Thaw()
			}
			err = errors.Join(err, freeze())
		}
	}
	switch {
	case !g.Exists():
		return g.notFound() // its last process has ended
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w: the processes of cgroup %s do not freeze within %s", api.ErrUnavailable, g, freezeWait)
	}
	return errors.Join(err, g.Thaw())
}

// Thaw lets them go on. A group that is gone has no processes any more.
func (g Group) Thaw() error {
	control, state, err := g.files()
	if errors.Is(err, api.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	word := "0"
	if control == state {
		word = "THAWED"
	}
	if err := os.WriteFile(control, []byte(word), 0); err != nil && g.Exists() { // else it has just gone
		return fmt.Errorf("thawing cgroup %s: %w", g, err)
	}
	return nil
}
