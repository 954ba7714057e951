package twin

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tree is one of the two directories. It is used by one thread, whose file system user it changes.
type tree struct {
	dir       string
	root      int // descriptor of dir
	reference bool
	open      [slots]int // descriptors, -1 if there is none
}

// attach opens the directory, with no files open in it.
func (t *tree) attach() error {
	fd, err := unix.Open(t.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", t.dir, err)
	}
	t.root = fd
	for i := range t.open {
		t.open[i] = -1
	}
	return nil
}

// detach closes everything, so that the file system can be unmounted.
func (t *tree) detach() {
	unix.Close(t.root)
	for i := range t.open {
		t.drop(i)
	}
	t.root = -1
}

func (t *tree) drop(slot int) {
	if t.open[slot] >= 0 {
		unix.Close(t.open[slot])
		t.open[slot] = -1
	}
}

// fifo reports whether the open file is one.
func (t *tree) fifo(slot int) bool {
	var st unix.Stat_t
	return t.open[slot] >= 0 && unix.Fstat(t.open[slot], &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO
}

// fifoAt reports whether a path leads to one.
func (t *tree) fifoAt(p string) bool {
	var st unix.Stat_t
	return unix.Fstatat(t.root, p, &st, 0) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO
}

// path is a path for calls that take no directory descriptor.
func (t *tree) path(p string) string { return "/proc/self/fd/" + strconv.Itoa(t.root) + "/" + p }

// do performs an operation as its user and gives errno and data on one line.
func (t *tree) do(o Op) string {
	if err := become(o.UID); err != nil {
		return err.Error()
	}
	data, err := actions[o.Kind].do(t, o)
	if back := become(0); back != nil {
		return back.Error()
	}
	return errName(err) + " " + data
}

// become changes whom the file system takes this thread for. Going from 0 to another user drops the capabilities that
// concern files, and going back raises them again.
func become(uid int) error {
	if err := unix.Setfsgid(uid); err != nil {
		return fmt.Errorf("setfsgid: %w", err)
	}
	if err := unix.Setfsuid(uid); err != nil {
		return fmt.Errorf("setfsuid: %w", err)
	}
	return nil
}

func errName(err error) string {
	var errno unix.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// settle has the reference copy up a file that was opened for reading, and opens it again; see the package's comment.
func (t *tree) settle(fd, flags int) (int, error) {
	if !t.reference || flags&unix.O_ACCMODE != unix.O_RDONLY || flags&unix.O_PATH != 0 {
		return fd, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink == 0 {
		return fd, nil //nolint:nilerr // nothing to settle
	}
	if err := become(0); err != nil {
		return fd, err
	}
	name := "/proc/self/fd/" + strconv.Itoa(fd)
	w, err := unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fd, fmt.Errorf("settle: %w", err)
	}
	unix.Close(w)
	again, err := unix.Open(name, flags&^(unix.O_CREAT|unix.O_EXCL|unix.O_TRUNC|unix.O_NOFOLLOW), 0)
	if err != nil {
		return fd, fmt.Errorf("settle: %w", err)
	}
	unix.Close(fd)
	return again, nil
}

// touched is how an operation left what it named.
func (t *tree) touched(o Op) string {
	var b strings.Builder
	for _, p := range []string{o.A, o.B} {
		data, err := stat(t, Op{A: p, N: 1})
		capable, _ := getcap(t, Op{A: p}) // most have none
		fmt.Fprintf(&b, "; %.20q %s %s %s", p, errName(err), data, capable)
	}
	for _, slot := range []int{o.Slot, o.Other} {
		data, err := fstat(t, Op{Slot: slot})
		fmt.Fprintf(&b, "; %d %s %s", slot, errName(err), data)
	}
	return b.String()
}
