// Package layers is the overlay: one upper directory over a stack of immutable lowers, with the semantics of the
// kernel's overlayfs and no knowledge of FUSE.
//
// # Nouns
//
// A Lower is one immutable layer: a sealed directory, an image, or a source. An Overlay merges its upper and its lowers into one
// tree of nodes. A node is what the kernel knows by a NodeID; a part is what one layer has of it. A file has one part
// (with metadata-only copy-up a second one, further down, that holds the data); a merged directory has one per layer
// that has the directory. The topmost part gives the attributes.
//
//	node ──top──▶ part in the upper or in the topmost layer that has it
//	     ──below▶ parts of merged directories, or the data of a metacopy
//	part ──layer▶ backend: dirStore (upper, sealed), imageStore or sourceStore
//	     ──parent, name: its location inside that layer
//
// Nothing is ever looked up by a path from outside: every system call is relative to a directory descriptor, which a
// bounded cache re-opens along the parents. So paths have no maximal length and symlinks are never followed.
//
// # Sealing
//
// Seal turns the layer that was the upper into the topmost lower without touching a node: the same layer object stops
// being Overlay.upper. A node is writable exactly if its top part lies in the present upper.
//
// # Going back
//
// Rollback swaps upper and stack under the nodes. What loses its name is an orphan: dead, not pinned, its parts in
// detached layers, which stay open until the last orphan is forgotten. A free node lies in no layer of the stack, so
// nobody else sees what is written to it, and no look-up finds it. Behind the gate only the stacks and the root are
// swapped: all other nodes are of an epoch that is over then, and what becomes of one is found out when it is next
// used, its parents first, or when Rollback comes to it. Nothing of one that is behind is looked at before.
//
// Restack puts an image in place of the row of layers that it was merged from, so that a tree which stays mounted does
// not get ever deeper. Nodes stay what they are; their parts in the row become those that a look-up finds in its place.
// These are found before the gate is closed, but for nodes that change meanwhile, and nodes get them as those of a
// rollback are settled. What is dead keeps the layers of the row that its parts lie in, and no others.
//
// # Importing
//
// StoreTree makes an image of a directory of the host. The writer of images asks for one name and one file after the
// other. A goroutine walks the directory before it in the same order, and others read the short files (ahead.go): so many
// bytes and names ahead as constants say. All of them have ended when StoreTree returns.
//
// # Sources
//
// A source layer (OpenSource) is a directory of others that is shown before it is imported. It is the lowest layer, of
// any number of overlays, until StoreSource has made its image and Replace has put that in its place. What it has shown
// is what the image has (sourcestore.go): names stay from the first listing of their directory on; attributes of what is
// no regular file from the first look-up on; a regular file when it is first read, by a copy beside the uppers. A
// journal (sourcejournal.go) tells after a crash what was shown.
//
//	look-up    asks the directory; another size or time is another version   Entry.Fleeting
//	read       copies, verifies, from then on shows the copy                 no lock is held
//	import     takes the copy, or the directory's file and its times         storesource.go
//	look-up    of another version after the import has taken the file:       the import walks once more, with a copy
//
// The kernel keeps the size of a file that it knows, so a version is another generation of the node. Who has opened a
// version that nobody has read, and that is gone, gets ESTALE. What is removed before it is read is gone from the view,
// too, and is looked for again until the import ends (sourcegone.go): a checkout removes files and makes them anew. What
// is gone then is counted (SourceLost); a directory that is removed itself is an error. A file that is found under another name, in a directory listed later, stays where it was seen. One that was moved
// into a directory listed before counts as removed. Inode numbers are the host's as far as they are free, below 1<<32.
//
// # Below and above the kernel's overlayfs
//
// A stack of layers can be the lower of a kernel overlayfs, which then writes the upper: the kernel hides, and acts upon,
// trusted.overlay.*. With Options.Nested an overlay shows what users have stored under such names escaped, as it lies in
// the layers, and a character device 0/0 of a user as an empty regular file (nested.go). What the kernel copies up of such
// a device is a file from then on.
//
// While it is mounted only the kernel writes to that upper. PrepareUpper makes its root, without inode info, which the
// kernel would not keep up to date. Capture stores what it has now:
//
//	scan     all names, by directories, several at a time; files that Seen has a note of are one statx(2) each, short ones
//	         without a note are read and looked at again after that
//	again    directories whose ctime is another one since, or whose names, where the ctime was too young to tell; until
//	         there is none, or captureRounds times: Captured.Quiet
//	image    of what scan has found; what it has not read, long files above all, is read now, as it is now
//
// Of a merged directory the kernel does not count the links. Capture and Store count them; FinishUpper notes them when
// the mount has ended, so that the upper is a sealed layer as it is. What the kernel notes of its own (ovlattr.go) no
// image has. Capture keeps a few hundred bytes of each name in the upper in memory.
//
// # Inode numbers
//
// What is created in an upper has the number Options.InoBase | host inode. What is copied up keeps its number in its
// inode info. The root is always 1.
//
// A number is what callers see, and no identity: images and inode info may come from elsewhere. Two names are one file
// only if their layer says so, by a link count above one and one inode: the host's in a directory, a reference in an
// image. The NodeID is the number unless two files claim one; the second then gets an id of its own, from 2^63 on, and
// shows it as its number as long as the kernel knows both. An id that is used for another inode has another generation,
// which comes from the time of birth.
//
// # Inode info
//
// Inode info is what callers see of an inode of an upper that the host does not know: the number, the ctime of what
// only a copy-up has changed since, and how many subdirectories only the layers below have, so that a merged
// directory's link count is right. It is kept in the extended attribute trusted.overlay.snapfs.ino, which the kernel's
// overlayfs hides and ignores. A change of the upper that callers do not see goes through Overlay.keepingTimes, every
// other one ends in touched; then the numbers, ctimes, link counts and sizes of a tree are the same live, sealed,
// stored and restored.
//
// # Hard links
//
// A file of a lower with several names is copied up with all its names at once (metadata only, as always), so that a
// group never spans layers, link counts are the host's and the kernel's overlayfs shows the same groups. The copy is
// linked to all names but one out of the work directory, and moves to the last: until then a crash or an error undoes
// it. A file with more names than the host has room for cannot be changed (EMLINK), so an import refuses it. Nothing
// that is done for one name looks at the others.
//
// # Creating
//
// An inode has its owner from the system call on that makes it (actas.go), then gets setuid and setgid; a copy gets its
// owner, then its attributes, then its mode, and only then its name. So no crash leaves anything that lets somebody do
// more than what was to be made.
//
// # Partial files
//
// A lower file of 1 MiB or more that is written is copied up by blocks: the upper gets a sparse file of the same size
// with the blocks that were touched, and a map of them. It stays a metacopy, whose data shows where it has no block of
// its own:
//
//	below    |aaaaaaaa|bbbbbbbb|cccccccc|dddddddd|eeee|
//	map      |  below |  own   |  below |  loose |    |     block: 64 KiB
//	upper    |  hole  |BBBBBBBB|  hole  |DDD hole|hole|
//	shows    |aaaaaaaa|BBBBBBBB|cccccccc|DDD00000|eeee|     up to limit; beyond it the upper alone
//
// A block is own if the upper has all of it, loose if a hole in it is zeros. Cutting the file off lowers the limit, at
// the latest when it grows again: what was cut off must not come back. What moves data (FALLOC_FL_COLLAPSE_RANGE,
// inserting) makes the file whole first, as Complete does for a kernel overlayfs. Parts pile up when layers are sealed;
// an image has the whole file.
//
// The map is the attribute trusted.overlay.snapfs.blocks, little endian:
//
//	0   version, 1        8   limit, 8 bytes       24  number of the side file, 8 bytes; 0: none
//	1   log2 of a block   16  boot id, 8 bytes     32  states, 2 bits a block from the lowest on: 0 below,
//	2   0, 6 bytes                                     1 own, 2 loose; zeros at the end are left out
//
// States of more than 512 bytes are in a file beside the upper, UPPER.blocks/NUMBER in hexadecimal, where one write
// claims a block in place. Files beyond 64 GiB have larger blocks, so that a map takes 256 KiB at most; those beyond 16
// TiB are copied up as a whole.
//
// A claim follows the data that it is for, so killing the process leaves old or new contents. After a power failure the
// host may have kept a claim without all of the data. It then has holes where it lost pages (ext4, XFS and btrfs
// allocate when they write; tmpfs survives nothing; other hosts get no partial files), and what is below shows there
// again: a map of another boot is settled when it is first used. fsync reaches data, attribute and side file.
//
// # Files without a name
//
// What is unlinked while the kernel refers to it is a dead node: pinned by a descriptor, or beyond the overlay's share
// of them (share.go) kept in the orphan directory, which lies in the work directory and goes along with a seal. A file
// of O_TMPFILE is a dead node from the start. A dead node whose inode turns out to have another name is given that one.
// The host frees an inode when its pin is closed, which the reaper does after FORGET, beside what goes on. A caller
// that finds the host full waits for it.
//
// # Accounts
//
// With Options.Account the overlay counts what its upper takes, by what the host says before and after each change of an
// inode (ledger.go), and grants a change what it may take at most before it is made (grant.go): ENOSPC if that is more
// than there is room for. What was counted is noted in the work directory now and then (usednote.go). Each inode counts
// from its creation or copy-up on until it has no name and no node; a seal leaves those without a name in the account of
// the present upper. Options.Reserve keeps room of the host for others in the same way (reserve.go).
//
// The host could count by itself, where it has quotas of projects: the inodes of an upper would have the project of its
// directory. Account is where that would be asked; nothing else knows who counts.
//
// # Successors
//
// With Options.Live the overlay can be given up at any instruction, and another process goes on with it: New with the
// same directories and lowers. Each node has a record, which says what its name is but not what it is in which layer
// (live.go); a successor makes the node of it when the kernel first names its id, or a look-up meets its inode
// (recall.go), directories before what is in them. Records change under table.mu; a rename notes the new name before it
// asks the host, so that one of two is true whenever the process ends. What loses its last name is moved into the orphan
// directory in the same step, to a name that its record has been given before; or linked there before, by its id. After
// FORGET it is removed from there, or replaced by what is removed next.
//
// What a successor does not know, and what follows:
//
//   - Further names of a file: they are found when they are looked up. If its known name goes first, a walk through the
//     tree finds another.
//   - References of requests that were under way: they stay counted, so that such a node, and the file on the host if it
//     is dead, stays until the connection ends.
//   - Files that a rollback took the names of: ESTALE. So is what was removed from a directory of a lower which a rename
//     has replaced since, and the data below of a file without a name that was copied up by blocks, is larger than 128
//     MiB and has seen a seal.
//   - Listings that are cached are read again. A cookie is a hash of its name, so a listing goes on where it was, whatever
//     came and went; of names whose hashes meet, which about never happens, one may be missed or seen twice if one of
//     them goes meanwhile.
//   - What callers have read (Options.Reads) begins anew; so do the memory of ids that went in the last 10 ms
//     (generation.go), of where directories were renamed to, and of damage that was logged.
//   - A copy-up, or completing a file, that was under way is undone by New, as after any crash, or goes on as a partial
//     file. The capabilities of a file whose pages were being written are lost, as they are on a crash of the host.
//
// # Lock order
//
//	restacking (Restack, Rollback), then barrier.closers (who closes or opens the gate)
//	└─ gate (read: every mutation; write: Seal, Rollback, Restack, Pause)
//	   └─ names (read: changes of a name or an inode; write: what moves directories, or changes several names or the
//	      │      parts of a file)
//	      └─ node.lock (directories of which names change, those further up first, then the inodes that have the names
//	         │          or change)
//	         └─ tree (read: look-ups and everything by name; write: what they go by)
//	            ├─ catchUp.mu      what becomes of the nodes that a rollback or Restack has left behind; before those
//	            │                  below, as it looks at layers
//	            ├─ blockMap.mu     which blocks of a file are the upper's; held while data is copied, and while that of
//	            │                  the part below is asked
//	            ├─ table.mu        node table, reference counts, aliases; held while a layer's inodes are looked up
//	            │  │               (Replace)
//	            │  └─ blockTable.mu   which files are partial
//	            ├─ capability.host what a file has while the host shows less
//	            │  └─ capabilities.mu
//	            └─ the leaves: copyUps.mu, groupTables.mu, detachedSets.mu, listings.mu (cached directory listings), row.mu
//	               (what was written in a row), upper.deviceMu (the whiteout that others are links of), lostData.mu,
//	               reaper.mu and fdCache.mu (descriptors), ledger.mu (what was
//	               counted; the host is asked under it), sourceStore.mu (held while its journal is written)
//	barrier.mu (who is told that the gate is open; held while they are told)
//
// Under tree the owner of an overlay is told that layers are free, and takes its own locks then. docs/LOCKS.md has the
// locks of all packages.
//
// The host is asked for a change of one name or inode with names and node.lock held, without tree: look-ups go on
// however long it takes, and meet what was before or the host's new state, which leads to the same node. If that has
// another name or another part then, node.pending says so before; and an inode that may lose the name by which it is
// reached is pinned. Then the change is published under tree. An exclusive mutation (mutation.go says what is) holds
// tree for writing while the host makes the change, but only once the host has shown, without tree, that it is not
// frozen. Copying the data of a file in the upper, and giving a dead node a name again, take node.lock and tree without
// names.
//
// No data is copied under tree's write lock; copy-up prepares beside, in the work directory, and renames into place.
package layers
