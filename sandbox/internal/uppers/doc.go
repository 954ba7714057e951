// Package uppers makes, keeps ready and removes the upper directories of a home.
//
// # Nouns
//
//   - An upper is a numbered directory, DIR/N, with the directories upper and work that an overlay writes to. It never
//     moves: sealing a workspace changes the record that names its upper, not the upper's location. Its number is
//     durable before its directory is made, and is not used again while anything depends on it.
//   - A space is 2^32 inode numbers, those that begin with the same 32 bits. Every upper has one of its own, which its
//     number tells; see spaces.go.
//   - A ready upper is empty, durable and nobody's yet: calls that would otherwise wait for the disk take it. See pool.
//   - The trash holds uppers that no other record names. Their numbers stay recorded until their directories are gone,
//     so that a crash delays the removal and nothing else. See janitor.
//   - A stray is an entry of DIR that no record names and that is not ready either.
//
// The records that name uppers belong to others: a Set reads them through Records, which also removes an upper from the
// trash once its directory is gone. What the package itself records are numbers and spaces.
//
// # Goroutines
//
// Run starts two, one that makes uppers ready and one that empties the trash, and returns when both have ended, which
// they do with its context. Before it ends, the first removes the ready uppers that nobody has taken.
//
// # Locks, outermost first
//
//	Set.mu            numbers and spaces; held while they are recorded, and while images are searched for spaces in use
//	├─ pool.mu        which uppers are ready: a leaf, directories are made and removed without it
//	├─ (Records)      the records in memory, and transactions of the store
//	└─ (the store)
//	unsynced.mu       which uppers may not be on the disk: a leaf
//	janitor.mu        what is to be removed: a leaf
//
// WideIno, which look-ups of every overlay call, takes Set.mu only the first time that it is asked for a pair of
// arguments.
package uppers
