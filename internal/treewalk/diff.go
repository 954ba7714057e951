package treewalk

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Options say what Diff leaves out or adds. By default it compares type, mode, owner, mtime, device number, size,
// contents, target, link count and group of non-directories, xattrs, and extents.
type Options struct {
	IgnoreMtime    bool
	IgnoreDirMtime bool
	IgnoreOwner    bool
	IgnoreXattrs   bool
	IgnoreExtents  bool
	IgnoreNlink    bool
	IgnoreRoot     bool // the root directory's own attributes
	Ino            bool // inode numbers too
	Atime          bool
	Ctime          bool
	Btime          bool
	// DropXattr leaves attributes out for whose name it returns true; may be nil.
	DropXattr func(name string) bool
}

// Diff lists the differences of two walks, one per line; none means equal.
func Diff(a, b []Node, opts Options) []string {
	var out []string
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Path < b[0].Path:
			out = append(out, "only in first: "+a[0].String())
			a = a[1:]
		case len(a) == 0 || b[0].Path < a[0].Path:
			out = append(out, "only in second: "+b[0].String())
			b = b[1:]
		default:
			if !opts.IgnoreRoot || a[0].Path != "." {
				out = append(out, compare(a[0], b[0], opts)...)
			}
			a, b = a[1:], b[1:]
		}
	}
	return out
}

// compare lists the fields in which two nodes of one path differ.
func compare(a, b Node, opts Options) []string {
	var out []string
	check := func(skip bool, what string, x, y any) {
		if !skip && x != y {
			out = append(out, fmt.Sprintf("%q: %s %v != %v", a.Path, what, x, y))
		}
	}
	dir := a.Mode&unix.S_IFMT == unix.S_IFDIR
	check(false, "mode", fmt.Sprintf("%o", a.Mode), fmt.Sprintf("%o", b.Mode))
	check(opts.IgnoreOwner, "owner", [2]uint32{a.UID, a.GID}, [2]uint32{b.UID, b.GID})
	check(opts.IgnoreMtime || dir && opts.IgnoreDirMtime, "mtime", a.Mtime, b.Mtime)
	check(false, "rdev", a.Rdev, b.Rdev)
	check(false, "size", a.Size, b.Size)
	check(false, "contents", a.Hash, b.Hash)
	check(false, "target", a.Target, b.Target)
	check(dir || opts.IgnoreNlink, "nlink", a.Nlink, b.Nlink)
	check(opts.IgnoreNlink, "link group", a.Group, b.Group)
	check(!opts.Ino, "ino", a.Ino, b.Ino)
	check(!opts.Atime, "atime", a.Atime, b.Atime)
	check(!opts.Ctime, "ctime", a.Ctime, b.Ctime)
	check(!opts.Btime, "btime", a.Btime, b.Btime)
	if !opts.IgnoreXattrs {
		check(false, "xattrs", attrs(a.Xattrs, opts.DropXattr), attrs(b.Xattrs, opts.DropXattr))
	}
	if !opts.IgnoreExtents && !slices.Equal(a.Extents, b.Extents) {
		out = append(out, fmt.Sprintf("%q: extents %v != %v", a.Path, a.Extents, b.Extents))
	}
	return out
}

func attrs(m map[string]string, drop func(string) bool) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if drop == nil || !drop(k) {
			fmt.Fprintf(&b, " %s=%q", k, m[k])
		}
	}
	return b.String()
}
