// Package gitpatch writes changes of files the way git does, so that 'git apply' and 'patch -p1' repeat them.
//
// # Format
//
// A patch is a sequence of sections, one for each File. A section is a header of git's extended format and, for text,
// the hunks of a unified diff:
//
//	diff --git a/OLD b/NEW
//	old mode 100644              if the kind of permission changes
//	new mode 100755
//	new file mode 100644         or: deleted file mode 100644
//	rename from OLD
//	rename to NEW
//	index SHA1..SHA1             with binary contents only, where git insists on it
//	--- a/OLD                    /dev/null for a new file
//	+++ b/NEW                    /dev/null for a deleted one
//	@@ -1,3 +1,4 @@ …
//
// What git knows of a file is its type (regular, executable or symbolic link) and its contents, the target for a link.
// It knows nothing of directories, owners, times, other permissions, attributes, devices, pipes and sockets, and
// neither do these patches.
//
// Names with control characters, quotes, backslashes or bytes outside of ASCII are C-quoted. Contents with a NUL byte
// are binary, and so are those that are too large for a diff (see MaxText). A binary section says only that the files
// differ, and no tool can apply it, unless its contents are given as a base85 literal. Format: git's documentation of
// git-diff ("generating patch text with -p") and its apply.c.
package gitpatch
