// Package fairshare divides what a process has a fixed amount of, such as memory or descriptors, among those who want
// some of it at the same time.
//
// # Nouns
//
//   - A Pool is the amount, in any unit.
//   - A member is one who takes from the pool: an import, a tree that is written. Several goroutines may take for it.
//   - The reserve of a member is its own, besides the pool: nobody else takes it.
//
// # Fairness
//
// Beyond its reserve, a member may have as much as it leaves free: alone it has half of the pool, and the next one finds
// some. So a member that keeps all it has for long, because its disk hangs, never holds up another one. All members
// together have at most the pool and the reserve of each; how many there are, their callers bound.
package fairshare
