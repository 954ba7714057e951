package scratch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Mark names, in the environment of everything that a run starts, the run's scratch directory.
const Mark = "SNAPFS_BENCH_RUN"

// lockName is the file of a scratch directory that its owner holds locked: whose lock can be taken once the owner is
// dead.
const lockName = "owner.lock"

// Guard knows the scratch directories of this process. Safe for concurrent use.
type Guard struct {
	mu   sync.Mutex
	dirs []string // guarded by mu
}

// Make makes a scratch directory in parent that nobody else takes for abandoned while this process lives.
func (g *Guard) Make(parent, prefix string) (dir string, remove func() error, err error) {
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", nil, fmt.Errorf("make scratch: %w", err)
	}
	if dir, err = os.MkdirTemp(parent, prefix); err != nil {
		return "", nil, fmt.Errorf("make scratch: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("make scratch: %w", err), os.RemoveAll(dir))
	}
	g.mu.Lock()
	g.dirs = append(g.dirs, dir)
	g.mu.Unlock()
	return dir, func() error {
		err := errors.Join(sweep(dir), lock.Close())
		g.mu.Lock()
		g.dirs = slices.DeleteFunc(g.dirs, func(d string) bool { return d == dir })
		g.mu.Unlock()
		return err
	}, nil
}

// EndAll removes all scratch at once, whatever is going on in it.
func (g *Guard) EndAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, dir := range g.dirs {
		if err := sweep(dir); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}
}

// SweepAbandoned sweeps the scratch directories in parent whose owners are dead.
func SweepAbandoned(parent string) error {
	var all []error
	for _, prefix := range []string{"run-", "build-"} {
		locks, err := filepath.Glob(filepath.Join(parent, prefix+"*", lockName))
		if err != nil {
			return fmt.Errorf("look for abandoned runs: %w", err)
		}
		for _, path := range locks {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				continue // it just went
			}
			if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
				all = append(all, sweep(filepath.Dir(path)))
			}
			all = append(all, f.Close())
		}
	}
	return errors.Join(all...)
}

// sweep ends the processes of a run, takes its mounts and loop devices away and removes its directory. Files are only
// removed once nothing is mounted among them.
func sweep(dir string) error {
	endProcesses(dir)
	if err := errors.Join(unmountBelow(dir), detachLoops(dir)); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove scratch: %w", err)
	}
	return nil
}

// endProcesses ends what has the mark of the run, asking first.
func endProcesses(dir string) {
	const polite, pause = 20, 100 * time.Millisecond
	for i := range 2 * polite {
		pids := marked(dir)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			switch i {
			case 0:
				_ = unix.Kill(pid, unix.SIGTERM) // it may have ended
			case polite:
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		time.Sleep(pause)
	}
}

// marked lists the processes of a run but this one.
func marked(dir string) []int {
	mark := []byte(Mark + "=" + dir + "\x00")
	var pids []int
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil
	}
	for _, path := range all {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || pid == os.Getpid() {
			continue
		}
		// A process whose environment cannot be read is another user's, or gone. The kernel shows the environment
		// that a process was started with, without what this one set for its children.
		if environ, err := os.ReadFile(path); err == nil &&
			bytes.Contains(append([]byte{0}, environ...), append([]byte{0}, mark...)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// unmountBelow unmounts what is mounted below dir, the last mounted first.
func unmountBelow(dir string) error {
	mounts, err := MountsBelow(dir)
	if err != nil {
		return err
	}
	var all []error
	for _, path := range slices.Backward(mounts) {
		if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err == nil {
			continue
		}
		if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			all = append(all, fmt.Errorf("unmount %s: %w", path, err))
		}
	}
	return errors.Join(all...)
}

// MountsBelow lists mountpoints in order of mounting. It reads no mount.
func MountsBelow(dir string) ([]string, error) {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var out []string
	for line := range strings.Lines(string(info)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if path := unescape.Replace(fields[4]); strings.HasPrefix(path, dir+"/") {
			out = append(out, path)
		}
	}
	return out, nil
}

// detachLoops frees the loop devices whose images are below dir.
func detachLoops(dir string) error {
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return fmt.Errorf("look for loop devices: %w", err)
	}
	var all []error
	for _, path := range backing {
		image, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(image), dir+"/") {
			continue
		}
		dev := "/dev/" + strings.Split(path, "/")[3]
		f, err := os.Open(dev)
		if err != nil {
			all = append(all, err)
			continue
		}
		if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
			all = append(all, fmt.Errorf("detach %s: %w", dev, err))
		}
		all = append(all, f.Close())
	}
	return errors.Join(all...)
}

// Discard removes a directory of the scratch, mounts in it first.
func Discard(dir string) error {
	if err := errors.Join(unmountBelow(dir), detachLoops(dir)); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}

// CloseAndRemove closes what is mounted in a scratch directory, whatever became of ctx, or its mount would stay, and
// removes the directory.
func CloseAndRemove(ctx context.Context, m interface{ Close(context.Context) error }, scratch string) error {
	clean, cancel := CleanUp(ctx)
	defer cancel()
	if err := m.Close(clean); err != nil {
		return err // what is still mounted must not be removed
	}
	return os.RemoveAll(scratch)
}

// CleanUp gives a context for what must be done even when ctx has ended.
func CleanUp(ctx context.Context) (context.Context, context.CancelFunc) {
	const limit = 2 * time.Minute
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

// Unmount tries for five seconds: a program that was just ended may keep the mount busy for a moment.
func Unmount(dir string) error {
	var err error
	for range 50 {
		if err = unix.Unmount(dir, 0); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("unmount %s: %w", dir, err)
}
