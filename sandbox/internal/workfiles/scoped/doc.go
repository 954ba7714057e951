// Package scoped makes calls on files below one directory, the root, and nowhere else.
//
// Each path is looked up by openat2(2), as if the root were the whole file system (RESOLVE_IN_ROOT): "..", absolute
// symbolic links, and programs that swap directories and links meanwhile lead to something below the root, or nowhere.
// What is mounted below it is not entered (RESOLVE_NO_XDEV), nor are the links of /proc (RESOLVE_NO_MAGICLINKS).
// Where a name is to be made, removed or renamed, its directory is looked up so, and the system call gets the
// descriptor of that and the last name, which it does not follow.
//
// Only regular files are ever opened to be read or written: a descriptor that does nothing (O_PATH) is looked at first,
// and the very same file is then opened by its name in /proc/self/fd. So pipes do not block, and devices notice
// nothing.
//
// Errors have classes of package api. Everything is bounded: see bounds.go.
//
// A Root has no state but its descriptor; its methods may be called concurrently.
package scoped
