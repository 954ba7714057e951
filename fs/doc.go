// Package fs serves a layers.Overlay to the kernel over FUSE: it translates and holds no policy.
//
// # Nouns
//
//   - mount: one FUSE connection and the place where it was attached. Copies of it in other mount namespaces belong to
//     the same connection, which lives until the last of them is gone.
//   - adapter: the translation of go-fuse's RawFileSystem calls into calls of the overlay.
//   - transport: what carries requests from the kernel to go-fuse's protocol server and the answers back.
//   - device: the transport that reads and writes /dev/fuse.
//   - leader: the one goroutine that reads a device. It handles a request where it stands, because waking another
//     thread costs more than most requests do.
//   - helper: a goroutine that handles one request, started when more than one is waiting or when a request is of a
//     slow kind.
//   - hub: what all devices of the process share: the epoll set where idle devices wait without goroutine, thread or
//     buffer, and the watchdog that replaces a leader stuck in a request.
//
// # What the kernel is told
//
// OPEN, OPENDIR and FLUSH are answered with ENOSYS, once each: from then on the kernel opens and closes by itself and
// no file handle exists. All timeouts are infinite, because nothing but the kernel's own
// requests changes what it sees: a seal and a replaced lower leave the tree as it is. Permissions are the kernel's business
// (default_permissions), except that the umask is left to us (DONT_MASK), because a default ACL replaces it.
// Where somebody else changes the tree, the mount's owner tells the kernel what to forget (notify.go).
// Locks are the kernel's own: advisory locks need no server as long as there is one kernel.
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
// hub.mu is the only one, held for a moment at a time and never while a request is handled. A device's descriptor is
// kept open by counting its users.
package fs
