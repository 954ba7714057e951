package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// machine is where a report was made.
type machine struct {
	CPU      string            `json:"cpu"`
	Cores    int               `json:"cores"`
	Memory   int64             `json:"memory"` // bytes
	Kernel   string            `json:"kernel"`
	Go       string            `json:"go"`
	Version  string            `json:"snapfs"`
	Programs map[string]string `json:"programs"` // the peers' versions
}

// String is one line.
func (m machine) String() string {
	return fmt.Sprintf("%s, %d cores, %.0f GB, Linux %s, %s, snapfs %s", m.CPU, m.Cores, float64(m.Memory)/1e9, m.Kernel, m.Go, m.Version)
}

func thisMachine(ctx context.Context) (machine, error) {
	m := machine{Cores: runtime.GOMAXPROCS(0), Go: runtime.Version(), Programs: map[string]string{}}
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
	if out, err := (tool{}).output(ctx, "git", "describe", "--tags", "--always", "--dirty"); err == nil {
		m.Version = string(bytes.TrimSpace(out))
	}
	for name, args := range map[string][]string{
		"restic": {"version"}, "borg": {"--version"}, "git": {"--version"}, "btrfs": {"--version"},
		"mksquashfs": {"-version"}, "node": {"--version"}, "npm": {"--version"},
	} {
		// A program that is missing is named where it is needed.
		if out, err := (tool{}).output(ctx, name, args...); err == nil {
			first, _, _ := strings.Cut(string(out), "\n")
			m.Programs[name] = strings.TrimSpace(first)
		}
	}
	return m, ctx.Err()
}
