package chunkstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	badger "github.com/dgraph-io/badger/v4"
	"golang.org/x/sys/unix"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/disk"
	"snapfs/chunkstore/internal/frame"
	"snapfs/chunkstore/internal/pack"
	"snapfs/internal/varint"
)

// The journal repeats what only the index knows and packs do not hold: manifests and callers' values, with their
// deletions. RebuildIndex reads it. It is a file %08d.journal:
//
//	header  as a pack's, with the magic "snapJRNL"
//	entries records of kind pack.Journal
//
// An entry is what one transaction changed. Its frame:
//
//	transaction, newest manifest id, first chunk number never given out    uvarint each
//	flags   1 byte: bit 0, the file is complete from here on: all entries before it were written at once
//	length  uvarint decoded length of the changes if they are one zstd frame, else 0
//	changes per change: uvarint length of the key, key, uvarint 0 deleted | 1 + length of the value, value
//
// An entry is synced before its transaction commits. The transaction names the journal and its end (state). When more
// than half of a journal is out of date, a successor is written beside the transactions, with all that the index holds
// (journalrewrite.go).
type journal struct {
	dir string

	// the journal that the index names, or a damaged one, nil = none; guarded by Store.writeMu, as are the rest
	f     *os.File
	alloc int64  // end of what is allocated
	last  uint32 // the highest number that was used
	off   bool   // nothing is written: the index is being rebuilt
	retry uint64 // rewriting failed: not again before this transaction
}

// journalPrefixes are the first bytes of the keys of which the journal has the changes.
var journalPrefixes = []byte{keyManifest, keyPart, keyValue}

const (
	journalMagic    = "snapJRNL"
	journalExt      = ".journal"
	journalComplete = 1 << 0  // flag
	journalEntry    = 1 << 20 // bytes of changes in an entry of a new journal, approximately
	journalSlack    = 1 << 20 // how much an open journal may grow beyond twice its initial size
	journalIdle     = 4 << 10 // how much a closed one may have grown beyond a quarter
	journalAhead    = 64 << 10
	journalPack     = 200 // changes of fewer bytes are not compressed
)

func journalName(num uint32) string { return fmt.Sprintf("%08d%s", num, journalExt) }

// journaled reports whether changes of a key belong to the journal.
func journaled(key []byte) bool {
	return bytes.IndexByte(journalPrefixes, key[0]) >= 0
}

// appendChange appends a change of the index; value is nil for a deletion.
func appendChange(b, key, value []byte, deleted bool) []byte {
	b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
	if deleted {
		return append(b, 0)
	}
	return append(binary.AppendUvarint(b, uint64(len(value))+1), value...)
}

// appendEntry appends an entry as a record.
func appendEntry(dst []byte, st *state, flags byte, changes []byte, c *frame.Codec) []byte {
	f := binary.AppendUvarint(nil, st.txns)
	f = binary.AppendUvarint(f, uint64(st.nextID))
	f = append(binary.AppendUvarint(f, st.lease), flags)
	packed := []byte(nil)
	if len(changes) >= journalPack && len(changes) <= frame.MaxInput {
		packed = c.Encode(nil, changes, nil, frame.Better)
	}
	if packed != nil && len(packed) < len(changes) {
		f = append(binary.AppendUvarint(f, uint64(len(changes))), packed...)
	} else {
		f = append(append(f, 0), changes...)
	}
	return pack.AppendRecord(dst, &pack.Record{Kind: pack.Journal, Frame: f})
}

// journals lists the numbers of the journals in a directory.
func journals(dir string) ([]uint32, error) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var nums []uint32
	for _, e := range names {
		base, ok := strings.CutSuffix(e.Name(), journalExt)
		num, err := strconv.ParseUint(base, 10, 32)
		if ok && err == nil {
			nums = append(nums, uint32(num))
		}
	}
	return nums, nil
}

// openJournal opens the journal that the index names. If it is missing or too short, the next transaction starts a new
// one: the index has all of it.
func (s *Store) openJournal() error {
	j := &s.journal
	j.dir = s.packDir()
	nums, err := journals(j.dir)
	if err != nil || s.opts.ReadOnly {
		return err
	}
	for _, num := range nums {
		j.last = max(j.last, num)
		if num == s.state.journal {
			continue
		}
		// Started, or left behind, at a crash.
		if err := os.Remove(filepath.Join(j.dir, journalName(num))); err != nil {
			return err
		}
	}
	if s.state.journal == 0 {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(j.dir, journalName(s.state.journal)), os.O_RDWR, 0)
	if err == nil {
		var fi os.FileInfo
		if fi, err = f.Stat(); err == nil && fi.Size() < s.state.journalEnd {
			err = fmt.Errorf("%d bytes of %d", fi.Size(), s.state.journalEnd)
		}
		if err == nil && fi.Size() > s.state.journalEnd {
			err = f.Truncate(s.state.journalEnd)
		}
	}
	j.f, j.alloc = f, s.state.journalEnd
	if err != nil {
		s.log.Warn("the journal is damaged and will be rewritten", "error", err)
		s.state.journal, s.state.journalEnd, s.state.journalBase = 0, 0, 0
	}
	return nil
}

// write makes the changes of a transaction durable in the journal, if there are any. If a full disk does not let the
// journal grow, it is abandoned: deleting must still be possible then. The next transaction that has room starts a new
// one.
func (j *journal) write(s *Store, t *writeTxn) error {
	if j.off || len(t.changes) == 0 && t.successor == nil {
		return nil
	}
	st := &t.state
	var err error
	switch {
	case t.successor != nil:
		if err := t.successor.finish(s, t); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		return nil
	case st.journal == 0:
		err = j.begin(s, t)
	default:
		err = j.append(s, t, appendEntry(nil, st, 0, t.changes, s.codec))
	}
	if isFull(err) {
		s.log.Warn("the disk is full: the journal will be rewritten", "error", err)
		st.journal, st.journalEnd, st.journalBase = 0, 0, 0
		t.done = append(t.done, func() { j.drop(s, j.use(nil, 0)) })
		return nil
	}
	if err != nil {
		err = fmt.Errorf("journal: %w", err)
	}
	return err
}

// append writes one entry at the end that the index names. It overwrites what an uncommitted transaction left there.
func (j *journal) append(s *Store, t *writeTxn, entry []byte) error {
	end := t.state.journalEnd + int64(len(entry))
	if end > j.alloc {
		if err := disk.Allocate(j.f, j.alloc, end+journalAhead-j.alloc); err != nil {
			return err
		}
		j.alloc = end + journalAhead
	}
	if _, err := j.f.WriteAt(entry, t.state.journalEnd); err != nil {
		return err
	}
	s.opts.Points.At("entry appended")
	t.state.journalEnd = end
	return unix.Fdatasync(int(j.f.Fd()))
}

// begin starts a journal with the changes of t. It is complete if the index had nothing before; else a successor is
// written soon.
func (j *journal) begin(s *Store, t *writeTxn) error {
	empty, err := s.noneJournaled()
	if err != nil {
		return err
	}
	next, err := j.create()
	if err != nil {
		return err
	}
	flags := byte(0)
	if empty {
		flags = journalComplete
	}
	err = next.write(appendEntry(nil, &t.state, flags, t.changes, s.codec))
	s.opts.Points.At("journal begun")
	if err == nil {
		err = next.sync()
	}
	if err != nil {
		return errors.Join(err, next.remove())
	}
	next.put(s, t)
	t.undo = append(t.undo, func() { _ = next.remove() }) // else Open removes it
	t.done = append(t.done, func() { j.drop(s, next.was) })
	if !empty {
		t.state.journalBase = 0
	}
	return nil
}

// noneJournaled reports whether the index has nothing that belongs to a journal.
func (s *Store) noneJournaled() (bool, error) {
	none := true
	err := s.view(func(btx *badger.Txn) error {
		for _, prefix := range journalPrefixes {
			if err := scan(btx, []byte{prefix}, []byte{prefix}, func(_, _ []byte) (bool, error) {
				none = false
				return false, nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
	return none, err
}

// use makes f the journal in use, nil for none, and returns the one that was.
func (j *journal) use(f *os.File, size int64) (was *os.File) {
	was, j.f, j.alloc = j.f, f, size
	return was
}

// drop removes a journal that is not in use any more, if f is not nil.
func (j *journal) drop(s *Store, f *os.File) {
	if f == nil {
		return
	}
	if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
		s.log.Warn("an old journal stays", "error", err) // until the store is opened again
	}
	s.opts.Points.At("journal replaced")
}

// idleJournal reports whether the journal has grown enough to be rewritten before the store is closed.
func (st *state) idleJournal() bool {
	return st.journalBase == 0 && st.txns > 0 || st.journalEnd > st.journalBase*5/4+journalIdle
}

// close releases the space that was allocated in advance.
func (j *journal) close(end int64) error {
	if j.f == nil {
		return nil
	}
	var err error
	if j.alloc > end {
		err = j.f.Truncate(end)
	}
	return errors.Join(err, j.f.Close())
}

// replay is the state of the index that the entries of a journal describe.
type replay struct {
	values map[string][]byte // by key
	txns   uint64            // the highest transaction seen
	nextID ID
	lease  uint64
	whole  bool // a complete mark was seen
}

// entry applies the next entry.
func (r *replay) entry(rec *pack.Record, c *frame.Codec) error {
	if rec.Kind != pack.Journal {
		return corrupt.Errorf("record of kind %d in a journal", rec.Kind)
	}
	p := varint.Parser{Rest: rec.Frame}
	txn, id, lease := p.Uint(), ID(p.Uint()), p.Uint()
	flags := p.Byte()
	if n := p.Count(frame.MaxInput); n > 0 && !p.Bad {
		changes, err := c.Decode(nil, p.Rest, nil, n)
		if err != nil {
			return err
		}
		p.Rest = changes
	}
	type change struct {
		key     string
		value   []byte
		deleted bool
	}
	var all []change
	for len(p.Rest) > 0 && !p.Bad {
		ch := change{key: string(p.Bytes(p.Count(pack.MaxRecord)))}
		n := p.Count(pack.MaxRecord)
		ch.deleted = n == 0
		if n > 0 {
			ch.value = p.Bytes(n - 1)
		}
		if ch.key == "" || !journaled([]byte(ch.key)) {
			p.Bad = true
		}
		all = append(all, ch)
	}
	if p.Bad {
		return corrupt.Errorf("entry is malformed")
	}
	for _, ch := range all {
		if ch.deleted {
			delete(r.values, ch.key)
		} else {
			r.values[ch.key] = append([]byte{}, ch.value...)
		}
	}
	r.txns, r.nextID, r.lease = max(r.txns, txn), max(r.nextID, id), max(r.lease, lease)
	r.whole = r.whole || flags&journalComplete != 0
	return nil
}

// replayJournal reads the entries of a journal up to end. It reports what cannot be read to damaged.
func replayJournal(b []byte, c *frame.Codec, damaged func(off, n int64, err error)) *replay {
	r := &replay{values: map[string][]byte{}}
	pack.Scan(b, func(off int64, rec *pack.Record, _ bool) {
		if err := r.entry(rec, c); err != nil {
			damaged(off, 0, err)
		}
	}, func(off, n int64) { damaged(off, n, corrupt.Errorf("no record")) })
	return r
}

// checkJournal compares the journal with the index, and returns its number. One that is not complete is not compared.
func (s *Store) checkJournal() (num uint32, err error) {
	s.writeMu.Lock()
	btx := s.db.NewTransaction(false)
	st := s.state
	var f *os.File
	if st.journal != 0 {
		f, err = os.Open(filepath.Join(s.packDir(), journalName(st.journal)))
	}
	s.writeMu.Unlock()
	defer btx.Discard()
	if st.journal == 0 || err != nil {
		return st.journal, err
	}
	b, err := io.ReadAll(io.NewSectionReader(f, 0, st.journalEnd))
	if err = errors.Join(err, f.Close()); err != nil {
		return st.journal, err
	}
	if int64(len(b)) < st.journalEnd {
		return st.journal, corrupt.Errorf("%d bytes, %d are named", len(b), st.journalEnd)
	}
	var damage error
	r := replayJournal(b, s.codec, func(off, _ int64, err error) {
		if damage == nil {
			damage = fmt.Errorf("at %d: %w", off, err)
		}
	})
	switch {
	case damage != nil:
		return st.journal, damage
	case st.journalBase == 0:
		return st.journal, nil // its successor is being written
	case !r.whole:
		return st.journal, corrupt.Errorf("is not complete")
	}
	return st.journal, r.compare(btx)
}

// compare returns the first difference from the index.
func (r *replay) compare(btx *badger.Txn) error {
	n := 0
	for _, prefix := range journalPrefixes {
		if err := scan(btx, []byte{prefix}, []byte{prefix}, func(key, value []byte) (bool, error) {
			n++
			v, ok := r.values[string(key)]
			if !ok || string(v) != string(value) {
				return false, corrupt.Errorf("key %q differs from the index", key)
			}
			return true, nil
		}); err != nil {
			return err
		}
	}
	if n != len(r.values) {
		return corrupt.Errorf("%d keys, the index has %d", len(r.values), n)
	}
	return nil
}
