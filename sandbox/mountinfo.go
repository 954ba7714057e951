package sandbox

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
)

const mountType = "fuse.snapfs"

// mountEntry is one line of /proc/PID/mountinfo (proc(5)).
type mountEntry struct {
	device string // major:minor
	point  string
	fstype string
	source string
}

// mountTable lists the mounts of a mount namespace, oldest first.
type mountTable []mountEntry

// readMounts reads the table of this process. It asks no file system anything.
func readMounts() (mountTable, error) { return readMountinfo("/proc/self/mountinfo") }

func readMountinfo(path string) (mountTable, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading
	return parseMountinfo(f)
}

func parseMountinfo(r io.Reader) (mountTable, error) {
	var table mountTable
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		// 36 35 98:0 /root /point rw,noatime shared:1 … - type source options
		left, right, ok := strings.Cut(lines.Text(), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 2 {
			return nil, fmt.Errorf("mountinfo: cannot read line %s", shown(lines.Text()))
		}
		table = append(table, mountEntry{device: l[2], point: unescapeMount(l[4]), fstype: r[0], source: unescapeMount(r[1])})
	}
	return table, lines.Err()
}

// unescapeMount undoes the octal escapes for blank, tab, newline and backslash.
func unescapeMount(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#").Replace(s)
}

// at is the topmost mount exactly at a place.
func (t mountTable) at(point string) (mountEntry, bool) {
	for i := len(t) - 1; i >= 0; i-- {
		if t[i].point == point {
			return t[i], true
		}
	}
	return mountEntry{}, false
}

// hasDevice reports whether a file system is mounted anywhere in the table.
func (t mountTable) hasDevice(device string) bool {
	for _, e := range t {
		if e.device == device {
			return true
		}
	}
	return false
}

// below reports whether path is dir or lies in it, by the letters of both.
func below(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
