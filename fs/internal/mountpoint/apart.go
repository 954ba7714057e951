package mountpoint

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Apart is a connection with a mount that is in no tree yet: whoever gets the descriptor of the mount can attach it
// somewhere, with move_mount(2). It goes with its descriptor if nobody does.
type Apart struct {
	Conn  int // of /dev/fuse; the caller owns it
	Mount int // the caller owns it
	dev   uint64
}

// Device is the device number of the file system.
func (a *Apart) Device() uint64 { return a.dev }

// NewApart opens a connection and mounts it in no tree. Errors: ErrNoFUSE.
func NewApart(opts Options) (*Apart, error) {
	a := &Apart{Mount: -1}
	var err error
	if a.Conn, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoFUSE, err)
	}
	if err := a.mount(opts); err != nil {
		err = errors.Join(err, unix.Close(a.Conn))
		if a.Mount >= 0 {
			err = errors.Join(err, unix.Close(a.Mount))
		}
		return nil, err
	}
	return a, nil
}

// mount makes a file system of the connection, and a mount of that.
func (a *Apart) mount(opts Options) (err error) {
	ctx, err := unix.Fsopen("fuse", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("%w: fsopen: %w", ErrNoFUSE, err)
	}
	defer func() { err = errors.Join(err, unix.Close(ctx)) }()
	values := [][2]string{
		{"source", opts.FSName},
		{"subtype", "snapfs"},
		{"fd", strconv.Itoa(a.Conn)},
		{"rootmode", strconv.FormatUint(unix.S_IFDIR, 8)},
		{"user_id", strconv.Itoa(os.Geteuid())},
		{"group_id", strconv.Itoa(os.Getegid())},
		{"max_read", strconv.Itoa(opts.MaxRead)},
	}
	for _, v := range values {
		if err := unix.FsconfigSetString(ctx, v[0], v[1]); err != nil {
			return fmt.Errorf("%w: option %s: %w", ErrNoFUSE, v[0], err)
		}
	}
	flags := []string{"allow_other", "default_permissions"}
	if opts.ReadOnly {
		flags = append(flags, "ro")
	}
	for _, f := range flags {
		if err := unix.FsconfigSetFlag(ctx, f); err != nil {
			return fmt.Errorf("%w: option %s: %w", ErrNoFUSE, f, err)
		}
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrNoFUSE, err)
	}
	if a.Mount, err = unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, int(opts.Attributes())); err != nil {
		return fmt.Errorf("%w: fsmount: %w", ErrNoFUSE, err)
	}
	var st unix.Statx_t
	if err := unix.Statx(a.Mount, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &st); err != nil {
		return fmt.Errorf("%w: %w", ErrNoFUSE, err)
	}
	a.dev = unix.Mkdev(st.Dev_major, st.Dev_minor)
	return nil
}
