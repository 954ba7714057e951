package processes

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Life gives when a process began, in the kernel's ticks and never 0, and whether it goes on: one that is a zombie, or
// was killed, does not, even if one of its threads still waits in the kernel. began is 0 if the kernel does not tell: there
// is no such process, or /proc cannot be read. See proc_pid_stat(5) and proc_pid_status(5).
func Life(pid int) (began uint32, alive bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return 0, false
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the name before may hold anything
	const state, starttime = 0, 19                                       // fields 3 and 22 of the whole line
	if len(f) <= starttime {
		return 0, false
	}
	ticks, err := strconv.ParseUint(f[starttime], 10, 64)
	if err != nil {
		return 0, false
	}
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return 0, false
	}
	return uint32(ticks) | 1, f[state] != "Z" && f[state] != "X" && !killed(status)
}

// killed reports whether SIGKILL is pending: all threads of a process have that when it ends.
func killed(status []byte) bool {
	_, after, _ := strings.Cut(string(status), "\nSigPnd:\t")
	mask, _, _ := strings.Cut(after, "\n")
	pending, err := strconv.ParseUint(mask, 16, 64)
	return err == nil && pending&(1<<(unix.SIGKILL-1)) != 0
}
