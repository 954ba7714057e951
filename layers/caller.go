package layers

import (
	"bytes"
	"os"
	"slices"
	"strconv"
)

// Caller is who made a request, as the kernel sends it, in numbers of the server's own user and process name spaces: owner of what is
// created. Permission checks are the kernel's (default_permissions).
type Caller struct {
	UID, GID, PID uint32
	// Umask is taken off the mode of what is created, unless the directory has a default ACL.
	Umask uint32
}

// inGroup says whether the caller belongs to a group, or is root and need not. Requests do not carry the supplementary groups: /proc has
// them as long as the caller waits for its answer.
func (c Caller) inGroup(gid uint32) bool {
	if c.UID == 0 || c.GID == gid {
		return true
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(int(c.PID)) + "/status")
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(status, []byte("\nGroups:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	want := strconv.FormatUint(uint64(gid), 10)
	return slices.ContainsFunc(bytes.Fields(line), func(group []byte) bool { return string(group) == want })
}
