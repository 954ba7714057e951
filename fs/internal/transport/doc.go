// Package transport carries the requests of FUSE connections from the kernel to a handler and the answers back, over /dev/fuse
// or over io_uring. It knows opcodes and sizes, and nothing of what a request means: no tree, no layer.
//
// # Nouns
//
//   - connection: what the kernel's side of one FUSE mount talks to, Conn. It lives until the last copy of the mount is gone.
//   - transport: what carries requests from the kernel to go-fuse's protocol server and the answers back.
//   - device: the transport that reads and writes /dev/fuse.
//   - leader: the one goroutine that reads a device. It handles a request where it stands, because waking another
//     thread costs more than most requests do.
//   - line: where the requests of one mount and kind (looking, changing, syncing) go that nobody handles where they were met: because more
//     than one is waiting, because they are of a slow kind, or because others of the kind are stuck. Those that run have a goroutine
//     each, those that wait none.
//   - pool: how many threads the lines of one kind may have, of all mounts.
//   - hub: what all transports of the process share: the epoll set where idle devices wait without goroutine, thread or
//     buffer, and the watchdog that finds somebody else where a request is stuck.
//   - uring: the transport over io_uring. Its device stays, for what the kernel sends nowhere else.
//   - queue: the kernel's queue of the requests sent on one processor, of one mount. There is one per possible processor.
//   - entry: a place for one request in a queue. The kernel fills it, we answer it, and handing in the answer makes it
//     free for the next request. slot is its memory.
//   - lane: the ring that the queues of one processor, of all mounts, share, and the threads that serve it.
//   - courtesy: that a thread which serves the programs of a processor makes way for them there, so that they stay.
//   - follower: what binds a leader to the processor of the program that it serves.
//   - hand: one of these threads. main is bound to the lane's processor; others are substitutes.
//
// # FUSE over io_uring
//
//	program ── request ──▶ queue of its processor ──▶ entry ──▶ ring of that processor's lane ──▶ main hand
//	program ◀── answer ── the same entry, handed in when the hand asks for the next request ◀────────┘
//
// A request and its answer stay on one processor, where program and hand take turns: that is what is cheaper than
// waking a thread elsewhere. The hand handles requests where it stands. Those of a slow kind (fsync is one unless the disk
// was quick lately, see slow.go), large READs, and other large ones when others wait, go to their line; when one that should be quick is
// not, the watchdog calls a substitute within two milliseconds, who takes the requests that come meanwhile, gives changes to their lines, and
// leaves when main is back. In both cases the queue gets more entries, so that the last one is never held by a request that waits for
// something: a queue keeps some free, and has up to queueLimit of them.
//
// The kernel does its part of the work, copying requests into slots, in the thread that submitted the entry, whenever
// that thread enters or leaves the kernel. So threads never end, and only main may take memory away from slots. And what is sent to the
// entries of a thread that hangs in a frozen host hangs with it: those are written off, and new ones put before them (uringlost.go).
//
// FORGET and INTERRUPT come over the device, notifications go there. An entry's command holds the connection: closing
// the device ends nothing, so that a mount uses io_uring only if it can be aborted through the control file system.
// Whatever of io_uring cannot be had (it is switched off, forbidden, out of memory or descriptors, refused for one mount, or does nothing), a
// mount whose transport was left to us uses the device: from the start, or made again before anybody has seen it.
// An error of io_uring_enter that nobody knows is tried again, ever more rarely (uringerror.go); new mounts use the device meanwhile.
// At the end of a connection the kernel fails the command of each entry, at once or when its answer is handed in; the
// descriptor of the device is closed after the last one.
//
// # What waits
//
// A request may wait for the overlay's gate (a pause, a seal, a rollback), for a full, slow or frozen host, for a broken disk. It never holds up
// another mount, and of its own mount only those of its kind.
//
//	gate closed ───────────────▶ the line: no thread, no goroutine; its buffer, or its ring entry
//	inlineMost of its kind stuck ▶ the line, and a goroutine if the pool has one for the mount
//	mount keeps too much ──────▶ unread: the kernel's queue
//
// The transport asks whether the gate is closed before it handles a change, and is told when it opens. A pool gives each mount one thread, and
// lends more: to each mount a part of what is left at the time, so that one alone gets many, many get few each, and one that comes
// later finds some. While half of a pool is in use nothing of the kind is handled where it was met. The memory of what waits is shared in the
// same way. The bounds are in bounds.go. Who is killed while his request waits in a line is let go (killed.go): the request is answered, not
// done. Other signals change nothing, as file systems are not expected to answer with EINTR.
//
// # Locks
//
//	hub.mu > lane.mu > slotStore.mu
//	         lane.mu > line.mu > pool.mu
//	the gate's list of those to be told that it is open > line.mu
//	hub.mu > courtesy.mu
//
// All are held for a moment at a time and never while a request is handled. A device's descriptor is kept open by
// counting its users.
package transport
