package sandbox

import (
	"fmt"
	"os"

	"snapfs/sandbox/internal/mountns"
)

// A process must not touch its own mounts, and its threads are in one mount namespace. So a child mounts inside a mount
// of this process, and in other mount namespaces: the program of this process, started again. A program that wants that
// calls IsMounter and RunMounter first of all in its main function; in others, such mounts are ErrUnavailable.

// IsMounter reports whether the program was started by itself to call RunMounter, and do nothing else. It tells package
// sandbox that the program knows.
func IsMounter() bool {
	mountns.Enable()
	return len(os.Args) > 0 && os.Args[0] == mountns.Name
}

// RunMounter does what a process that IsMounter is started for, and returns its exit code.
func RunMounter() int {
	if err := mountns.Main(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
