package dockerplugin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
)

// inOwnNamespace gives the context of a call that mounts where this process sees it, wherever the engine runs: all
// engines are to find the same mount.
func inOwnNamespace(ctx context.Context) context.Context {
	return sandbox.WithProcess(ctx, os.Getpid())
}

// longestLine bounds a line of mountinfo.
const longestLine = 1 << 20

// seenBy is an error if a process does not see the mount of a workspace at a path, because it is in another mount
// namespace to which the mount does not come: it would give its containers an empty directory. 0 is a process that is not
// known here.
func seenBy(pid int, path string) error {
	if pid <= 0 {
		return nil
	}
	dir := fmt.Sprintf("/proc/%d", pid)
	own, ownErr := os.Readlink("/proc/self/ns/mnt")
	its, err := os.Readlink(filepath.Join(dir, "ns/mnt"))
	if errors.Join(ownErr, err) != nil || own == its {
		return nil
	}
	f, err := os.Open(filepath.Join(dir, "mountinfo"))
	if err != nil {
		return nil // it has ended
	}
	defer func() { _ = f.Close() }() // opened for reading
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		f := strings.Fields(before)
		if len(f) > 4 && unescape(f[4]) == path && strings.HasPrefix(after, "fuse.snapfs ") {
			return nil
		}
	}
	if lines.Err() != nil {
		return nil // it has ended
	}
	todo := "let the daemon and the engine run in the same one, or share mounts (mount --make-rshared /)"
	if os.Geteuid() != 0 {
		todo = "end the daemon, and start it in that of rootless Podman ('podman unshare snapfs serve --docker-plugin'), or have " +
			"root share mounts ('mount --make-rshared /') and then run 'podman system migrate'"
	}
	return fmt.Errorf("%w: process %d, which asks, is in another mount namespace, where %s is not the mount of the "+
		"workspace: %s", api.ErrUnavailable, pid, path, todo)
}

// unescape undoes mountinfo's octal escapes.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
