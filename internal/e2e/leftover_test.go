package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mount is one line of mountinfo.
type mount struct {
	dir, kind, source string
	minor             uint32 // of a FUSE mount the number of its connection
}

// mountsBelow lists the mounts on a directory and below it, the innermost first. It touches none of them.
func mountsBelow(dir string) []mount {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var found []mount
	for line := range strings.Lines(string(text)) {
		left, right, ok := strings.Cut(strings.TrimSpace(line), " - ")
		f, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(f) < 5 || len(r) < 2 {
			continue
		}
		at := unescape(f[4])
		if at != dir && !strings.HasPrefix(at, dir+"/") {
			continue
		}
		var minor uint32
		if _, after, ok := strings.Cut(f[2], ":"); ok {
			n, _ := strconv.ParseUint(after, 10, 32) // the kernel writes numbers
			minor = uint32(n)
		}
		found = append([]mount{{at, r[0], unescape(r[1]), minor}}, found...)
	}
	return found
}

// unescape undoes mountinfo's octal escapes.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// marked lists the processes that belong to the test with this directory, by their environment.
func marked(dir string) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is well formed
	var pids []int
	for _, f := range files {
		env, err := os.ReadFile(f)
		if err != nil {
			continue // it is gone
		}
		has := bytes.Contains(append([]byte{0}, env...), []byte("\x00SNAPFS_E2E="+dir+"\x00"))
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil && has {
			pids = append(pids, pid)
		}
	}
	return pids
}

func commandLine(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(string(text), "\x00", " ")
}
