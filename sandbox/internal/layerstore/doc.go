// Package layerstore opens the layers of a home, stores those that are sealed, and merges those that are stored.
//
// # Nouns
//
//   - A layer is importing (a directory of the host, with copies of what was read of it), sealed (the directory that was
//     an upper) or stored (an image in the chunk store); its record says which, and what it lies on. A form is what a layer is opened as: alone, or as its tier, an image that stands for
//     the layers below it, too. See package catalog, which has the records.
//   - A Lower is one open form. The Cache shares it between all its users and keeps some open that have none. It is
//     stale once no new user may have it: its layer is gone, or has got another form. It is closed with its last user,
//     and the directory of a sealed one is removed then.
//   - A Stack is a row of Lowers that shows a tree, topmost first, with one use of each. One that lies beneath an
//     overlay changes as layers are stored, are merged and get tiers; see beneath.go.
//   - A Hold says what a Stack has its Lowers for, if that may last long. Held tells from it who keeps images that no
//     record names.
//   - Storing a layer writes the image of its directory into the chunk store and puts the image in the directory's
//     place everywhere. The Storer does it in the background, several at a time, oldest first. A layer that it gives up
//     on is parked.
//   - Merging makes one image of several, without reading or writing their data: of layers that only one child needs,
//     with that child, and of deep stacks, as tiers. The Merger does it in the background.
//
// # Opening
//
// A layer is opened from disk outside of the cache's lock, by one flight at a time for each form: callers that ask for
// the form meanwhile wait for the same flight, and others are not held up by it. A flight ends early when nobody waits
// for it any more. If the record has changed when it lands, what it opened is closed and the waiters look at the record
// once more; so an error that they get is one of the form that the record tells. Errors are not kept.
//
// # Goroutines
//
// Storer.Run and Merger.Run return when their context ends. The Merger works in the goroutine of its caller, the Storer
// in a few of its own. A flight has a goroutine of its own, which Cache.Close waits for.
//
// # Locks, outermost first
//
//	Merger.mu       one merge at a time; held while layers are opened, and while the store and the catalog work
//	Cache.mu        what is open, and flights; never held while anything is read from disk. An overlay that gives
//	                lowers back takes it under its own locks
//	Storer.mu       the queue
//
// The catalog's locks are taken inside Merger.mu, Cache.mu and Storer.mu; the latter two only read records. Cache.mu
// and Storer.mu are never held together. No lock is held, and nothing is stored, while a call that waits reports its
// progress: its own goroutine does that.
package layerstore
