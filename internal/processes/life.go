package processes

import (
	"os"
	"slices"
	"strconv"
)

// Life gives when a process began, in the kernel's ticks and never 0, and whether it goes on: one that is a zombie, or
// was killed, does not, even if one of its threads still waits in the kernel. began is 0 if the kernel does not tell: there
// is no such process, or /proc cannot be read.
func Life(pid int) (began uint32, alive bool) {
	s, ok := StatOfProcess(pid)
	if !ok {
		return 0, false
	}
	return uint32(s.Started) | 1, s.State != 'Z' && s.State != 'X' && !s.Killed()
}

// Runnable reports whether a thread of a process runs, or waits for nothing but a processor.
func Runnable(pid int) bool {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	threads, _ := os.ReadDir(dir) // with an error what is known
	return slices.ContainsFunc(threads, func(e os.DirEntry) bool {
		s, ok := StatOf(dir + "/" + e.Name())
		return ok && s.State == 'R'
	})
}
