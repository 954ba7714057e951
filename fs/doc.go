// Package fs serves a layers.Overlay to the kernel over FUSE: it translates and holds no policy. How requests come and
// answers go is the business of internal/transport, how a mount comes about that of internal/mountpoint.
//
// # Nouns
//
//   - mount: one FUSE connection and the place where it was attached. Copies of it in other mount namespaces belong to
//     the same connection, which lives until the last of them is gone.
//   - adapter: the translation of go-fuse's RawFileSystem calls into calls of the overlay.
//   - hot: the answers to what programs ask all the time, without go-fuse's protocol server.
//
// # What the kernel is told
//
// OPEN, OPENDIR and FLUSH are answered with ENOSYS, once each: from then on the kernel opens and closes by itself and
// no file handle exists.
//
// Of the lower of a kernel overlayfs, which asks for attributes at each look-up and caches no answer, GETXATTR is answered
// so as well when no layer has attributes that callers see (layers.Overlay.Attributeless). That stays true: other layers in
// their place show the same. The kernel says EOPNOTSUPP from then on, where it would say ENODATA. For the kernel's
// overlayfs, access control lists and capabilities this is one and the same. LISTXATTR is served: programs that list
// attributes take an empty list for what it is, and some of them fail with EOPNOTSUPP.
//
// Directories are always listed with their entries (READDIRPLUS): what is listed is looked up next, by stat, open or
// unlink, and an entry costs a fraction of a request. The kernel's own guess (READDIRPLUS_AUTO) gives up after the
// first buffer of a directory, which costs a fifth of the tree in look-ups.
//
// All timeouts are infinite, because only the kernel's own requests change what it sees: a seal and a replaced lower
// leave the tree as it is. Where other calls change the tree, the mount's owner tells the kernel what to forget
// (notify.go). A mount with more nodes than its share asks the kernel to forget those that are not in use (prune.go).
//
// Permissions are the kernel's business (default_permissions), except that the umask is left to the server (DONT_MASK),
// because a default ACL replaces it. A mount may be id-mapped (ALLOW_IDMAP): the kernel translates owners, and sends
// the ids of the caller only with requests that create an inode, of any mount; the ids of other callers are looked up
// in /proc where they matter. privilege.go has what a write takes from a file's mode.
//
// Locks are the kernel's own: advisory locks need no server as long as there is one kernel.
//
// # Mounts that outlive the server
//
// With Options.Live another process can go on with a mount when this one was killed (Adopt) or gives it up (Release).
// The connection lives as long as any process has its descriptor (DeviceFile). Of what this package knows of it, the
// successor needs
//
//   - what INIT negotiated: it is kept (kept.go), and the protocol server is told again. A version that would negotiate
//     something else refuses to adopt.
//   - that OPEN, OPENDIR and FLUSH, and maybe GETXATTR, are not served: the kernel remembers it.
//   - which thread has asked for capabilities (removals): it is lost, see there for what that means.
//   - requests that were read and not answered: the kernel gives them out again, see again.go. FORGET is not among
//     them: a node whose FORGET was read and not handled stays until the unmount.
//
// # Rules
//
//   - The serving process never touches its own mount; statx with AT_STATX_DONT_SYNC and an empty mask is the
//     exception, it is answered by the kernel alone.
//   - An errno of ENOSYS would switch an operation off for the life of the mount. errno.go lets none through by
//     accident.
//
// # Locks
//
// While a request is handled nothing is locked here but removals.mu, a leaf that is held for a moment. The overlay's
// locks are in the doc.go of layers, those of the transport in its own.
package fs
