package layers

import (
	"encoding/binary"
	"strings"
)

// The overlay's own attributes. The first group is the kernel's (Documentation/filesystems/overlayfs.rst); the second
// is ours, in a name space that the kernel's overlayfs hides from callers and does not interpret.
const (
	xattrPrefix   = "trusted.overlay."
	xattrOpaque   = xattrPrefix + "opaque"   // "y": nothing below shows; "x": attribute whiteouts inside
	xattrRedirect = xattrPrefix + "redirect" // where the layers below have this
	xattrMetacopy = xattrPrefix + "metacopy" // data is below
	xattrWhiteout = xattrPrefix + "whiteout" // on an empty file: a whiteout
	xattrImpure   = xattrPrefix + "impure"   // on a directory: holds entries with xattrIno or xattrNode

	// What the kernel notes for itself, see kernelOnly.
	xattrOrigin   = xattrPrefix + "origin"   // which inode of a lower was copied up
	xattrNlink    = xattrPrefix + "nlink"    // of a file in the index
	xattrUUID     = xattrPrefix + "uuid"     // on the root: of the file system that it shows
	xattrProtattr = xattrPrefix + "protattr" // inode flags that the upper must not have
	xattrUpper    = xattrPrefix + "upper"    // on what is in the index

	xattrEscaped = xattrPrefix + "overlay." // what a caller knows as trusted.overlay.X

	xattrFar = xattrPrefix + "snapfs.redirect" // number of the side file with a redirect that outgrew xattrRedirect
	xattrIno = xattrPrefix + "snapfs.ino"      // inode info: what callers see of the inode that the host does not know
	// xattrBlocks is on a metacopy that has some of the data itself: which blocks, see blockMap.
	xattrBlocks = xattrPrefix + "snapfs.blocks"
	// xattrNode marks an empty regular file that stands for a character device 0/0 made by a caller: a whiteout of
	// an overlay inside the workspace.
	xattrNode = xattrPrefix + "snapfs.node"
)

// xattrDefaultACL is what the kernel calls the ACL that new entries of a directory inherit.
const xattrDefaultACL = "system.posix_acl_default"

// metacopyPartial is the value of xattrMetacopy of a partial file. The kernel's overlayfs (from 6.6 on) knows no value
// of one byte and refuses the file, where it would show stale contents else.
const metacopyPartial = "p"

// kernelOnly reports whether a raw name is one that the kernel's overlayfs writes into an upper for itself: it tells of
// inodes of the host, and means nothing in an image.
func kernelOnly(raw string) bool {
	switch raw {
	case xattrImpure, xattrOrigin, xattrNlink, xattrUUID, xattrProtattr, xattrUpper:
		return true
	}
	return false
}

// ownXattr reports whether a raw name belongs to the overlay and is hidden from callers.
func ownXattr(raw string) bool {
	return strings.HasPrefix(raw, xattrPrefix) && !strings.HasPrefix(raw, xattrEscaped)
}

// escapeXattr gives the raw name of what a caller calls name.
func escapeXattr(name string) string {
	if rest, ok := strings.CutPrefix(name, xattrPrefix); ok {
		return xattrEscaped + rest
	}
	return name
}

// unescapeXattr is the inverse of escapeXattr for names that are not the overlay's own.
func unescapeXattr(raw string) string {
	if rest, ok := strings.CutPrefix(raw, xattrEscaped); ok {
		return xattrPrefix + rest
	}
	return raw
}

func encodeIno(ino uint64) []byte { return binary.LittleEndian.AppendUint64(nil, ino) }
