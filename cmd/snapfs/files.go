package main

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// raiseFiles raises the limit of open files to the most that the kernel allows for one process. The daemon holds a
// descriptor for every file that programs have unlinked but still use. Without the privilege, the limit stays.
func raiseFiles() {
	text, err := os.ReadFile("/proc/sys/fs/nr_open")
	if err != nil {
		return
	}
	most, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return
	}
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil || r.Max >= most {
		return
	}
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: most}) // best effort
}
