package layers

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is an amount of bytes that the host has allocated, and of inodes.
type Usage struct{ Bytes, Inodes int64 }

// add gives the sum of two amounts.
func (u Usage) add(v Usage) Usage { return Usage{u.Bytes + v.Bytes, u.Inodes + v.Inodes} }

// Account is what a workspace may take of the host, and what it takes. It belongs to the workspace and outlives the
// overlays over it, of which one at a time counts in it. Its methods may be called at any time.
//
//	limit ≥ used    the present upper, and open files without a name: counted by the overlay
//	      + kept    what else is the workspace's: its owner says so
//	      + granted what changes under way may take at most
//
// noted is what used was when it was noted on the host last (usednote.go). The zero value has no limit, and then nothing is counted.
type Account struct {
	limit, used, kept, granted, noted amount

	trusted atomic.Int64  // time, in nanoseconds, from which on notes are true
	on      atomic.Bool   // something is counted
	refused atomic.Bool   // something was
	known   atomic.Bool   // used is what the host has; else it was noted before a crash, or is the sum of changes
	turns   atomic.Uint64 // counts those of on
	freed   atomic.Uint64 // counts changes that have given something back
	changes atomic.Uint64 // counts those of used
	seals   atomic.Uint64 // counts uppers that have become layers, or were given up
}

// amount is a Usage that several change.
type amount struct{ bytes, inodes atomic.Int64 }

func (a *amount) get() Usage  { return Usage{a.bytes.Load(), a.inodes.Load()} }
func (a *amount) set(u Usage) { a.bytes.Store(u.Bytes); a.inodes.Store(u.Inodes) }
func (a *amount) add(u Usage) { a.bytes.Add(u.Bytes); a.inodes.Add(u.Inodes) }

// SetLimit changes the limits; 0 is none. A limit below what is used lets nothing grow. Where an overlay goes on that has
// not counted before, its owner calls Recount.
func (a *Account) SetLimit(u Usage) {
	a.limit.set(u)
	if on := u != (Usage{}); a.on.Swap(on) != on {
		a.turns.Add(1)
		a.known.Store(false)
	}
}

// Trust says from which time on nobody has changed an upper but overlays that keep its note. A note from before is where
// counting begins, and no more.
func (a *Account) Trust(since time.Time) { a.trusted.Store(since.UnixNano()) }

// Limit gives the limits; 0 is none.
func (a *Account) Limit() Usage { return a.limit.get() }

// Used gives what counts against the limits. known says that this is what the host has, not what was noted before a
// crash, or the changes since something is counted.
func (a *Account) Used() (u Usage, known bool) {
	if !a.on.Load() {
		return Usage{}, false
	}
	return a.used.get().add(a.kept.get()), a.known.Load()
}

// Refused reports whether the limits have ever refused something: else it is the host that is full.
func (a *Account) Refused() bool { return a.refused.Load() }

// Remember says what an upper takes that no overlay is over.
func (a *Account) Remember(u Usage) {
	a.used.set(u)
	a.known.Store(true)
}

// Seals tells SetKept what its caller has seen.
func (a *Account) Seals() uint64 { return a.seals.Load() }

// SetKept says what the workspace takes beside its present upper. seals is what Seals gave before that was measured: if an
// upper has become a layer since, nothing is changed.
func (a *Account) SetKept(u Usage, seals uint64) bool {
	if a.seals.Load() != seals {
		return false
	}
	a.kept.set(u)
	return a.seals.Load() == seals
}

// counts reports whether something is counted. An account that is not there counts nothing.
func (a *Account) counts() bool { return a != nil && a.on.Load() }

// count notes a change of what is used.
func (a *Account) count(u Usage) {
	if u != (Usage{}) {
		a.used.add(u)
		a.changes.Add(1)
	}
	if u.Bytes < 0 || u.Inodes < 0 {
		a.freed.Add(1)
	}
}

// grant lets a change take as much as u, which the caller gives back once the change is counted. ENOSPC if there is no
// room for it.
func (a *Account) grant(u Usage) error {
	a.granted.add(u)
	limit := a.limit.get()
	have := a.used.get().add(a.kept.get()).add(a.granted.get())
	if limit.Bytes > 0 && u.Bytes > 0 && have.Bytes > limit.Bytes || limit.Inodes > 0 && u.Inodes > 0 && have.Inodes > limit.Inodes {
		a.release(u)
		a.refused.Store(true)
		return unix.ENOSPC
	}
	return nil
}

func (a *Account) release(u Usage) { a.granted.add(Usage{-u.Bytes, -u.Inodes}) }

// room is how many bytes may be granted.
func (a *Account) room() int64 {
	limit := a.limit.bytes.Load()
	if limit <= 0 {
		return 1 << 62
	}
	return max(0, limit-a.used.bytes.Load()-a.kept.bytes.Load()-a.granted.bytes.Load())
}

// show puts the limits into what statfs(2) shows of the host.
func (a *Account) show(s *Statfs) {
	used, _ := a.Used()
	limit := a.limit.get()
	if unit := int64(s.Frsize); limit.Bytes > 0 && unit > 0 {
		s.Blocks = uint64((limit.Bytes + unit - 1) / unit)
		s.Bfree = uint64(max(0, limit.Bytes-used.Bytes) / unit)
		s.Bavail = min(s.Bavail, s.Bfree) // the host may have less
	}
	if limit.Inodes > 0 {
		s.Files, s.Ffree = uint64(limit.Inodes), uint64(max(0, limit.Inodes-used.Inodes))
	}
}
