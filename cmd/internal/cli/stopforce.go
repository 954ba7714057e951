package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/holder"
	"snapfs/internal/processes"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
)

// forceWait is how long 'stop --force' waits for a daemon that was asked to end, and for a process that was killed.
const forceWait = 10 * time.Second

// kill ends the processes that have the home, of which the daemon did not end for the given reason.
func (a *app) kill(ctx context.Context, why error) error {
	var killed []int
	for _, pid := range servers(a.home) {
		ok, err := killOne(ctx, pid)
		if err != nil {
			return failure(api.ErrUnavailable, "%v; and process %d cannot be ended: %w", why, pid, err)
		}
		if ok {
			killed = append(killed, pid)
		}
	}
	if killed == nil {
		return why
	}
	a.note("%v: killed %s; its mounts are dead until the next daemon takes them away", why, listPIDs(killed))
	return a.result(stopped{true, []wire.UsedMount{}, killed}, func(io.Writer) error { return nil })
}

func listPIDs(pids []int) string {
	var texts []string
	for _, pid := range pids {
		texts = append(texts, strconv.Itoa(pid))
	}
	if len(texts) == 1 {
		return "process " + texts[0]
	}
	return "processes " + strings.Join(texts, ", ")
}

// killOne kills a process and waits for its end. It is false if that had ended before.
func killOne(ctx context.Context, pid int) (bool, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Close(fd) }() // nothing is written
	err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err == nil && !ended(ctx, fd, forceWait) {
		err = errors.Join(errors.New("it was killed, and waits in the kernel, perhaps for a disk that does not answer"), ctx.Err())
	}
	return true, err
}

// servers are the processes that have the lock of a home open: its holder, which comes first because it would start
// another daemon, and its daemon.
func servers(home string) (pids []int) {
	lock, err := filepath.EvalSymlinks(filepath.Join(home, api.LockName))
	if err != nil {
		return nil
	}
	processes.Each(func(dir string, pid int) bool {
		switch {
		case pid == os.Getpid() || !hasOpen(dir, lock):
		case isHolder(dir):
			pids = slices.Insert(pids, 0, pid)
		default:
			pids = append(pids, pid)
		}
		return true
	})
	return pids
}

// hasOpen reports whether a process has a file open. It only reads links: another file of the process may lie in a mount
// that does not answer.
func hasOpen(dir, path string) bool {
	fds, _ := os.ReadDir(dir + "/fd") // of a process that has ended, or of another user
	return slices.ContainsFunc(fds, func(e os.DirEntry) bool {
		link, err := os.Readlink(dir + "/fd/" + e.Name())
		return err == nil && link == path
	})
}

func isHolder(dir string) bool {
	line, err := os.ReadFile(dir + "/cmdline")
	return err == nil && bytes.HasPrefix(line, []byte(holder.Name+"\x00"))
}
