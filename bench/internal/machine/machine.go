package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"snapfs/bench/internal/program"
)

// Machine is where a report was made.
type Machine struct {
	CPU      string            `json:"cpu"`
	Cores    int               `json:"cores"`
	Memory   int64             `json:"memory"` // bytes
	Kernel   string            `json:"kernel"`
	Go       string            `json:"go"`
	Version  string            `json:"snapfs"`
	Programs map[string]string `json:"programs"` // the peers' versions
}

// String is one line.
func (m Machine) String() string {
	return fmt.Sprintf(
		"%s, %d cores, %.0f GB, Linux %s, %s, snapfs %s", m.CPU, m.Cores, float64(m.Memory)/1e9, m.Kernel, m.Go,
		m.Version,
	)
}

// This describes the machine that this program runs on.
func This(ctx context.Context) (Machine, error) {
	m := Machine{Cores: runtime.GOMAXPROCS(0), Go: runtime.Version(), Programs: map[string]string{}}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return m, fmt.Errorf("uname: %w", err)
	}
	m.Kernel = unix.ByteSliceToString(u.Release[:])
	var si syscall.Sysinfo_t
	if err := syscall.Sysinfo(&si); err != nil {
		return m, fmt.Errorf("sysinfo: %w", err)
	}
	m.Memory = int64(si.Totalram) * int64(si.Unit)
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return m, fmt.Errorf("read cpu: %w", err)
	}
	for line := range strings.Lines(string(info)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			m.CPU = strings.TrimSpace(v)
			break
		}
	}
	m.Version = "unknown"
	if out, err := program.Output(ctx, "git", "describe", "--tags", "--always", "--dirty"); err == nil {
		m.Version = string(bytes.TrimSpace(out))
	}
	for name, args := range versionArgs {
		// A program that is missing is named where it is needed. Some print their version with an error, or on stderr.
		out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
		if errors.Is(err, exec.ErrNotFound) {
			continue
		}
		if v := versionIn.FindString(string(out)); v != "" {
			m.Programs[name] = v
		}
	}
	return m, ctx.Err()
}

// versionArgs makes programs print their version.
var versionArgs = map[string][]string{
	"restic":         {"version"},
	"borg":           {"--version"},
	"git":            {"--version"},
	"btrfs":          {"--version"},
	"mksquashfs":     {"-version"},
	"squashfuse":     {"--help"},
	"fuse-overlayfs": {"--version"},
	"rsync":          {"--version"},
	"tar":            {"--version"},
	"gzip":           {"--version"},
	"cp":             {"--version"},
	"fio":            {"--version"},
	"sqlite3":        {"--version"},
	"python3":        {"--version"},
	"node":           {"--version"},
	"npm":            {"--version"},
	"debootstrap":    {"--version"},
	"mount":          {"--version"},
}

// versionIn finds the first word that looks like a version.
var versionIn = regexp.MustCompile(`[0-9]+(\.[0-9]+)+(-dev|rc[0-9]+)?`)

// Same reports whether times of two machines can be compared.
func (m Machine) Same(o Machine) bool {
	return m.CPU == o.CPU && m.Cores == o.Cores && m.Kernel == o.Kernel
}

// ProgramLines lists the versions of the programs, in lines of at most width characters if their names are shorter.
func (m Machine) ProgramLines(width int) string {
	var lines []string
	line := ""
	for _, name := range slices.Sorted(maps.Keys(m.Programs)) {
		word := name + " " + m.Programs[name]
		switch {
		case line == "":
			line = word
		case len(line)+len(word)+2 > width:
			lines, line = append(lines, line+","), word
		default:
			line += ", " + word
		}
	}
	return strings.Join(append(lines, line), "\n")
}

// Load is the kernel's, of the last minute; 0 where it is not available.
func Load() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return load
}
