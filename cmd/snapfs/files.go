package main

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// raiseFiles lets the daemon have as many descriptors as the kernel gives to one process: it holds one for every file
// that programs have unlinked but still use. Without the right to it, the limit stays.
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
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: most}) // see above
}
