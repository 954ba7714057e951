package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/processes"
	"snapfs/sandbox/api"
)

// deviceOf finds the device number of a workspace's mount in the mount table of this process. One that was renamed while
// it was mounted has its earlier name there: the mountpoint tells, of which the last mount is the one that is seen.
func deviceOf(ws api.Workspace) (device uint64, ok bool) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		left, right, _ := strings.Cut(line, " - ")
		f := strings.Fields(left)
		if _, ours := ofSnapfs(right); !ours || len(f) < 5 || unescapeMount(f[4]) != ws.Mountpoint {
			continue
		}
		var major, minor uint32
		if _, err := fmt.Sscanf(f[2], "%d:%d", &major, &minor); err == nil {
			device, ok = unix.Mkdev(major, minor), true
		}
	}
	return device, ok
}

// ofSnapfs reports whether a mount shows a workspace, and the name that this had when it was mounted, by what a line of
// mountinfo has after its separator: type, source and options. An overlay of the kernel has its upper in a home.
func ofSnapfs(right string) (source string, ok bool) {
	f := strings.Fields(right)
	if len(f) < 3 {
		return "", false
	}
	switch f[0] {
	case "fuse.snapfs":
		return f[1], true
	case "overlay":
		for option := range strings.SplitSeq(f[2], ",") {
			if upper, ok := strings.CutPrefix(option, "upperdir="); ok {
				_, upper, _ = strings.Cut(upper, "/uppers/")
				return f[1], strings.HasSuffix(upper, "/upper") && api.ValidWorkspaceName(f[1]) == nil
			}
		}
	}
	return "", false
}

// unescapeMount undoes the escapes of mountinfo.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// ancestors are this process and those that it comes from.
func ancestors() map[int]bool {
	found := map[int]bool{}
	for pid := os.Getpid(); pid > 0 && !found[pid]; {
		found[pid] = true
		s, _ := processes.StatOfProcess(pid)
		pid = s.Parent
	}
	return found
}

// endProcesses asks processes that use a file system to end, and after a time ends them. Those that are gone meanwhile, or
// do not use it any more, are no error.
func endProcesses(ctx context.Context, device uint64, users []user, wait time.Duration) error {
	var errs []error
	fds := map[int]int{}
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd) // nothing is written
		}
	}()
	send := func(pid int, signal unix.Signal) {
		err := unix.PidfdSendSignal(fds[pid], signal, nil, 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("pid %d: %w", pid, err))
		}
	}
	for _, u := range users {
		fd, err := unix.PidfdOpen(u.PID, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return fmt.Errorf("pid %d: %w", u.PID, err)
		}
		fds[u.PID] = fd
		if !uses(fmt.Sprintf("/proc/%d", u.PID), onDevice(device)) { // it has ended meanwhile, and another one has its number
			_ = unix.Close(fd) // nothing is written
			delete(fds, u.PID)
			continue
		}
		send(u.PID, unix.SIGTERM)
	}
	deadline := time.Now().Add(wait)
	for pid, fd := range fds {
		if !ended(ctx, fd, time.Until(deadline)) {
			send(pid, unix.SIGKILL)
			ended(ctx, fd, wait) // one that hangs in the mount ends with that
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// ended waits for the end of a process.
func ended(ctx context.Context, fd int, wait time.Duration) bool {
	for deadline := time.Now().Add(wait); ctx.Err() == nil; {
		left := min(time.Until(deadline), 100*time.Millisecond)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(left, 0)/time.Millisecond))
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return true
		}
		if left <= 0 {
			return false
		}
	}
	return false
}
