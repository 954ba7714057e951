package chunkstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/zeebo/blake3"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/pack"
	"snapfs/internal/varint"
)

// Keys of the index start with one of these bytes. Numbers in keys are big-endian.
const (
	keyHash     = 'h' // hash (20 bytes)          → uvarint chunk number; may name one that was collected
	keyPage     = 'p' // page (appendNumber)      → page
	keyManifest = 'm' // id (8 bytes)             → manifest, or its beginning
	keyPart     = 'n' // id, part (8 + 4 bytes)   → more of a big manifest
	keyPack     = 'k' // pack (4 bytes)           → uvarint end of the last record that is named
	keyValue    = 'r' // bucket, 0, key           → a caller's value
	keyState    = 's' //                          → counters
	keySentinel = 'z' //                          → zeros, while a memtable is filled (flushMemtable)
	keySketches = 't' // first (appendNumber)     → sketches of chunks
)

// hashLen is the length of the prefix of a chunk's BLAKE3 hash that identifies it.
const hashLen = 20

// hash identifies a chunk.
type hash [hashLen]byte

// hashOf is the first part of the BLAKE3 hash.
func hashOf(data []byte) hash {
	full := blake3.Sum256(data)
	return hash(full[:hashLen])
}

func hashKey(h hash) []byte { return append([]byte{keyHash}, h[:]...) }

func pageKey(no uint64) []byte { return appendNumber([]byte{keyPage}, no) }

func packKey(num uint32) []byte { return binary.BigEndian.AppendUint32([]byte{keyPack}, num) }

func manifestKey(id ID) []byte { return binary.BigEndian.AppendUint64([]byte{keyManifest}, uint64(id)) }

func partKey(id ID, part uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64([]byte{keyPart}, uint64(id)), part)
}

func valueKey(bucket, key string) []byte {
	k := make([]byte, 0, len(bucket)+len(key)+2)
	return append(append(append(append(k, keyValue), bucket...), 0), key...)
}

// state holds the counters of the store. It is written with every transaction that changes it.
type state struct {
	lease     uint64 // chunk numbers from here on were never assigned
	nextID    ID     // of the next manifest
	manifests int64
	logical   int64  // bytes of all manifests
	chunks    int64  // in the index
	payload   int64  // bytes of records that the index names
	stale     int64  // hashes whose chunk was collected
	txns      uint64 // transactions since the store was created
	packed    uint64 // chunks below it were repacked by Optimize

	journal     uint32 // number of the journal, 0 = none
	journalEnd  int64  // of its entries
	journalBase int64  // its length when it was started

	// What may have made garbage: if dropped is collected and ahead is 0, manifests need everything in the index.
	dropped   uint64 // deletions and similar
	collected uint64 // dropped when the last collection began
	ahead     uint64 // transactions that wrote chunks of manifests that are not committed yet
	moved     uint64 // chunks were moved since payload was last counted
}

// clean reports whether there is no garbage in the index and payload is exact.
func (st *state) clean() bool { return st.dropped == st.collected && st.ahead == 0 && st.moved == 0 }

const stateVersion = 1

func (st *state) encode() []byte {
	b := []byte{stateVersion}
	b = binary.AppendUvarint(b, st.lease)
	b = binary.AppendUvarint(b, uint64(st.nextID))
	for _, v := range []int64{st.manifests, st.logical, st.chunks, st.payload, st.stale} {
		b = binary.AppendVarint(b, v)
	}
	for _, v := range []uint64{
		st.txns, st.packed, uint64(st.journal), uint64(st.journalEnd), uint64(st.journalBase),
		st.dropped, st.collected, st.ahead, st.moved,
	} {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func (st *state) decode(b []byte) error {
	if len(b) == 0 || b[0] != stateVersion {
		return fmt.Errorf("%w: index of an unknown version", ErrVersion)
	}
	p := varint.Parser{Rest: b[1:]}
	st.lease, st.nextID = p.Uint(), ID(p.Uint())
	for _, v := range []*int64{&st.manifests, &st.logical, &st.chunks, &st.payload, &st.stale} {
		*v = p.Int()
	}
	st.txns, st.packed = p.Uint(), p.Uint()
	if len(p.Rest) > 0 { // absent in stores from before the journal
		st.journal = uint32(p.Count(1<<32 - 1))
		st.journalEnd, st.journalBase = int64(p.Uint()), int64(p.Uint())
	}
	st.dropped = 1
	if len(p.Rest) > 0 { // absent in stores from before garbage was counted
		st.dropped, st.collected, st.ahead, st.moved = p.Uint(), p.Uint(), p.Uint(), p.Uint()
	}
	if p.Bad {
		return corrupt.Errorf("counters are malformed")
	}
	return nil
}

// get reads one key; ErrNotFound.
func get(btx *badger.Txn, key []byte) ([]byte, error) {
	return guarded("read index", func() ([]byte, error) {
		it, err := btx.Get(key)
		if errors.Is(err, badger.ErrKeyNotFound) {
			return nil, ErrNotFound
		}
		if err != nil {
			return nil, corrupt.Errorf("read index: %w", err)
		}
		v, err := it.ValueCopy(nil)
		if err != nil {
			return nil, corrupt.Errorf("read index: %w", err)
		}
		return v, nil
	})
}

// scan calls fn for the keys that start with prefix and are >= from, in order, until it returns false. key and value
// are valid during the call.
func scan(btx *badger.Txn, prefix, from []byte, fn func(key, value []byte) (bool, error)) error {
	opts := badger.DefaultIteratorOptions
	opts.Prefix = prefix
	return walk(btx, opts, prefix, from, fn)
}

// scanDown calls fn for the keys that start with a byte, from the last to the first, until it returns false. key and
// value are valid during the call.
func scanDown(btx *badger.Txn, prefix byte, fn func(key, value []byte) (bool, error)) error {
	opts := badger.DefaultIteratorOptions
	opts.Reverse = true
	return walk(btx, opts, []byte{prefix}, []byte{prefix + 1}, fn)
}

// walk calls fn for the keys that start with prefix, as opts says, until it returns false.
func walk(btx *badger.Txn, opts badger.IteratorOptions, prefix, from []byte,
	fn func(key, value []byte) (bool, error),
) error {
	opts.PrefetchValues = false // values are stored beside their keys
	_, err := guarded("scan index", func() (struct{}, error) {
		it := btx.NewIterator(opts)
		defer it.Close()
		for it.Seek(from); it.ValidForPrefix(prefix); it.Next() {
			var more bool
			key := it.Item().Key()
			if err := it.Item().Value(func(v []byte) (err error) {
				more, err = fn(key, v)
				return err
			}); err != nil || !more {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}

// view runs fn in a read-only transaction of the index.
func (s *Store) view(fn func(btx *badger.Txn) error) error {
	btx := s.db.NewTransaction(false)
	defer btx.Discard()
	return s.missing(fn(btx))
}

// missing returns err, or ErrIndex in place of ErrNotFound if the index is known to be damaged: the key may have been in
// the damaged part.
func (s *Store) missing(err error) error {
	if errors.Is(err, ErrNotFound) && s.damaged.Load() {
		return fmt.Errorf("%w: %s", ErrIndex, err.Error())
	}
	return err
}

// page returns a page of the index, or an empty one if there is none.
func (s *Store) page(no uint64) (*page, error) {
	pg, epoch, ok := s.pages.get(no)
	if ok {
		return pg, nil
	}
	pg, err := s.committedPage(no)
	if err != nil {
		return nil, err
	}
	s.pages.put(no, pg, pg.cost(), epoch)
	return pg, nil
}

// committedPage returns a page as the newest transaction left it, whatever is cached.
func (s *Store) committedPage(no uint64) (pg *page, err error) {
	err = s.view(func(btx *badger.Txn) (err error) {
		pg, err = readPage(btx, no)
		return err
	})
	return pg, err
}

func readPage(btx *badger.Txn, no uint64) (*page, error) {
	pg, _, err := readSizedPage(btx, no)
	return pg, err
}

// readSizedPage also returns the length of the page in the index.
func readSizedPage(btx *badger.Txn, no uint64) (*page, int, error) {
	b, err := get(btx, pageKey(no))
	if errors.Is(err, ErrNotFound) {
		return &page{}, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	pg, err := parsePage(b, no)
	return pg, len(b), err
}

// errNoChunk is of class ErrCorrupt, because only chunks that something names are looked up.
var errNoChunk = fmt.Errorf("%w: not in the index", ErrCorrupt)

// locate finds the record of a chunk, and the chunk's length.
func (s *Store) locate(num uint64) (*located, int, error) {
	no, i := pageOf(num)
	pg, err := s.page(no)
	if err == nil && pg.slots[i].rec == nil {
		// The page may be in the cache from before a transaction that has just been committed.
		pg, err = s.committedPage(no)
	}
	if err != nil {
		return nil, 0, err
	}
	sl := pg.slots[i]
	if sl.rec == nil {
		return nil, 0, fmt.Errorf("chunk %d: %w", num, errNoChunk)
	}
	return sl.rec, sl.len, nil
}

// lookup finds a chunk by its hash; ErrNotFound.
func (s *Store) lookup(h hash) (uint64, error) {
	if s.hashes.lacks(h) {
		return 0, ErrNotFound
	}
	var num uint64
	err := s.view(func(btx *badger.Txn) error {
		b, err := get(btx, hashKey(h))
		if err != nil {
			return err
		}
		p := varint.Parser{Rest: b}
		if num = p.Uint(); p.Bad {
			return corrupt.Errorf("chunk number is malformed")
		}
		return nil
	})
	return num, err
}

// writeTxn is a read-write transaction of the index, with its effects on the store's state in memory.
type writeTxn struct {
	btx   *badger.Txn
	state state            // as it will be
	pages map[uint64]*page // changed pages, as they will be
	done  []func()         // called after the commit
	undo  []func()         // called if the commit fails
	packs *pack.Set
	known *hashes

	limits  txnLimits
	entries int      // written
	size    int64    // of these, as Badger counts
	bytes   int64    // of these, with more for each: what the memtable takes
	growth  int64    // what writing the pages will add to bytes, at most
	base    struct { // what the members of the group before the one that runs wrote
		entries int
		bytes   int64
	}

	changes   []byte     // of keys that the journal repeats
	successor *successor // of the journal, that is to be the one in use
}

func (t *writeTxn) set(key, value []byte) error {
	if err := t.count(key, value); err != nil {
		return err
	}
	t.known.note(key)
	if err := t.btx.Set(key, value); err != nil {
		return fmt.Errorf("write index: %w", err)
	}
	if journaled(key) {
		t.changes = appendChange(t.changes, key, value, false)
	}
	return nil
}

func (t *writeTxn) delete(key []byte) error {
	if err := t.count(key, nil); err != nil {
		return err
	}
	if err := t.btx.Delete(key); err != nil {
		return fmt.Errorf("write index: %w", err)
	}
	if journaled(key) {
		t.changes = appendChange(t.changes, key, nil, true)
	}
	return nil
}

// edit returns a page to be changed.
func (t *writeTxn) edit(no uint64) (*page, error) {
	if pg := t.pages[no]; pg != nil {
		return pg, nil
	}
	pg, n, err := readSizedPage(t.btx, no)
	if err == nil {
		t.pages[no] = pg
		t.growth += int64(n) + entryBytes + pageGrowth
	}
	return pg, err
}

// failed undoes what a failed transaction did outside of the index.
func (t *writeTxn) failed(err error) error {
	for _, fn := range t.undo {
		fn()
	}
	return err
}

// ready prepares for a transaction. The caller holds writeMu.
func (s *Store) ready() error {
	if s.broken != nil {
		return s.broken
	}
	s.guard.content = s.state.payload + s.state.journalEnd
	if err := s.guard.prepare(); err != nil {
		return err
	}
	if s.guard.used == 0 { // a memtable was started: the previous one may have become a table
		s.mergeWanted = s.mergeWanted || s.tablesDue()
		if s.halted() {
			return s.unmerged
		}
	}
	return nil
}

// begin begins a transaction. The caller holds writeMu.
func (s *Store) begin() *writeTxn {
	return &writeTxn{
		btx: s.db.NewTransaction(true), state: s.state, pages: map[uint64]*page{}, packs: s.packs, known: &s.hashes,
		limits: s.limits,
	}
}

// writePages writes the pages that the transaction changes.
func (t *writeTxn) writePages() error {
	for no, pg := range t.pages {
		var err error
		if pg.empty() {
			err = t.delete(pageKey(no))
		} else {
			err = t.set(pageKey(no), appendPage(nil, no, pg))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// commit makes a transaction durable, and then its effects in memory. The caller holds writeMu.
func (s *Store) commit(t *writeTxn) error {
	// What the index has no room for must not be in the journal: a rebuild would take it for done.
	const stateBytes = 1 << 10 // of the counters, at most
	if err := s.guard.claim(t.bytes + stateBytes); err != nil {
		return t.failed(err)
	}
	t.state.txns++
	if err := s.journal.write(s, t); err != nil {
		return err
	}
	if err := t.set([]byte{keyState}, t.state.encode()); err != nil {
		return t.failed(err)
	}
	s.opts.Points.At("transaction begun")
	_, err := guarded("write index", func() (struct{}, error) { return struct{}{}, t.btx.Commit() })
	if err == nil {
		s.pages.invalidate(slices.Collect(maps.Keys(t.pages))...) // from here on others see the transaction
		s.opts.Points.At("transaction written")
		err = s.guard.sync()
	}
	if err != nil {
		// It is unknown until the next Open whether the disk has the transaction: nothing that it may name may be
		// removed.
		s.packs.Freeze()
		s.broken = fmt.Errorf("%w: %w", ErrUnwritable, err)
		return s.broken // a new journal stays, too: it may be named
	}
	s.opts.Points.At("transaction committed")
	s.guard.wrote(t.bytes)
	s.state = t.state
	if err := s.count.set(s.state.txns); err != nil {
		s.log.Warn("the count of transactions cannot be written", "error", err) // a count that lags is harmless
	}
	for _, fn := range t.done {
		fn()
	}
	return nil
}
