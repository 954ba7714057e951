// Package sandbox is the Go API of snapfs: workspaces, snapshots, sessions and their lifecycle.
//
// # Nouns
//
//   - A home is a directory that one process holds open: a store, the uppers, and the mounts made from them.
//   - A workspace is a mutable tree: one upper directory over a base layer and everything below that.
//   - A layer is an immutable delta over its parent layer; layers form a tree, and a stack is the way from one layer
//     to its root. A layer is first sealed (the very directory that was the upper) and then stored (an image in the
//     chunk store). It lives as long as something names it: a snapshot, a workspace, or a layer above. One that only a
//     layer above names is merged into that in time; see package layerstore.
//   - A tier is a second image of a layer, which stands for the layers below it, too, and makes deep stacks short; see
//     package catalog.
//   - A snapshot is a durable record that names the topmost layer of a stack.
//   - A turn is a snapshot with a number and without a name. The turns of a workspace are a line, along which Undo and
//     Redo move it; see turnline.go.
//   - A session owns workspaces and snapshots. Others are refused unless they opt in, which leaves an audit event.
//   - An event says who did what to a workspace, and outlives it. Events expire, see EventLimits.
//   - Pinned is space in the store that nothing names any more and that a mount or a call still reads.
//
// # The home directory
//
//	HOME/snapfs-home    what this directory is: kind, version, identity; written first, made ready last
//	HOME/lock           flock of the process that holds the home, with its process id; HOME itself is locked, too
//	HOME/store/         chunk store; its buckets hold the records (see package catalog)
//	HOME/uppers/N/      upper/ and work/ of the upper with number N
//	HOME/lost+found/    directories that no record named when the home was opened
//	HOME/empty/         stays empty: the tree of a workspace that was made from nothing, for comparisons
//	HOME/mnt/NAME       mountpoints of services (ServiceMountpoint); no other place in the home is one
//	HOME/daemon.sock    socket of the daemon, if one serves the home
//
// An upper never moves: sealing it changes the record that names it, not its path, so one transaction is all that
// separates "the workspace writes here" from "this is a layer". The number of an upper tells which inode numbers files
// get that are made in it. It is not used again while an upper or an image has one of these; see package uppers.
//
// # Durability
//
// Payload first, the record that names it last. A directory is removed after the record of it is gone: the
// transaction that drops the last name of an upper also writes its number into the trash bucket, which package uppers
// empties, after a crash as well. What a crash leaves in uppers/ without a record is empty (an upper gets its first
// entry after its record is durable) and is removed; if it is not, it goes to lost+found.
//
// A seal and a rollback change what a workspace's writes go to, behind the gate of its overlay, which must not wait for
// a disk. So the records come first (Catalog.Stage):
//
//	make the new upper N ─▶ flush ─▶ commit the records ─▶ [gate: swap] ─▶ show them ─▶ flush ─▶ acknowledge
//	                                 writes go to the old upper M ──┤├── writes go to N
//
// They say that M is a layer (after a rollback: trash) and N the upper. Killed before the gate, the next process finds
// M, with all that was written until then, as the layer below an empty N: the same tree. Killed after it, N has its own
// contents, and its record is there. What is acknowledged is recorded and flushed. Until they are visible nobody can
// name the new records, a layer that they name cannot go, and an error of the gate undoes them (Catalog.Withdraw).
//
// # States of a workspace
//
//	           Mount                     umount here, copies elsewhere
//	unmounted ────────▶ mounted ────────────────────────────────▶ detached
//	    ▲                  │ Unmount, umount(8), a dead connection     │ the last copy goes, Unmount with Force
//	    └──────────────────┴───────────────────────────────────────────┘
//
// Beside these, a workspace is running or paused:
//
//	running ──Pause──▶ paused ──Resume──▶ running       durable; a paused workspace that is mounted stays paused
//
// What a call needs; in any other state it is ErrConflict and changes nothing:
//
//	call                                        mounted?                              paused?
//	Snapshot, Fork, Restore, Branch, Diff       any                                   any
//	Rollback                                    any, but not mounted read-only        any; stays as it is
//	Mount                                       unmounted, or the same mount again    any
//	Unmount                                     mounted; detached only with Force     any; with Force the gate is opened
//	Destroy                                     unmounted                             any
//	Pause                                       any                                   running
//	Resume                                      any                                   paused
//	Snapshot with Consistent                    any                                   paused, or its cgroup is known
//
// A paused overlay's gate is closed. Seal and Rollback work behind it and leave it closed; what a rollback makes untrue
// the kernel forgets after Resume, because it may hold a directory's lock for a program that waits. A program that
// waits at it cannot be killed, and programs that read the page that it writes wait with it.
//
// # Words of other systems
//
// Callers that know other services of sandboxes find the same here under these names:
//
//	claim a prepared snapshot         Branch with a Mountpoint: a new workspace, running, whose tree is the
//	                                  snapshot's when the call returns; any number of them share what it holds
//	restore into a new sandbox        Restore: Branch under another name
//	restore in place                  Rollback: of a paused workspace, too, which stays paused; it need not be
//	fork                              Fork: of a paused workspace a paused one
//	init, or resume by name           Up: same, restored or fresh
//	opaque ref {providerId, ref}      Snapshot.Ref, ParseRef; accepted wherever a snapshot is named
//	prune by an operator              Prune with AllowCrossSession
//
// # Locks, outermost first
//
//	Home.closeMu                       the call of Close
//	Home.ops (one per workspace name)  operations on one workspace, one after the other; taken with a context. A
//	│                                  call waits for one; others that it has are names that it has just reserved
//	├─ (those of package layerstore)   outside of those of packages uppers and catalog; see there
//	└─ live.users                      read: uses the overlay of a mount; write: the watcher, to close it
//	   ├─ live.stackMu                 the stack of a mount; held while layers are opened and put beneath its overlay
//	   │  └─ (the overlay's locks)     inside: an overlay that gives lowers back takes layerstore's Cache.mu
//	   └─ (those of package uppers)    outside of those of package catalog; see there
//	Home.mu                            mounts and calls under way
//	└─ idler.mu
//	followers.mu                       inside the catalog's: events are told while the writer is held
//	└─ follower.mu
//	hostProbe.mu, places.mu, turnStats.mu, homeSize.mu, captureStates.mu  leaves, as is the lock of the errors that Home.unmountAll collects
//
// docs/LOCKS.md has those of all packages.
//
// Nothing here ever opens, stats or walks a path inside a mount of its own home: the answer would have to come from
// this very process. Mounts are looked up in /proc/self/mountinfo.
package sandbox
