package sandbox

import (
	"fmt"
	"os"

	"snapfs/sandbox/internal/mountns"
	"snapfs/sandbox/internal/workfiles"
)

// A process must not touch its own mounts, and its threads are in one mount namespace. So a child mounts inside a mount
// of this process, and in other mount namespaces, and another one uses the files in mounts (StatFile and so on): the
// program of this process, started again. A program that wants that calls IsMounter and RunMounter first of all in its
// main function; in others, such mounts and calls are ErrUnavailable.

// IsMounter reports whether the program was started by itself to call RunMounter, and do nothing else. It tells package
// sandbox that the program knows.
func IsMounter() bool {
	mountns.Enable()
	workfiles.Enable()
	return len(os.Args) > 0 && (os.Args[0] == mountns.Name || os.Args[0] == workfiles.Name)
}

// RunMounter does what a process that IsMounter is started for, and returns its exit code.
func RunMounter() int {
	main := func() error { return mountns.Main(os.Stdin, os.Stdout) }
	if os.Args[0] == workfiles.Name {
		main = workfiles.Main
	}
	if err := main(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
