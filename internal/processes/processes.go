// Package processes goes through the processes of the system, and reads what the kernel says of one.
package processes

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// patience is how long the kernel may take to answer for one process.
	patience = 200 * time.Millisecond
	// maxUnanswered bounds the questions that wait for an answer: each has a thread.
	maxUnanswered = 32
)

var (
	unanswered sync.Map // the directories in /proc of processes that are asked about
	asked      atomic.Int32
)

// Each calls fn for the processes of this pid namespace, with the directory in /proc and the id, until fn returns false.
// What the kernel does not answer for is passed over: a process in execve(2), or one that ends, may wait for a file
// system that hangs, and whoever looks at it in /proc waits for it. Safe for concurrent use.
func Each(fn func(dir string, pid int) bool) {
	entries, _ := os.ReadDir("/proc") // without /proc there is nobody
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		if answers(dir, ask) && !fn(dir, pid) {
			return
		}
	}
}

// ask reads what the kernel shows only of a process that is not in execve(2).
func ask(dir string) {
	_, _ = os.Readlink(filepath.Join(dir, "ns/mnt")) // an error is an answer
}

// answers reports whether a question about a process is answered in time.
func answers(dir string, ask func(dir string)) bool {
	if asked.Add(1) > maxUnanswered {
		asked.Add(-1)
		return false
	}
	if _, waits := unanswered.LoadOrStore(dir, nil); waits {
		asked.Add(-1)
		return false
	}
	done := make(chan struct{})
	go func() {
		ask(dir)
		unanswered.Delete(dir)
		asked.Add(-1)
		close(done)
	}()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-done:
		return true
	case <-late.C:
		return false
	}
}
