package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"snapfs/internal/processes"

	"golang.org/x/sys/unix"
)

// user is a process that uses a mount.
type user struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
}

func (u user) String() string { return fmt.Sprintf("pid %d (%s)", u.PID, u.Command) }

// users names the processes that use a directory or something below it, as far as /proc shows them to this user. The
// directory itself is not asked anything: a mount in trouble would not answer.
func users(dir string) string {
	found := processesUsing(func(link string) bool {
		target, err := os.Readlink(link)
		return err == nil && (target == dir || strings.HasPrefix(target, dir+"/"))
	})
	if len(found) == 0 {
		return "processes that are not visible from here"
	}
	names := make([]string, len(found))
	for i, u := range found {
		names[i] = u.String()
	}
	return strings.Join(names, ", ")
}

// usersOf lists the processes that use the file system of a device, as users does.
func usersOf(device uint64) []user { return processesUsing(onDevice(device)) }

// onDevice reports whether a link of /proc leads to the file system of a device.
func onDevice(device uint64) func(link string) bool {
	return func(link string) bool {
		var st unix.Statx_t
		err := unix.Statx(unix.AT_FDCWD, link, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, 0, &st)
		return err == nil && unix.Mkdev(st.Dev_major, st.Dev_minor) == device
	}
}

// processesUsing lists the other processes of whose links in /proc one fits: of the working directory, the root, the
// program, and the open or mapped files.
func processesUsing(fits func(link string) bool) []user {
	var found []user
	processes.Each(func(dir string, pid int) bool {
		if pid != os.Getpid() && uses(dir, fits) {
			comm, _ := os.ReadFile(dir + "/comm") // empty if the process has ended
			found = append(found, user{pid, strings.TrimSpace(string(comm))})
		}
		return true
	})
	return found
}

func uses(dir string, fits func(link string) bool) bool {
	links := []string{dir + "/cwd", dir + "/root", dir + "/exe"}
	for _, pattern := range []string{dir + "/fd/*", dir + "/map_files/*"} {
		more, _ := filepath.Glob(pattern) // the pattern is well formed
		links = append(links, more...)
	}
	for _, l := range links {
		if fits(l) {
			return true
		}
	}
	return false
}
