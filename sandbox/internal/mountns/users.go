package mountns

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/internal/processes"
)

// How a process uses a mount, for messages.
const (
	UsesDirectory = "its working directory"
	UsesRoot      = "its root directory"
	UsesProgram   = "its program"
	UsesFile      = "an open file"
	UsesMapping   = "a mapped file"
)

// linksOf are what /proc tells of a process in links, with how it uses the mount to which they lead.
var linksOf = map[string]string{"cwd": UsesDirectory, "root": UsesRoot, "exe": UsesProgram}

// mostUsers bounds what Users tells.
const mostUsers = 3

// User is a process that uses a mount.
type User struct {
	PID int    `json:"pid"`
	How string `json:"how"`
}

// users finds processes that use the file system of a device, or the mount with an id, also after it was taken away.
func (c *child) users() {
	if c.Device == 0 { // that of memory without a file
		return
	}
	processes.Each(func(dir string, pid int) bool {
		if how := c.uses(dir); how != "" {
			c.place.Users = append(c.place.Users, User{pid, how})
		}
		return len(c.place.Users) < mostUsers
	})
}

// uses tells how a process uses what is asked for; "" if it does not. Servers of file systems are asked nothing.
func (c *child) uses(dir string) (how string) {
	for link, how := range linksOf {
		var st unix.Statx_t
		err := unix.Statx(unix.AT_FDCWD, filepath.Join(dir, link), unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st)
		if err == nil && (unix.Mkdev(st.Dev_major, st.Dev_minor) == c.Device || c.ID != 0 && st.Mnt_id == c.ID) {
			return how
		}
	}
	// Files of an overlay have other device numbers than it has.
	fds, _ := os.ReadDir(filepath.Join(dir, "fdinfo")) // a process that has ended holds nothing
	for _, fd := range fds {
		text, _ := os.ReadFile(filepath.Join(dir, "fdinfo", fd.Name()))
		_, rest, _ := strings.Cut(string(text), "mnt_id:")
		id, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
		if n, err := strconv.ParseUint(id, 10, 64); err == nil && c.ID != 0 && n == c.ID {
			return UsesFile
		}
	}
	maps, _ := os.ReadFile(filepath.Join(dir, "maps"))
	if strings.Contains(string(maps), fmt.Sprintf(" %02x:%02x ", unix.Major(c.Device), unix.Minor(c.Device))) {
		return UsesMapping
	}
	return ""
}
