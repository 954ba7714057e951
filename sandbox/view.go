package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/internal/mountns"
)

// view is a mount namespace, and a root directory there, in which paths are looked up. The zero view is that of this
// process.
type view struct {
	ns     string // as /proc/PID/ns/mnt names it, by a number that another one may have later; "" in the zero view
	id     uint64 // which no other has until the next boot; 0 if the kernel does not tell
	pid    int    // a process that has it
	chroot bool   // it has another root directory than the namespace
}

func (v view) own() bool { return v.ns == "" }

// processKey is the context key of the process for which a call is made.
type processKey struct{}

// viewKey is that of the view for which a call is made, if it is not that of a process that asks.
type viewKey struct{}

// WithProcess gives a context of calls that are made for a process, by its id in the pid namespace of this one; 0 for a
// process that has none there. Mountpoints are looked up, and mounted, where that process sees them.
func WithProcess(ctx context.Context, pid int) context.Context {
	return context.WithValue(ctx, processKey{}, pid)
}

// ProcessOf is the process for which a call is made, see WithProcess; 0 if it is not known.
func ProcessOf(ctx context.Context) int {
	pid, _ := ctx.Value(processKey{}).(int)
	return pid
}

// viewOf is where the mountpoint of a call is. ErrUnavailable if that cannot be told.
func (h *Home) viewOf(ctx context.Context) (view, error) {
	if v, ok := ctx.Value(viewKey{}).(view); ok {
		return v, nil
	}
	pid, ok := ctx.Value(processKey{}).(int)
	if !ok || pid == os.Getpid() {
		return view{}, nil
	}
	if pid <= 0 {
		return view{}, fmt.Errorf("%w: the command runs in a pid namespace that the daemon (process %d) cannot see, so it "+
			"cannot mount there: run the command where the daemon runs, or a daemon with a home of its own there",
			ErrUnavailable, os.Getpid())
	}
	v, err := h.viewOfProcess(pid)
	if err != nil {
		return view{}, fmt.Errorf("%w: the mount namespace of the command (process %d) cannot be told: %w: "+
			"the daemon needs the capabilities that the command has, or CAP_SYS_PTRACE; for a daemon that was started by "+
			"'podman unshare', start the command so, too", ErrUnavailable, pid, err)
	}
	return v, nil
}

// viewOfProcess is the view of a process.
func (h *Home) viewOfProcess(pid int) (view, error) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	ns, err := os.Readlink(dir + "ns/mnt")
	if err != nil {
		return view{}, err
	}
	root, err := os.Stat(dir + "root")
	if err != nil {
		return view{}, err
	}
	own, err := os.Stat("/")
	if err != nil {
		return view{}, err
	}
	if ns == h.ns && os.SameFile(root, own) {
		return view{}, nil
	}
	return view{ns: ns, id: namespaceID(pid), pid: pid, chroot: ns == h.ns}, nil
}

// readOwnNamespace finds out the names of the mount namespace of this process and of the kernel's run.
func (h *Home) readOwnNamespace() {
	h.ns, _ = os.Readlink("/proc/self/ns/mnt") // without /proc there is one namespace
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	h.boot = strings.TrimSpace(string(boot))
}

// mounts reads the mount table of a view: empty if the namespace is gone.
func (v view) mounts() (mountTable, error) {
	if v.own() || v.chroot {
		return readMounts()
	}
	pid := v.process()
	if pid == 0 {
		return nil, nil
	}
	mounts, err := readMountinfo(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if errors.Is(err, fs.ErrNotExist) { // it has just ended
		return nil, nil
	}
	return mounts, err
}

// openNamespace opens the mount namespace of a process.
func openNamespace(pid int) (*os.File, error) { return os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid)) }

// sameNamespace reports whether paths of two views mean the same.
func sameNamespace(a, b view) bool {
	return a.ns == b.ns && a.id == b.id || (a.own() || a.chroot) && (b.own() || b.chroot)
}

// run has a process carry out a request in a view.
func (v view) run(ctx context.Context, r mountns.Request) (mountns.Place, error) {
	if !v.own() {
		pid := v.process()
		if pid == 0 {
			return mountns.Place{}, fmt.Errorf("%w: the mount namespace %s is gone", ErrNotFound, v.ns)
		}
		root, err := unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return mountns.Place{}, fmt.Errorf("the root directory of process %d: %w", pid, err)
		}
		defer func() { _ = unix.Close(root) }() // nothing is written
		ns, err := openNamespace(pid)
		if err != nil {
			return mountns.Place{}, err
		}
		defer func() { _ = ns.Close() }() // nothing is written
		r.Root, r.Namespace = root, int(ns.Fd())
	} else if r.Source != 0 { // it has to come back
		ns, err := openNamespace(os.Getpid())
		if err != nil {
			return mountns.Place{}, err
		}
		defer func() { _ = ns.Close() }() // nothing is written
		r.Namespace = int(ns.Fd())
	}
	return mountns.Run(ctx, r)
}

// lookApart looks a mountpoint up where this process must not, or cannot.
func lookApart(ctx context.Context, v view, path string) (location, error) {
	if !filepath.IsAbs(path) {
		return location{}, fmt.Errorf("%w: path %q is not absolute", ErrInvalid, path)
	}
	p, err := v.run(ctx, mountns.Request{Do: mountns.Look, Path: path})
	if errors.Is(err, mountns.ErrDisabled) {
		err = fmt.Errorf("%w: %w (see sandbox.IsMounter)", ErrUnavailable, err)
	}
	if errors.Is(err, unix.EPERM) && !v.own() && !v.chroot { // looking a path up is EACCES
		return location{}, fmt.Errorf("%w: the daemon (process %d) has no right to mount in the mount namespace of the command, "+
			"at %s: mount where the daemon runs, or end it ('snapfs stop') and run the command that failed again, which "+
			"starts one there", ErrUnavailable, os.Getpid(), path)
	}
	if err != nil {
		return location{}, pathError(path, err)
	}
	at := location{path: p.Path, view: v, apart: true, dir: p.Dir, covered: p.Mounted}
	if p.Missing {
		at.missing = 1
	}
	return at, nil
}
