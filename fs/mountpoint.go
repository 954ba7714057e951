package fs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// helperTime bounds a run of fusermount3.
const helperTime = 10 * time.Second

func stack() []byte { return debug.Stack() }

// identify gives the device number of what is seen at a path, and whether it is the root of a mount, without asking
// any server: AT_STATX_DONT_SYNC with an empty mask takes what the kernel has.
func identify(path string) (dev uint64, root bool, err error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, 0, &st); err != nil {
		return 0, false, &os.PathError{Op: "mount", Path: path, Err: err}
	}
	return unix.Mkdev(st.Dev_major, st.Dev_minor), st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// checkPoint says why a path cannot be a mountpoint.
func checkPoint(path string) error {
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

// attach opens a connection and mounts it.
func (m *Mount) attach(ctx context.Context, opts Options) (fd int, err error) {
	fd, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		if err = mountDirect(fd, m.point, opts); err == nil {
			m.privileg = true
			return fd, nil
		}
		_ = unix.Close(fd) // never used
	}
	direct := err
	if !errors.Is(direct, unix.EPERM) && !errors.Is(direct, unix.EACCES) {
		return -1, noFUSE(direct, m.point)
	}
	fd, err = mountHelper(ctx, m.point, opts)
	if errors.Is(err, exec.ErrNotFound) {
		return -1, noFUSE(direct, m.point)
	}
	return fd, err
}

// noFUSE tells a host without FUSE from a mountpoint that will not do.
func noFUSE(err error, point string) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("%w: %w", ErrNoFUSE, err)
	}
	return &os.PathError{Op: "mount", Path: point, Err: err}
}

// mountDirect is mount(2): the options are those of fs/fuse/inode.c.
func mountDirect(fd int, point string, opts Options) error {
	flags := uintptr(0)
	for _, f := range []struct {
		on   bool
		flag uintptr
	}{
		{opts.ReadOnly, unix.MS_RDONLY},
		{opts.NoSUID, unix.MS_NOSUID},
		{opts.NoDev, unix.MS_NODEV},
		{opts.NoExec, unix.MS_NOEXEC},
		{opts.NoAtime, unix.MS_NOATIME},
	} {
		if f.on {
			flags |= f.flag
		}
	}
	data := fmt.Sprintf("fd=%d,rootmode=%o,user_id=%d,group_id=%d,allow_other,default_permissions,max_read=%d",
		fd, unix.S_IFDIR, os.Geteuid(), os.Getegid(), maxIO)
	return unix.Mount(opts.FSName, point, "fuse.snapfs", flags, data)
}

// mountHelper has the setuid program fusermount3 mount, and takes the connection from it over a socket.
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
	o := []string{"fsname=" + escape.Replace(opts.FSName), "subtype=snapfs", "default_permissions", fmt.Sprintf("max_read=%d", maxIO)}
	for _, f := range []struct {
		on   bool
		name string
	}{
		{opts.ReadOnly, "ro"},
		{opts.NoSUID, "nosuid"},
		{opts.NoDev, "nodev"},
		{opts.NoExec, "noexec"},
		{opts.NoAtime, "noatime"},
		{os.Geteuid() == 0 || userAllowOther(), "allow_other"},
	} {
		if f.on {
			o = append(o, f.name)
		}
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
		return -1, fmt.Errorf("%w: %s: %w", ErrNoFUSE, strings.TrimSpace(said.String()), err)
	}
	fd, err := receiveFD(pair[0])
	if err != nil {
		return -1, fmt.Errorf("fusermount3 handed over no connection: %w", err)
	}
	return fd, unix.SetNonblock(fd, true)
}

// userAllowOther says whether the administrator lets users share their mounts.
func userAllowOther() bool {
	conf, err := os.ReadFile("/etc/fuse.conf")
	return err == nil && slices.ContainsFunc(strings.Split(string(conf), "\n"), func(line string) bool {
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

// Unmount detaches; EBUSY while in use unless lazy. It does not wait for Done: copies of the mount in other mount
// namespaces, and after a lazy unmount open files, keep the connection alive. Unmounting what is already gone is no
// error.
func (m *Mount) Unmount(lazy bool) error {
	dev, root, err := identify(m.point)
	if err == nil && (!root || dev != m.dev) || errors.Is(err, fs.ErrNotExist) {
		return nil // somebody else did it
	}
	return m.detach(lazy)
}

func (m *Mount) detach(lazy bool) error {
	if m.privileg {
		flags := unix.UMOUNT_NOFOLLOW
		if lazy {
			flags |= unix.MNT_DETACH
		}
		if err := unix.Unmount(m.point, flags); err != nil {
			return &os.PathError{Op: "unmount", Path: m.point, Err: err}
		}
		return nil
	}
	args := []string{"-u", "--", m.point}
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
		return &os.PathError{Op: "unmount", Path: m.point, Err: unix.EBUSY}
	}
	return fmt.Errorf("unmount %s: %s: %w", m.point, bytes.TrimSpace(out), err)
}

// greet reads and answers INIT, the kernel's first request, and says whether the kernel offered requests over io_uring.
func (d *device) greet(ctx context.Context, h handler) (ring bool, err error) {
	w := worker{d: d}
	w.need()
	defer w.drop()
	d.h = h
	for {
		n, err := d.tryRead(w.buf)
		if err == nil {
			if n >= int(unsafe.Sizeof(fuse.InitIn{})) {
				ring = (*fuse.InitIn)(unsafe.Pointer(&w.buf[0])).Flags64()&fuse.CAP_OVER_IO_URING != 0
			}
			w.handle(n)
			return ring, nil
		}
		if !errors.Is(err, unix.EAGAIN) {
			return false, err
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(d.fd), Events: unix.POLLIN}}, 50)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false, err
		}
	}
}
