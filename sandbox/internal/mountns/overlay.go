package mountns

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Merge is an overlay of the kernel: what is written to it goes to the directory Upper, and what that does not have is
// that of Lower. Work is a directory of the file system of Upper; for InUse, one that Upper is in. Paths are those of this
// process.
type Merge struct {
	Source string `json:"source"` // what mount tables call it
	Lower  string `json:"lower"`
	Upper  string `json:"upper"`
	Work   string `json:"work"`
	Set    uint64 `json:"set,omitempty"` // attributes as fsmount(2) has them
}

// mergeOptions are the same for every overlay. Directories below can be renamed. What is copied up is copied as a whole,
// so that all data of the upper is in it. No file handles are kept for what a lower of another mount does not know.
var mergeOptions = [][2]string{
	{"redirect_dir", "on"},
	{"metacopy", "off"},
	{"index", "off"},
	{"nfs_export", "off"},
	{"xino", "off"},
	{"uuid", "null"},
}

// exclusive are the options of an overlay that the kernel refuses with EBUSY if another one has its upper.
var exclusive = [][2]string{{"index", "on"}, {"nfs_export", "off"}, {"uuid", "on"}}

// Escaped is how overlayfs, and its mount table, has the path of an upper or a work directory: backslashes escape there.
// In the paths of single lowers they do not.
func Escaped(path string) string { return strings.ReplaceAll(path, `\`, `\\`) }

// begin begins to make the overlay.
func (m Merge) begin(options [][2]string) (fs int, err error) {
	fs, err = unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("the kernel's overlayfs: %w", err)
	}
	all := append([][2]string{
		{"source", m.Source}, {"lowerdir+", m.Lower}, {"upperdir", Escaped(m.Upper)}, {"workdir", Escaped(m.Work)},
	}, options...)
	for _, o := range all {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			err = fmt.Errorf("overlayfs, %s=%s: %w%s", o[0], o[1], err, complaints(fs))
			_ = unix.Close(fs) // nothing was made
			return -1, err
		}
	}
	return fs, nil
}

// make makes the overlay, as a mount that is in no tree yet. What the kernel does for that may ask the server of the
// lower.
func (m Merge) make(options [][2]string) (mount int, err error) {
	fs, err := m.begin(options)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(fs) }() // what was made lives on in the mount
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("overlayfs: %w%s", err, complaints(fs))
	}
	mount, err = unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, int(m.Set))
	if err != nil {
		return -1, fmt.Errorf("overlayfs: %w%s", err, complaints(fs))
	}
	return mount, nil
}

// complaints are what the kernel has said about a file system that is being made, see fsopen(2); "" for nothing.
func complaints(fs int) string {
	var text strings.Builder
	buf := make([]byte, 1024)
	for {
		n, err := unix.Read(fs, buf)
		if err != nil || n <= 0 {
			return text.String()
		}
		line := strings.TrimSpace(string(buf[:n]))
		if rest, ok := strings.CutPrefix(line, "e "); ok {
			text.WriteString(" (" + rest + ")")
		}
	}
}

// merge makes the overlay that is to be attached, and tells its device.
func (c *child) merge() (err error) {
	if c.Merge == nil {
		return unix.EINVAL
	}
	if c.FDs.Mount, err = c.Merge.make(mergeOptions); err != nil {
		return err
	}
	if c.place.Device, _, err = identify(c.FDs.Mount); err != nil {
		return err
	}
	var st unix.Statx_t
	err = unix.Statx(c.FDs.Mount, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st)
	c.place.ID = st.Mnt_id
	return err
}

// inUse tells whether an overlay of the kernel has an upper, wherever it is mounted, or held open after it was
// unmounted: another one with the same upper is refused then, if it insists on having it alone. Work is not to be had with
// Upper: an upper that is free is refused for that, and nothing is written.
func (c *child) inUse() error {
	if c.Merge == nil {
		return unix.EINVAL
	}
	var host unix.Statfs_t
	if err := unix.Statfs(c.Merge.Upper, &host); err != nil {
		return fmt.Errorf("%s: %w", c.Merge.Upper, err)
	}
	if host.Flags&unix.ST_RDONLY != 0 { // nothing could be had there
		return fmt.Errorf("%s: %w", c.Merge.Upper, unix.EROFS)
	}
	fs, err := c.Merge.begin(exclusive)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fs) }() // nothing was made
	switch err := unix.FsconfigCreate(fs); {
	case errors.Is(err, unix.EBUSY):
		c.place.Mounted = true
	case err == nil, errors.Is(err, unix.EINVAL):
	default:
		return fmt.Errorf("overlayfs: %w%s", err, complaints(fs))
	}
	return nil
}
