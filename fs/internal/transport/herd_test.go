package transport_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// herdEnv makes the test binary a program of many threads, which each change one file of their own: "what first count".
const herdEnv = "SNAPFS_TEST_HERD"

// herd is that program; its argument is the directory. It ends when all are done.
func herd(what string) {
	var op string
	var first, count int
	if _, err := fmt.Sscan(what, &op, &first, &count); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	dir := os.Args[len(os.Args)-1]
	var wg sync.WaitGroup
	for i := range count {
		name := filepath.Join(dir, "x"+strconv.Itoa(first+i))
		wg.Go(func() {
			var err error
			switch op {
			case "chmod":
				err = unix.Chmod(name, 0o600)
			case "setxattr":
				err = unix.Setxattr(name, "user.x", make([]byte, 64<<10), 0)
			}
			if err != nil {
				if !errors.Is(err, unix.ENOTCONN) && !errors.Is(err, unix.ECONNABORTED) { // the test ends the connection
					fmt.Fprintln(os.Stderr, name, err)
				}
				os.Exit(1)
			}
		})
	}
	wg.Wait()
}
