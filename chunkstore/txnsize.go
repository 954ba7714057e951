package chunkstore

import (
	"errors"
	"fmt"
)

// What one transaction may write. Badger takes less than 15 % of a memtable (2,516,582 bytes with its own counting) and
// 26,214 entries; beyond that it fails with an error that nothing can be done about. Whoever writes an amount that can
// grow asks writeTxn.room, and goes on in the next transaction.
const (
	maxTxnEntries = 20_000  // of a transaction that is one of several
	maxTxnBytes   = 3 << 19 // the same, with entryBytes for each entry
	entryBytes    = 40      // what an entry takes beside key and value, at most
	shortEntries  = 500     // of one of several that tidy up: a caller's waits for one of them
	shortBytes    = 128 << 10
	hardEntries   = 26_000   // of any transaction
	hardBytes     = 36 << 16 // of any transaction, with hardEntry for each entry
	hardEntry     = 12       // what Badger counts for an entry beside key and value

	// What a commit may leave of chunks to the transaction that has the caller's values, too.
	lastEntries = 4000
	lastBytes   = 512 << 10

	// What callers may write in a transaction of theirs.
	maxTxValues = 20_000
	maxTxBytes  = 1 << 20
)

// What changing a page may add to its length.
const (
	pageGrowth = 2 + pageChunks // once: longer indices of records, and their count
	slotGrowth = 96             // per slot: its record, itself, and the location of the record behind it
	baseGrowth = 10             // per base of the slot's record
	sketchSize = 34             // of a chunk in a segment of sketches
)

// txnLimits are the limits above, or what a test sets.
type txnLimits struct {
	entries int   // of one of several transactions
	bytes   int64 // the same
	all     int   // entries of any transaction
	size    int64 // bytes of any transaction, as Badger counts
}

var defaultLimits = txnLimits{entries: maxTxnEntries, bytes: maxTxnBytes, all: hardEntries, size: hardBytes}

// ErrTxTooLarge says that a function wrote more into a Tx than it takes: 20,000 values or 1 MiB.
var ErrTxTooLarge = errors.New("more than a transaction takes")

// room reports whether as many entries, of so many bytes together, still fit into a transaction that is one of several.
// The first always do.
func (t *writeTxn) room(entries int, bytes int64) bool {
	n, size := t.entries-t.base.entries+len(t.pages), t.bytes-t.base.bytes+t.growth
	if n == 0 {
		return true
	}
	return n+entries <= t.limits.entries && size+bytes+int64(entries)*entryBytes <= t.limits.bytes
}

// short makes room less, for one of many transactions of a collection or a repair: whoever waits for it waits for some
// milliseconds.
func (t *writeTxn) short() {
	t.limits.entries = min(t.limits.entries, shortEntries)
	t.limits.bytes = min(t.limits.bytes, shortBytes)
}

// count adds an entry, unless the transaction would become too large for Badger.
func (t *writeTxn) count(key, value []byte) error {
	t.entries++
	t.size += int64(len(key)+len(value)) + hardEntry
	t.bytes += int64(len(key)+len(value)) + entryBytes
	if t.entries > t.limits.all || t.size > t.limits.size {
		return fmt.Errorf("write index: %w: %d entries, %d bytes", ErrTxTooLarge, t.entries, t.size)
	}
	return nil
}

// chunkCost is what naming a chunk adds to a transaction: entries and their bytes. A page counts as new.
func chunkCost(f *fresh) (entries int, bytes int64) {
	return 2, int64(len(hashKey(f.hash))) + 10 + sketchSize + pageGrowth + slotCost(f.rec)
}

// slotCost is how many bytes a page grows at most when a slot is set; nil: it is emptied.
func slotCost(rec *located) int64 {
	if rec == nil {
		return slotGrowth
	}
	return slotGrowth + int64(len(rec.bases))*baseGrowth
}

// setSlot changes a chunk's slot.
func (t *writeTxn) setSlot(pg *page, i int, sl slot) {
	pg.slots[i] = sl
	t.growth += slotCost(sl.rec)
}

// pageCost is how many bytes a page takes in a transaction.
func pageCost(no uint64, pg *page) int64 { return int64(len(appendPage(nil, no, pg))) + entryBytes }
