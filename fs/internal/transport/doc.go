// Package transport carries the requests of FUSE connections from the kernel to a handler, and the answers back, over
// /dev/fuse or over io_uring. It knows opcodes and sizes, and nothing of what a request means: no tree, no layer.
//
// Serve makes a connection and chooses its transport; the Conn that it returns is all that users see.
//
// # Nouns
//
//   - connection: the kernel's end of one FUSE mount. It lives until the last copy of the mount is gone.
//   - handler: what answers a request. It may take long, and may be called by many goroutines.
//   - gate: where the file system holds changes back at times.
//   - device: the transport that reads and writes /dev/fuse.
//   - leader: the one goroutine that reads a device. It also handles the request, because waking another thread costs
//     more than most requests do.
//   - work queue: where the requests of one mount and kind (reading, changing, syncing) go that the thread which read
//     them does not handle: because more than one is waiting, because they are slow, or because others of the kind are
//     stuck. Those that run have a goroutine each, those that wait have none.
//   - pool: how many threads the work queues of one kind may have, of all mounts.
//   - hub: what all connections of the process share: the epoll set where idle devices wait without goroutine, thread
//     or buffer, and the watchdog that has another thread go on where a request is stuck.
//   - uring: the transport over io_uring. Its device stays, as a secondary device, for what the kernel sends only
//     there.
//   - queue: the kernel's queue of the requests sent on one processor, of one mount. There is one per possible
//     processor.
//   - entry: room for one request in a queue. The kernel fills it, the handler answers it, and submitting the answer
//     makes it free for the next request. slot is its memory.
//   - lane: the ring that the queues of one processor, of all mounts, share, and its threads.
//   - thread: one of these. main is bound to the lane's processor; others are substitutes.
//   - idle priority: the policy SCHED_IDLE, which a thread has while it waits, so that the programs it serves stay on
//     its processor.
//   - affinity: what binds a leader to the processor of the program that it serves.
//
// # The path of a request over the device
//
//	program ── request ──▶ kernel's queue ──▶ leader (read) ──▶ handler ──▶ leader (write) ──▶ program
//	                                            └─▶ work queue ─▶ goroutine ─▶ handler ─▶ goroutine (write)
//
// An idle device has no leader: the hub starts one when there is a request, and it ends when none came for a while. A
// leader that is stuck in a request is replaced, and ends when it is back.
//
// # The path of a request over io_uring
//
//	program ── request ──▶ queue of its processor ──▶ entry ──▶ ring of that processor's lane ──▶ main thread
//	program ◀── answer ── the same entry, submitted when the thread asks for the next request ◀──────┘
//
// A request and its answer stay on one processor, where program and thread take turns: that is what is cheaper than
// waking a thread elsewhere. The thread handles requests itself. Those of a slow kind (fsync is one unless the disk was
// quick lately, see slow.go), large READs, and other large ones when others wait, go to their work queue. When one that
// should be quick is not, the watchdog unparks a substitute within two milliseconds, which takes the requests that come
// meanwhile, passes changes to their work queues, and is parked when main is back. In both cases the queue gets more
// entries, so that the last one is never taken by a request that waits for something: a queue keeps some free, and has
// up to queueLimit of them.
//
// The kernel does its part of the work, copying requests into slots, in the thread that submitted the entry, whenever
// that thread enters or leaves the kernel. So threads never end, and each reclaims the memory of its own entries only.
// And what is sent to the entries of a thread that hangs in a frozen host hangs with it: those are written off, and new
// ones put before them (ringlost.go).
//
// FORGET and INTERRUPT come over the device, notifications go there. An entry's command keeps the connection alive:
// closing the device ends nothing, so a mount uses io_uring only if it can be aborted through the control file system.
// Where io_uring is not available (it is switched off, forbidden, out of memory or descriptors, refused for one mount,
// or does nothing), a mount whose transport was not chosen by the caller uses the device: from the start, or made again
// before any program has seen it. An unknown error of io_uring_enter is retried, ever more rarely (ringerror.go); new
// mounts use the device meanwhile. At the end of a connection the kernel fails the command of each entry, at once or
// when its answer is submitted; the descriptor of the device is closed after the last one.
//
// # What waits
//
// A request may wait for the gate (a pause, a seal, a rollback), for a full, slow or frozen host, for a broken disk. It
// never holds up another mount, and of its own mount only those of its kind.
//
//	gate closed ────────────────────▶ the work queue: no thread, no goroutine; its buffer, or its entry
//	maxInlineStuck of its kind stuck ▶ the work queue, and a goroutine if the pool has one for the mount
//	mount takes too much memory ────▶ unread: the kernel's queue
//
// The transport asks whether the gate is closed before it handles a change, and is told when it opens. A pool gives
// each mount one thread, and lends more: to each mount a part of what is left at the time, so that one alone gets many,
// many get few each, and one that comes later finds some. While half of a pool is in use all of the kind goes to work
// queues. The memory of what waits is shared in the same way. The bounds are in bounds.go.
//
// When a program is killed while its request waits in a work queue, the request is refused and not done (interrupt.go).
// Other signals change nothing, as file systems are not expected to answer with EINTR.
//
// # Goroutines
//
//	goroutine             number                          ends
//	hub.loop              one of the process              never
//	hub.watchdog          one of the process              when nothing is busy
//	device.run            one of a busy device, and       when the device is idle or its connection has ended,
//	                      those that are stuck            or when it comes back and was replaced
//	thread.run            one of a lane, and substitutes  never
//	workQueue.run         as many as the pool grants      when no request of the work queue may run
//	queue.kickLater       one of a queue                  when no kick is pending
//
// Each that belongs to a connection counts as a user of its device. The last user closes the descriptor and calls
// Attached.Done: that is what callers wait for. Besides these, short goroutines do what must not be done with a lock
// held.
//
// # Locks, outermost first
//
//	hub.mu                    devices, and what the watchdog looks after
//	├─ schedIdle.mu           the policy of one thread
//	└─ lane.mu                what is queued in one ring
//	   ├─ slotStore.mu        memory of ring entries
//	   └─ workQueue.mu        requests of one mount and kind that wait
//	      └─ pool.mu          threads of one kind
//	the gate's                who is told that it is open
//	└─ (workQueue.mu)
//
// Beside these, theLanes has a lock under which the lanes are made once, and the race detector's builds have
// device.orderMu. docs/LOCKS.md has the whole tree. All are held for a moment at a time and never while a request is
// handled. No
// deadlock can come from a request that waits for another one: each kind has its own work queues, prompt requests
// (FORGET, INTERRUPT) never wait, and Notify, which may wait in the kernel for answers, is called with none of these
// locks held.
package transport
