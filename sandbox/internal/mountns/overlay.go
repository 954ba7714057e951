package mountns

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Merge is an overlay of the kernel: what is written to it goes to the directory Upper, and what that does not have is
// that of Lower. Work is a directory of the file system of Upper. Paths are those of this process.
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

// make makes the overlay, as a mount that is in no tree yet. What the kernel does for that may ask the server of the
// lower.
func (m Merge) make(options [][2]string) (mount int, err error) {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("the kernel's overlayfs: %w", err)
	}
	defer func() { _ = unix.Close(fs) }() // what was made lives on in the mount
	all := append([][2]string{
		{"source", m.Source}, {"lowerdir+", m.Lower}, {"upperdir", Escaped(m.Upper)}, {"workdir", Escaped(m.Work)},
	}, options...)
	for _, o := range all {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return -1, fmt.Errorf("overlayfs, %s=%s: %w%s", o[0], o[1], err, complaints(fs))
		}
	}
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
// unmounted: another one with the same upper is refused then, if it insists on having it alone.
func (c *child) inUse() error {
	if c.Merge == nil {
		return unix.EINVAL
	}
	c.Merge.clean() // of a home that was copied, it is about other directories, and the kernel refuses it
	mount, err := c.Merge.make(exclusive)
	if errors.Is(err, unix.EBUSY) {
		c.place.Mounted = true
		return nil
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return nil // it has the upper already, and lacks room for what it would have in Work
	}
	if err != nil {
		return err
	}
	err = unix.Close(mount)
	c.Merge.clean()
	return err
}

// clean removes what an overlay that insists on having its upper alone leaves: which lower and which work directory were
// the upper's, and the directories that it makes in that.
func (m Merge) clean() {
	for _, name := range []string{"trusted.overlay.origin", "trusted.overlay.uuid"} {
		_ = unix.Lremovexattr(m.Upper, name) // or it has none
	}
	for _, name := range []string{"index", "work"} {
		_ = unix.Rmdir(filepath.Join(m.Work, name)) // or there is none
	}
}
