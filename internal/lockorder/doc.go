// Package lockorder has the locks of snapfs and the order in which they are taken.
//
// # Nouns
//
//   - A class is what has one place in the order: one field of one type, in all its instances. It is a type of this
//     package, and the parameter of a lock: lockorder.Mutex[lockorder.CatalogWriter].
//   - The tree is the drawing of all classes, see Tree.
//
// # Rules
//
// A goroutine takes a lock only while each lock that it holds is further up in the tree. It takes no lock of a class of
// which it holds one, unless the tree says (many); docs/LOCKS.md says in which order several of these are taken. While
// it holds one that is a (leaf) it takes none. An attempt (TryLock) cannot wait, so it may be made whatever is held;
// what it took counts from then on.
//
// # The check
//
// The race detector's builds (make race): a lock that is taken against a rule ends the process with the names of both
// locks and with where they were taken. All other builds have the mutexes of package sync, of which Mutex and RWMutex
// are aliases.
//
// The check makes no goroutine wait for another and orders nothing, so the race detector finds what it would find
// without it.
package lockorder
