package layers

import "golang.org/x/sys/unix"

// Types of file systems that wait for another machine or process, as statfs(2) gives them, which x/sys does not name.
const (
	cephMagic   = 0x00c36400
	lustreMagic = 0x0bd00bd0
)

// Remote reports whether the upper, or without one the topmost directory, or a source lies on a file system that waits
// for another machine or process: calls there may hang for long, where no signal reaches them.
func (o *Overlay) Remote() bool {
	o.tree.RLock()
	defer o.tree.RUnlock()
	top := true
	for _, l := range o.stack {
		s := l.lower.dir
		if s != nil && !top {
			continue
		}
		if s != nil {
			top = false
		} else if src := l.lower.source; src != nil {
			s = src.host.store
		} else {
			continue
		}
		var st unix.Statfs_t
		if unix.Fstatfs(s.root, &st) == nil && remote(st.Type) {
			return true
		}
	}
	return false
}

func remote(magic int64) bool {
	switch uint32(magic) { // some have the highest bit set
	case unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC, unix.V9FS_MAGIC, unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC,
		unix.CODA_SUPER_MAGIC, unix.OCFS2_SUPER_MAGIC, cephMagic, lustreMagic:
		return true
	}
	return false
}
