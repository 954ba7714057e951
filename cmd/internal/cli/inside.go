package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// insideName is what this program is called when it is started in a mount namespace of its own, to prepare that and
// become the command of a run.
const insideName = "snapfs-inside"

// inside says what the command of a run sees.
type inside struct {
	Mount string   // where the workspace is mounted
	Path  string   // where the command sees it
	Dir   string   // the working directory of the command
	Homes []string // are hidden, and the system is read-only; none: neither
	Shown []string // in Homes

	Parent int // the process that runs it

	// Closed are other directories that are hidden: homes of snapfs, with the sockets of the daemons.
	Closed []string
}

func (i inside) sandboxed() bool { return len(i.Homes) > 0 }

// runPrefix begins the name of a directory where the workspace of a run is mounted.
const runPrefix = "snapfs-run-"

// writable are the directories of the system in which the command of a sandbox can write.
var writable = []string{"/tmp", "/dev", "/proc"}

// command makes cmd, which is not started yet, one that sees what i says.
func (i inside) command(cmd *exec.Cmd, argv []string, attr *syscall.SysProcAttr) error {
	i.Parent = os.Getpid()
	order, err := json.Marshal(i)
	cmd.Path, cmd.Err, cmd.SysProcAttr = "/proc/self/exe", nil, attr
	cmd.Args = append([]string{insideName, string(order)}, argv...)
	cmd.Dir = "/"
	return err
}

// namespaces gives the attributes with which a process gets a mount namespace of its own here; an error if it cannot.
func namespaces() (*syscall.SysProcAttr, error) {
	own := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	user := &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWNS | unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN}, // without root, the rights in the namespace would end with exec
	}
	var err error
	for _, attr := range []*syscall.SysProcAttr{own, user} {
		probe := &exec.Cmd{Path: "/proc/self/exe", Args: []string{insideName}, SysProcAttr: attr}
		if err = probe.Run(); err == nil {
			return attr, nil
		}
	}
	return nil, err
}

// beInside is the process in the namespace: it returns only if it cannot become the command. Without arguments it only
// tries whether mounts can be made.
func beInside(args []string) int {
	fail := func(code int, err error) int {
		fmt.Fprintf(os.Stderr, "snapfs: %s\n", plain(err.Error()))
		return code
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return 1
	}
	if len(args) == 0 {
		return 0
	}
	var i inside
	if err := json.Unmarshal([]byte(args[0]), &i); err != nil {
		return fail(cannotRun, err)
	}
	argv := args[1:]
	if i.sandboxed() {
		// What is mounted from here on would be writable. Descriptors lead to what is hidden.
		err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		if err == nil {
			err = unix.CloseRange(firstExtra, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
		}
		if err != nil {
			return fail(cannotRun, fmt.Errorf("closing the sandbox: %w", err))
		}
	}
	if err := i.mount(); err != nil {
		return fail(cannotRun, fmt.Errorf("preparing the mounts of %s: %w", quote(argv[0]), err))
	}
	// The rights to mount end here, but for those of root.
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fail(cannotRun, fmt.Errorf("giving up capabilities: %w", err))
	}
	path, err := exec.LookPath(argv[0])
	if err == nil || errors.Is(err, exec.ErrDot) {
		if err := dieWith(i.Parent); err != nil {
			return fail(cannotRun, err)
		}
		err = unix.Exec(path, argv, os.Environ())
	}
	return fail(notRunCode(err), fmt.Errorf("run %s: %w", quote(argv[0]), err))
}

// dieWith has the command get a signal if its parent is killed, which may have happened already.
func dieWith(parent int) error {
	runtime.LockOSThread() // it is an attribute of the thread that becomes the command
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(orphaned), 0, 0, 0); err != nil {
		return fmt.Errorf("asking for a signal when snapfs ends: %w", err)
	}
	if os.Getppid() != parent {
		return errors.New("snapfs was killed")
	}
	return nil
}

// firstExtra is the first descriptor after the standard streams.
const firstExtra = 3

// Exit codes of a command that was not run, as of shells.
const (
	cannotRun = 126
	noCommand = 127
)

func notRunCode(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return noCommand
	}
	return cannotRun
}

// mount changes the mounts of this process to what i says.
func (i inside) mount() error {
	ws, err := cloneMount(i.Mount, 0)
	if err != nil {
		return err
	}
	nested, err := i.nested()
	if err != nil {
		return err
	}
	if i.sandboxed() {
		if err := i.hide(); err != nil {
			return err
		}
		if err := os.MkdirAll(i.Path, 0o755); err != nil {
			return err
		}
	}
	if err := attachMount(ws, i.Path); err != nil {
		return err
	}
	for _, t := range nested {
		if err := attachMount(t.fd, t.to); err != nil {
			return err
		}
	}
	_ = unix.Unmount(i.Mount, unix.MNT_DETACH) // in a user namespace it is shown at both places
	if i.sandboxed() {
		if err := i.close(); err != nil {
			return err
		}
	}
	return os.Chdir(i.Dir)
}

// close hides the homes of snapfs, and the workspaces of other runs.
func (i inside) close() error {
	mounts, err := mountedBelow("/")
	if err != nil {
		return err
	}
	closed := slices.Clone(i.Closed)
	for _, path := range mounts {
		if path != i.Mount && strings.HasPrefix(filepath.Base(path), runPrefix) {
			closed = append(closed, path)
		}
	}
	for _, path := range closed {
		err := unix.Mount("snapfs-run", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_RDONLY, "mode=0555")
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EACCES) { // the user cannot get there
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: hiding it: %w", path, err)
		}
	}
	return nil
}

// clonedTree is a tree of mounts that is to be attached elsewhere.
type clonedTree struct {
	fd int
	to string
}

// nested are the trees that are mounted in the directory, read-only. The workspace has their mount points, without what
// is mounted there.
func (i inside) nested() ([]clonedTree, error) {
	paths, err := mountedBelow(i.Path)
	if err != nil {
		return nil, err
	}
	var trees []clonedTree
	for _, path := range paths {
		if path == i.Mount || len(trees) > 0 && within(path, trees[len(trees)-1].to) {
			continue // the latter comes with the tree that it is in
		}
		fd, err := cloneReadOnly(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EINVAL) {
			continue // something else is mounted above it, or the user cannot get there
		}
		if err != nil {
			return nil, err
		}
		trees = append(trees, clonedTree{fd, path})
	}
	return trees, nil
}

// mountedBelow lists the mount points inside a directory, each after those that it is in.
func mountedBelow(dir string) ([]string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var paths []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if path := unescapeMount(fields[4]); path != dir && within(path, dir) {
			paths = append(paths, path)
		}
	}
	slices.SortFunc(paths, func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) })
	return slices.Compact(paths), nil
}

// hide makes the system read-only and the home directories empty, but for what is shown.
func (i inside) hide() error {
	var shown, open []clonedTree
	for _, path := range writable {
		fd, err := cloneMount(path, unix.AT_RECURSIVE)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		open = append(open, clonedTree{fd, path})
	}
	for _, path := range i.Shown {
		fd, err := cloneReadOnly(path)
		if err != nil {
			return err
		}
		shown = append(shown, clonedTree{fd, path})
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("making the system read-only: %w", err)
	}
	for _, t := range open {
		if err := attachMount(t.fd, t.to); err != nil {
			return err
		}
	}
	for _, home := range i.Homes {
		if err := unix.Mount("snapfs-run", home, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700"); err != nil {
			return fmt.Errorf("%s: hiding it: %w", home, err)
		}
	}
	for _, t := range shown {
		if err := os.MkdirAll(t.to, 0o755); err != nil {
			return err
		}
		if err := attachMount(t.fd, t.to); err != nil {
			return err
		}
	}
	return nil
}

// cloneMount gives what is mounted at a path, to be attached elsewhere.
func cloneMount(path string, flags uint) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|flags)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", path, err)
	}
	return fd, nil
}

// cloneReadOnly gives a tree of mounts, to be attached elsewhere, where nothing in it can be changed.
func cloneReadOnly(path string) (int, error) {
	fd, err := cloneMount(path, unix.AT_RECURSIVE)
	if err != nil {
		return -1, err
	}
	readOnly := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, readOnly); err != nil {
		_ = unix.Close(fd) // nothing was attached
		return -1, fmt.Errorf("%s: making it read-only: %w", path, err)
	}
	return fd, nil
}

func attachMount(fd int, path string) error {
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mounting at %s: %w", path, err)
	}
	return unix.Close(fd)
}

// within reports whether a clean path is dir or lies in it.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
