package squashfs

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits of Linux (linux/limits.h): longer ones cannot be read or set.
const (
	pathMax      = 4096    // a path with the zero behind it
	xattrNameMax = 255     // the name of an extended attribute
	xattrListMax = 1 << 16 // the names of an inode with their zeros
)

// maxImportXattrs bounds the attributes of one inode of an imported image: every later access to the inode has them in
// memory.
const maxImportXattrs = 4 << 20

// xattrsFault says why no program of Linux can have set all these attributes of an inode with this mode; "" if one can.
func xattrsFault(mode uint32, list []Xattr) string {
	names, size := make([]string, len(list)), 0
	for i, x := range list {
		if x.Name == "" || len(x.Name) > xattrNameMax || strings.IndexByte(x.Name, 0) >= 0 {
			return fmt.Sprintf("attribute name %.300q", x.Name)
		}
		if fault := xattrFault(mode, x); fault != "" {
			return fmt.Sprintf("attribute %s %s", x.Name, fault)
		}
		names[i] = x.Name
		size += len(x.Name) + 1
	}
	if size > xattrListMax {
		return fmt.Sprintf("attributes whose names take %d bytes", size)
	}
	slices.Sort(names)
	for i := 1; i < len(names); i++ {
		if names[i] == names[i-1] {
			return fmt.Sprintf("attribute %q is there twice", names[i])
		}
	}
	return ""
}

// xattrFault checks attributes that the kernel parses when they are set.
func xattrFault(mode uint32, x Xattr) string {
	switch x.Name {
	case "security.capability":
		if !validCapability(x.Value) {
			return fmt.Sprintf("of %d bytes is no file capability", len(x.Value))
		}
	case "system.posix_acl_access", "system.posix_acl_default":
		kind := mode & unix.S_IFMT
		if kind == unix.S_IFLNK || kind != unix.S_IFDIR && x.Name == "system.posix_acl_default" {
			return "of what has no such list"
		}
		if !validACL(x.Value) {
			return fmt.Sprintf("of %d bytes is no access control list", len(x.Value))
		}
	}
	return ""
}

// File capabilities, as vfs_cap_data and vfs_ns_cap_data of linux/capability.h:
//
//	0 revision and flags u32   4 permitted u32, inheritable u32, once or twice   20 root user id u32, in revision 3
const (
	capRevision1, capSize1 = 0x01000000, 12 // cannot be set any more, but still work
	capRevision2, capSize2 = 0x02000000, 20
	capRevision3, capSize3 = 0x03000000, 24
	capEffective           = 1 // the only flag
)

// validCapability checks what the kernel's cap_convert_nscap and get_vfs_caps_from_disk require.
func validCapability(v []byte) bool {
	le := binary.LittleEndian
	if len(v) < capSize1 {
		return false
	}
	switch le.Uint32(v) &^ capEffective {
	case capRevision1:
		return len(v) == capSize1
	case capRevision2:
		return len(v) == capSize2
	case capRevision3:
		return len(v) == capSize3 && le.Uint32(v[20:]) != noID
	}
	return false
}

// noID is no user's and no group's.
const noID = ^uint32(0)

// POSIX access control lists, as linux/posix_acl_xattr.h: version u32, then entries of
//
//	0 tag u16   2 permissions u16   4 user or group id u32
const (
	aclVersion   = 2
	aclHeader    = 4
	aclEntry     = 8
	aclUserObj   = 0x01
	aclUser      = 0x02
	aclGroupObj  = 0x04
	aclGroup     = 0x08
	aclMask      = 0x10
	aclOther     = 0x20
	aclAllRights = 0o7
)

// aclAfter has the tags that may precede each tag.
var aclAfter = map[uint16]uint16{
	aclUserObj: 0, aclUser: aclUserObj | aclUser, aclGroupObj: aclUserObj | aclUser, aclGroup: aclGroupObj | aclGroup,
	aclMask: aclGroupObj | aclGroup, aclOther: aclGroupObj | aclMask,
}

// validACL checks what the kernel's posix_acl_from_xattr and posix_acl_valid require: the owner, users, the group,
// groups, the mask, which users and groups need, and the others, in this order.
func validACL(v []byte) bool {
	le := binary.LittleEndian
	if len(v) <= aclHeader || len(v)%aclEntry != aclHeader || le.Uint32(v) != aclVersion {
		return false
	}
	last, named := uint16(0), false
	for p := v[aclHeader:]; len(p) > 0; p = p[aclEntry:] {
		tag, rights, id := le.Uint16(p), le.Uint16(p[2:]), le.Uint32(p[4:])
		before, known := aclAfter[tag]
		if !known || rights&^aclAllRights != 0 || last&before != last || last == 0 && tag != aclUserObj {
			return false
		}
		if tag == aclUser || tag == aclGroup {
			if named = true; id == noID {
				return false
			}
		}
		if tag == aclOther && named && last != aclMask {
			return false
		}
		last = tag
	}
	return last == aclOther
}
