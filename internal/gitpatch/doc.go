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
//	similarity index 93%
//	rename from OLD
//	rename to NEW
//	index SHA1..SHA1 100644      if the contents differ; the mode if it stays
//	--- a/OLD                    /dev/null for a new file
//	+++ b/NEW                    /dev/null for a deleted one
//	@@ -1,3 +1,4 @@ func …
//
// What git knows of a file is its type (regular, executable or symbolic link) and its contents, the target for a link.
// It knows nothing of directories, owners, times, other permissions, attributes, devices, pipes and sockets, and
// neither do these patches.
//
// Names with control characters, quotes, backslashes or bytes outside of ASCII are C-quoted. Contents with a NUL byte
// are binary, and so are those that are too large for a diff (see MaxText): they are put into the patch as git does
// with --binary, for both directions, whole or as a delta against the other side, whichever is shorter. The names of
// contents are those of repositories with SHA-1, in full, as binary sections and 'git apply --3way' need them. Format:
// git's documentation of git-diff ("generating patch text with -p") and its apply.c, diff.c and delta.h.
//
// # What patch(1) does with it
//
// git applies a patch as a whole or not at all. GNU patch goes from section to section, and leaves out what it cannot
// do: binary contents, and a directory where a file was. [Guard] goes before such a patch: git skips it as it does the
// text of a mail, and patch ends before it has changed anything.
package gitpatch
