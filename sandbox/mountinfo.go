package sandbox

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"

	"snapfs/sandbox/internal/mountns"
)

const mountType = "fuse.snapfs"

// mountEntry is one line of /proc/PID/mountinfo (proc(5)).
type mountEntry struct {
	id     uint64 // of the mount
	device string // major:minor
	root   string // of the mount in the file system
	point  string
	fstype string
	source string
	apart  bool   // it does not follow what happens to its copies
	upper  string // of an overlay of the kernel, as upperOption has it; "" of others
}

// mountTable lists the mounts of a mount namespace, oldest first.
type mountTable []mountEntry

// root tells the root directory of the table from others: the topmost mount at /. "" if there is none.
func (t mountTable) root() string {
	for _, m := range slices.Backward(t) {
		if m.point == "/" {
			return m.device + " " + m.root
		}
	}
	return ""
}

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
	mounts, err := mountinfo.GetMountsFromReader(&shortLines{in: bufio.NewReaderSize(r, longestLine)}, nil)
	if err != nil {
		return nil, fmt.Errorf("mountinfo: %w", err)
	}
	table := make(mountTable, 0, len(mounts))
	for _, m := range mounts {
		device := strconv.Itoa(m.Major) + ":" + strconv.Itoa(m.Minor)
		e := mountEntry{
			id: uint64(m.ID), device: device, root: m.Root, point: m.Mountpoint, fstype: m.FSType, source: m.Source,
			apart: !strings.Contains(m.Optional, "shared:") && !strings.Contains(m.Optional, "master:"),
		}
		if m.FSType == overlayType {
			for o := range strings.SplitSeq(m.VFSOptions, ",") {
				if strings.HasPrefix(o, upperIs) {
					e.upper = o
				}
			}
		}
		table = append(table, e)
	}
	return table, nil
}

// upperIs begins the option of an overlay that names its upper.
const upperIs = "upperdir="

// optionEscapes are what mount tables have in place of some characters of the values of options, see seq_show_option in
// the kernel.
var optionEscapes = strings.NewReplacer(
	`\`, `\134`, ",", `\054`, " ", `\040`, "\t", `\011`, "\n", `\012`,
)

// upperOption is how mount tables name an upper. It tells overlays of the kernel apart: their device numbers are soon
// those of others.
func upperOption(path string) string { return upperIs + optionEscapes.Replace(mountns.Escaped(path)) }

// longestLine is a little less than what the library reads as one line.
const longestLine = 60 << 10

// shortLines cuts lines at longestLine. An overlay of hundreds of layers has longer ones, but what is cut off is of its
// options, which are at the end and which nobody asks for.
type shortLines struct {
	in   *bufio.Reader
	rest []byte // of the line that is being read
}

func (s *shortLines) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		line, long, err := s.in.ReadLine()
		if err != nil {
			return 0, err
		}
		s.rest = append(bytes.Clone(line), '\n')
		for long && err == nil { // an error comes again with the next line
			_, long, err = s.in.ReadLine()
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
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

// inside reports whether path is dir or lies in it, by these names or by those of another mount of the same file
// system. It asks the file systems above path only.
func (t mountTable) inside(path, dir string) bool {
	if below(path, dir) {
		return true
	}
	device, within := t.place(path)
	deviceDir, withinDir := t.place(dir)
	if device != "" && device == deviceDir && below(within, withinDir) {
		return true
	}
	want, err := os.Stat(dir)
	for err == nil {
		if info, err := os.Lstat(path); err == nil && os.SameFile(info, want) {
			return true
		}
		if path == "/" {
			break
		}
		path = filepath.Dir(path)
	}
	return false
}

// place tells in which file system a path is, and where there. Neither is known if the table was cut.
func (t mountTable) place(path string) (device, within string) {
	var m mountEntry
	for _, e := range t { // later mounts cover earlier ones
		if below(path, e.point) && len(e.point) >= len(m.point) {
			m = e
		}
	}
	if m.point == "" {
		return "", ""
	}
	rel, err := filepath.Rel(m.point, path)
	if err != nil {
		return "", ""
	}
	return m.device, filepath.Join(m.root, rel)
}

// below reports whether path is dir or lies in it, by the letters of both.
func below(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
