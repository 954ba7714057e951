// Package mountpoint attaches FUSE connections to directories, with mount(2) or, without privilege, through the setuid
// program fusermount3, and takes them away again. It knows nothing of what is served.
package mountpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoFUSE says that /dev/fuse is missing or may not be used.
var ErrNoFUSE = errors.New("fuse is not available")

// ErrAllowOther says that users may not open their mounts to others.
var ErrAllowOther = errors.New("allow_other needs a line user_allow_other in /etc/fuse.conf")

// helperTime bounds a run of fusermount3.
const helperTime = 10 * time.Second

// Owner is the user for whom a mount is made. nil in Options: for everybody.
type Owner struct {
	UID, GID uint32
	// Dir is the mountpoint, which its user has opened: it is mounted there, wherever the path leads by now.
	Dir *os.File
}

// Mountpoint is a directory with a connection attached to it. All fields are immutable.
type Mountpoint struct {
	path   string // absolute
	dev    uint64 // device number of the mounted file system; its minor number names the connection
	direct bool   // mounted by mount(2), not by the helper
}

// Attach opens a connection and mounts it on an existing directory. The caller owns the descriptor. Errors: ErrNoFUSE, ErrAllowOther;
// of the directory EBUSY (something is mounted there), ENOENT, ENOTDIR, EACCES, as *os.PathError. When Attach fails
// nothing stays mounted.
func Attach(ctx context.Context, path string, opts Options) (p *Mountpoint, fd int, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, -1, err
	}
	if err := check(path); err != nil {
		return nil, -1, err
	}
	if err := opts.checkAllowOther(); err != nil {
		return nil, -1, err
	}
	p = &Mountpoint{path: path}
	if opts.Owner != nil {
		return p.attachFor(opts)
	}
	if fd, err = p.attach(ctx, opts); err != nil {
		return nil, -1, err
	}
	if p.dev, _, err = identify(path); err != nil {
		_ = unix.Close(fd) // never used
		p.Detach()
		return nil, -1, err
	}
	return p, fd, nil
}

// Attached is what Attach gave another process: on a directory with an absolute path, of a device, by mount(2) or by
// fusermount3.
func Attached(path string, dev uint64, direct bool) *Mountpoint {
	return &Mountpoint{path: path, dev: dev, direct: direct}
}

// Direct reports whether it was mounted by mount(2), not by fusermount3.
func (p *Mountpoint) Direct() bool { return p.direct }

// Path is the directory, absolute.
func (p *Mountpoint) Path() string { return p.path }

// Device is the device number of the file system.
func (p *Mountpoint) Device() uint64 { return p.dev }

// Visible reports whether what was attached is what a look at the directory finds: it is not after an unmount, nor
// beneath another mount. No server is asked anything.
func (p *Mountpoint) Visible() bool {
	dev, root, err := identify(p.path)
	return err == nil && root && dev == p.dev
}

// identify gives the device number of what is seen at a path, and whether it is the root of a mount, without asking
// any server: AT_STATX_DONT_SYNC with an empty mask takes what the kernel has.
func identify(path string) (dev uint64, root bool, err error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, 0, &st); err != nil {
		return 0, false, &os.PathError{Op: "mount", Path: path, Err: err}
	}
	return unix.Mkdev(st.Dev_major, st.Dev_minor), st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// check says why a path cannot be a mountpoint.
func check(path string) error {
	_, root, err := identify(path)
	if err != nil {
		return err
	}
	if root {
		return &os.PathError{Op: "mount", Path: path, Err: unix.EBUSY}
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "mount", Path: path, Err: err}
	}
	return unix.Close(fd)
}

// attach opens a connection and mounts it, by the helper if this process may not.
func (p *Mountpoint) attach(ctx context.Context, opts Options) (fd int, err error) {
	fd, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		if err = mountDirect(fd, p.path, opts); err == nil {
			p.direct = true
			return fd, nil
		}
		_ = unix.Close(fd) // never used
	}
	direct := err
	if !errors.Is(direct, unix.EPERM) && !errors.Is(direct, unix.EACCES) || os.Geteuid() == 0 {
		return -1, noFUSE(direct, p.path)
	}
	fd, err = mountHelper(ctx, p.path, opts)
	if errors.Is(err, exec.ErrNotFound) {
		return -1, noFUSE(direct, p.path)
	}
	return fd, err
}

// noFUSE tells a host without FUSE from a directory that cannot be a mountpoint.
func noFUSE(err error, point string) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission),
		errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("%w: %w", ErrNoFUSE, err)
	}
	return &os.PathError{Op: "mount", Path: point, Err: err}
}

// mountDirect is mount(2): the options are those of fs/fuse/inode.c.
func mountDirect(fd int, point string, opts Options) error {
	flags := uintptr(0)
	for _, s := range opts.switches() {
		flags |= s.flag
	}
	uid, gid, others := os.Geteuid(), os.Getegid(), ",allow_other"
	if o := opts.Owner; o != nil {
		uid, gid = int(o.UID), int(o.GID)
		if !opts.AllowOther { // others would hang with what the user pauses
			others = ""
		}
	}
	data := fmt.Sprintf("fd=%d,rootmode=%o,user_id=%d,group_id=%d,default_permissions,max_read=%d%s",
		fd, unix.S_IFDIR, uid, gid, opts.MaxRead, others)
	return unix.Mount(opts.FSName, point, "fuse.snapfs", flags, data)
}

// mountHelper has the setuid program fusermount3 mount, and receives the connection from it over a socket.
func mountHelper(ctx context.Context, point string, opts Options) (int, error) {
	prog, err := exec.LookPath("fusermount3")
	if err != nil {
		return -1, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	theirs := os.NewFile(uintptr(pair[1]), "fusermount")
	defer func() { _ = unix.Close(pair[0]) }()

	escape := strings.NewReplacer(`\`, `\\`, `,`, `\,`)
	o := []string{
		"fsname=" + escape.Replace(opts.FSName), "subtype=snapfs", "default_permissions",
		fmt.Sprintf("max_read=%d", opts.MaxRead),
	}
	for _, s := range opts.switches() {
		o = append(o, s.name)
	}
	if os.Geteuid() == 0 || opts.AllowOther {
		o = append(o, "allow_other")
	}
	ctx, cancel := context.WithTimeout(ctx, helperTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, prog, "-o", strings.Join(o, ","), "--", point)
	cmd.Env = append(os.Environ(), "_FUSE_COMMFD=3")
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.WaitDelay = time.Second
	var said bytes.Buffer
	cmd.Stderr = &said
	err = cmd.Run()
	_ = theirs.Close() // ours is the other half
	if err != nil {
		why := strings.TrimSpace(said.String())
		if unix.Access("/dev/fuse", unix.R_OK|unix.W_OK) != nil {
			why += " (/dev/fuse has to have mode 0666 where users mount)"
		}
		return -1, fmt.Errorf("%w: %s: %w", ErrNoFUSE, why, err)
	}
	fd, err := receiveFD(pair[0])
	if err != nil {
		return -1, fmt.Errorf("fusermount3 handed over no connection: %w", err)
	}
	return fd, unix.SetNonblock(fd, true)
}

// checkAllowOther refuses to open the mount of a user if the administrator does not let users do that.
func (opts Options) checkAllowOther() error {
	if opts.AllowOther && (opts.Owner != nil || os.Geteuid() != 0) && !userAllowOther() {
		return ErrAllowOther
	}
	return nil
}

// userAllowOther reports whether the administrator lets users share their mounts.
func userAllowOther() bool {
	conf, err := os.ReadFile("/etc/fuse.conf")
	return err == nil && slices.ContainsFunc(strings.Split(string(conf), "\n"), func(line string) bool {
		line, _, _ = strings.Cut(line, "#")
		return strings.TrimSpace(line) == "user_allow_other"
	})
}

func receiveFD(sock int) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	var data [8]byte
	_, n, _, _, err := unix.Recvmsg(sock, data[:], oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	if err != nil {
		return -1, err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(msgs) == 0 {
		return -1, errors.Join(err, unix.EBADMSG)
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) == 0 {
		return -1, errors.Join(err, unix.EBADMSG)
	}
	return fds[0], nil
}

// Unmount detaches; EBUSY while in use unless lazy. It does not wait for the end of the connection: copies of the mount
// in other mount namespaces, and after a lazy unmount open files, keep it alive. Unmounting what is already gone is no
// error.
func (p *Mountpoint) Unmount(lazy bool) error {
	if !p.direct {
		dev, root, err := identify(p.path)
		if err == nil && (!root || dev != p.dev) || errors.Is(err, fs.ErrNotExist) {
			return nil // it was unmounted by other means
		}
		return p.detach(lazy)
	}
	_, err := Detach(p.path, p.dev, lazy)
	return err
}

// Detach takes a mount away that could not be served. The error that matters is the one before.
func (p *Mountpoint) Detach() {
	if p.direct && p.dev != 0 {
		_, _ = Detach(p.path, p.dev, true)
		return
	}
	_ = p.detach(true)
}

func (p *Mountpoint) detach(lazy bool) error {
	if p.direct {
		flags := unix.UMOUNT_NOFOLLOW
		if lazy {
			flags |= unix.MNT_DETACH
		}
		if err := unix.Unmount(p.path, flags); err != nil {
			return &os.PathError{Op: "unmount", Path: p.path, Err: err}
		}
		return nil
	}
	return unmountHelper(p.path, lazy)
}

// unmountHelper has the setuid program fusermount3 unmount what this user has mounted.
func unmountHelper(path string, lazy bool) error {
	args := []string{"-u", "--", path}
	if lazy {
		args = slices.Insert(args, 1, "-z")
	}
	ctx, cancel := context.WithTimeout(context.Background(), helperTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "fusermount3", args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return nil
	case bytes.Contains(out, []byte("busy")):
		return &os.PathError{Op: "unmount", Path: path, Err: unix.EBUSY}
	}
	return fmt.Errorf("unmount %s: %s: %w", path, bytes.TrimSpace(out), err)
}
