// Package testchild has the environment of the processes that tests start from their own binary.
//
// Under the race detector a process sleeps for a second before it exits, so that goroutines that still run can be seen
// to race (GORACE, atexit_sleep_ms). Tests start hundreds of processes. Those that only use a mount, and run no code
// under test, do not need that second; a server that has waited for its goroutines needs little of it.
package testchild

import (
	"fmt"
	"os"
	"time"
)

// User is how long a process sleeps at its end that runs no code under test, Server one that has ended what it served.
const (
	User   = 0
	Server = 100 * time.Millisecond
)

// Env is the environment of this process with more variables, for a child that the race detector has sleep so long at
// its end.
func Env(sleep time.Duration, more ...string) []string {
	race := fmt.Sprintf("GORACE=%s atexit_sleep_ms=%d", os.Getenv("GORACE"), sleep.Milliseconds())
	return append(append(os.Environ(), race), more...)
}
