package scoped

import (
	"bytes"
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// maxAttribute is the largest value of an extended attribute that Linux allows, and the longest list of names.
const maxAttribute = 64 << 10

// kept reports whether a file that is replaced passes an attribute on. Capabilities are lost with the contents, as by
// write(2), and labels are the system's to give.
func kept(name string) bool {
	return strings.HasPrefix(name, "user.") || name == "system.posix_acl_access"
}

// copyAttributes gives the draft the attributes of the file that it replaces.
func (d *draft) copyAttributes(to int) error {
	from := procFD(d.was)
	n, err := unix.Listxattr(from, nil)
	if errors.Is(err, unix.EOPNOTSUPP) || err == nil && n == 0 {
		return nil
	}
	list := make([]byte, maxAttribute)
	if err == nil {
		n, err = unix.Listxattr(from, list)
	}
	if err != nil {
		return err
	}
	value := make([]byte, maxAttribute)
	for name := range bytes.SplitSeq(bytes.TrimSuffix(list[:n], []byte{0}), []byte{0}) {
		if !kept(string(name)) {
			continue
		}
		n, err := unix.Getxattr(from, string(name), value)
		if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EACCES) {
			continue // it is gone, or is for those only who may read the file
		}
		if err == nil {
			err = unix.Fsetxattr(to, string(name), value[:n], 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
