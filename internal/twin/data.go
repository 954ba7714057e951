package twin

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"
)

// What reads and writes contents, mostly of files that are open.

// openFlags are combined at random.
var openFlags = []int{
	unix.O_CREAT, unix.O_CREAT, unix.O_EXCL, unix.O_TRUNC, unix.O_APPEND, unix.O_DIRECTORY, unix.O_NOFOLLOW,
	unix.O_NOATIME, unix.O_PATH,
}

func open(t *tree, o Op) (string, error) {
	flags := []int{unix.O_RDONLY, unix.O_WRONLY, unix.O_RDWR, unix.O_RDWR}[o.N&3] | unix.O_NONBLOCK | unix.O_CLOEXEC
	for i, f := range openFlags {
		if o.N>>(2+i)&1 == 1 && (f == unix.O_CREAT || o.M>>(i*2)&3 == 3) {
			flags |= f
		}
	}
	mode := uint32(o.M & 0o7777)
	if flags&unix.O_TRUNC != 0 {
		mode &= 0o1777 // FUSE makes the file and then truncates it, and that takes away what was just set
	}
	fd, err := unix.Openat(t.root, o.A, flags, mode)
	if err != nil {
		return "", err
	}
	t.drop(o.Slot)
	t.open[o.Slot], err = t.settle(fd, flags)
	return "", err
}

func tmpfile(t *tree, o Op) (string, error) {
	flags := unix.O_TMPFILE | unix.O_RDWR | unix.O_CLOEXEC
	if o.N%4 == 0 {
		flags |= unix.O_EXCL
	}
	fd, err := unix.Openat(t.root, o.A, flags, uint32(o.M&0o7777))
	if err != nil {
		return "", err
	}
	t.drop(o.Slot)
	t.open[o.Slot] = fd
	return "", nil
}

func closeSlot(t *tree, o Op) (string, error) {
	t.drop(o.Slot)
	return "", nil
}

// onSlot does something with an open file.
func onSlot(t *tree, o Op, do func(fd int) (string, error)) (string, error) {
	if t.open[o.Slot] < 0 {
		return "empty", nil
	}
	return do(t.open[o.Slot])
}

// text is what an operation writes: 1 to about 30,000 bytes.
func text(o Op) []byte {
	n := 1 + o.N%400
	if o.N%7 == 0 {
		n *= 70
	}
	return []byte(strings.Repeat(o.Data+".", int(n)/(len(o.Data)+1)+1))[:n]
}

func write(t *tree, o Op) (string, error) {
	return onSlot(t, o, func(fd int) (string, error) {
		n, err := unix.Write(fd, text(o))
		return fmt.Sprint(n), err
	})
}

func pwrite(t *tree, o Op) (string, error) {
	return onSlot(t, o, func(fd int) (string, error) {
		n, err := unix.Pwrite(fd, text(o), o.M%60000)
		return fmt.Sprint(n), err
	})
}

func pread(t *tree, o Op) (string, error) {
	return onSlot(t, o, func(fd int) (string, error) {
		buf := make([]byte, 1+o.N%50000)
		n, err := unix.Pread(fd, buf, o.M%60000)
		return sum(buf[:max(n, 0)]), err
	})
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return fmt.Sprintf("%d %s", len(b), hex.EncodeToString(h[:8]))
}

func ftruncate(t *tree, o Op) (string, error) {
	return onSlot(t, o, func(fd int) (string, error) { return "", unix.Ftruncate(fd, o.M%90000-10) })
}

func fallocate(t *tree, o Op) (string, error) {
	modes := []uint32{
		0, unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_ZERO_RANGE,
		unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE,
	}
	return onSlot(t, o, func(fd int) (string, error) {
		return "", unix.Fallocate(fd, modes[o.N%int64(len(modes))], o.M%60000, o.N%30000)
	})
}

func copyRange(t *tree, o Op) (string, error) {
	if t.open[o.Other] < 0 {
		return "empty", nil
	}
	return onSlot(t, o, func(fd int) (string, error) {
		from, to := o.N%50000, o.M%50000
		n, err := unix.CopyFileRange(fd, &from, t.open[o.Other], &to, int(o.N%9000), 0)
		return fmt.Sprint(n), err
	})
}

// mmapStore stores into a shared mapping and writes it back.
func mmapStore(t *tree, o Op) (string, error) {
	return onSlot(t, o, func(fd int) (string, error) {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size == 0 {
			return "none", err
		}
		m, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return "", err
		}
		at := int(o.M % st.Size)
		copy(m[at:], text(o))
		seen := sum(m)
		if err := unix.Msync(m, unix.MS_SYNC); err != nil {
			return "", err
		}
		return seen, unix.Munmap(m)
	})
}

func fsync(t *tree, o Op) (string, error) {
	return onSlot(t, o, func(fd int) (string, error) {
		if o.N%2 == 0 {
			return "", unix.Fdatasync(fd)
		}
		return "", unix.Fsync(fd)
	})
}

func seekEnd(t *tree, o Op) (string, error) {
	return onSlot(t, o, func(fd int) (string, error) {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			return "no file", err
		}
		n, err := unix.Seek(fd, o.M%100, io.SeekEnd)
		return fmt.Sprint(n), err
	})
}

// put writes a whole file by its name.
func put(t *tree, o Op) (string, error) {
	return byName(t, o, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
}

func appendTo(t *tree, o Op) (string, error) { return byName(t, o, unix.O_WRONLY|unix.O_APPEND) }

func byName(t *tree, o Op, flags int) (string, error) {
	fd, err := unix.Openat(t.root, o.A, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, uint32(o.M&0o777))
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	n, err := unix.Write(fd, text(o))
	return fmt.Sprint(n), err
}

// get reads a whole regular file by its name.
func get(t *tree, o Op) (string, error) {
	fd, err := unix.Openat(t.root, o.A, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT == unix.S_IFCHR {
		return "device", err
	}
	buf := make([]byte, st.Size+1)
	n, err := unix.Read(fd, buf)
	return sum(buf[:max(n, 0)]), err
}

func truncate(t *tree, o Op) (string, error) {
	return "", unix.Truncate(t.path(o.A), o.M%90000*(o.N%2)-o.N%31/30)
}
