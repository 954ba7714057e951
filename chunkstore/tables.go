package chunkstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/ristretto/v2/z"

	"snapfs/chunkstore/internal/disk"
)

// Badger writes a table whenever its memtable is full, and merges tables when it is told to. Transactions go on beside
// a merge; what they write becomes new tables. A merge rewrites all tables, so it is done when the new ones have a
// share of the bytes, or when there are so many that look-ups become slow.
const (
	mergeMin   = 5  // new tables from which on they are merged
	mergeShare = 4  // if they have one of so many parts of the bytes of the others,
	mergeMany  = 16 // or if there are so many
	tablesFull = 24 // so many new ones hold up whoever writes much until they are merged
	tablesHalt = 32 // so many are not added to while there is no room to merge them
	tablesMost = 40 // so many hold up every transaction, in Badger
)

// newTables returns the number and bytes of Badger's tables that were never merged, and the bytes of the others.
func (s *Store) newTables() (count int, bytes, merged int64) {
	for _, l := range s.db.Levels() {
		if l.Level == 0 {
			count, bytes = l.NumTables, l.Size
		} else {
			merged += l.Size
		}
	}
	return count, bytes, merged
}

// tablesDue reports whether Badger's tables are to be merged.
func (s *Store) tablesDue() bool {
	count, bytes, merged := s.newTables()
	return count >= mergeMany || count >= mergeMin && bytes*mergeShare >= merged
}

// halted reports whether no more tables are to be made: there are many, and there is no room to merge them. The caller
// holds writeMu.
func (s *Store) halted() bool {
	count, _, _ := s.newTables()
	return count >= tablesHalt && s.unmerged != nil
}

// mergeTables merges Badger's tables into one level. Transactions go on meanwhile, except on a nearly full disk, where
// they wait: they must not take the room for the merge, nor be refused because it does. Packs leave that room free.
// Without room it fails with ENOSPC, without descriptors with EMFILE or ENFILE. If tables were lost nevertheless, it fails
// with ErrIndex. The caller holds upkeepMu.
func (s *Store) mergeTables(ctx context.Context) error {
	defer s.packs.Spare(0)
	s.writeMu.Lock()
	_, err := s.roomToMerge()
	s.writeMu.Unlock()
	if err != nil {
		return err
	}
	if err := s.verifyTables(ctx); err != nil {
		return err
	}
	s.writeMu.Lock()
	beside, err := s.roomToMerge()
	if err == nil {
		if err = s.merges.begin(s.guard.dir, s.db.Tables); err != nil {
			err = fmt.Errorf("merge index: %w", err)
			s.unmerged = err
		}
	}
	s.guard.merging = beside && err == nil
	if beside || err != nil {
		s.writeMu.Unlock()
	}
	if err != nil {
		return err
	}
	s.opts.Points.At("tables verified")
	_, err = guarded("merge index", func() (struct{}, error) { return struct{}{}, s.db.Flatten(1) })
	if beside {
		s.writeMu.Lock()
	}
	s.guard.merging = false
	lost := s.merges.end(s.db.Tables(), err)
	if lost != nil {
		lost = s.lose(lost)
	}
	s.writeMu.Unlock()
	if lost != nil {
		return lost
	}
	s.opts.Points.At("tables merged")
	return errors.Join(err, sizeIndexCache(s.db))
}

// roomToMerge fails unless there is room for the tables once more, which packs then leave free, if need be in place of
// the reserve. beside: it is so much that transactions may go on. The caller holds writeMu.
func (s *Store) roomToMerge() (beside bool, err error) {
	_, fresh, merged := s.newTables()
	need := fresh + merged + closeRoom
	logs, err := filledLogs(s.guard.dir)
	if err != nil {
		return false, err
	}
	need += int64(max(logs-1, 0)) * tableRoom(walAlloc) // Badger is writing tables of them
	free, err := disk.Free(s.guard.dir)
	if err != nil {
		return false, err
	}
	s.packs.Spare(need)
	if free >= 2*(need+flushRoom) {
		s.unmerged = nil
		return true, nil
	}
	if s.unmerged = s.guard.makeRoom(need); s.unmerged != nil {
		s.unmerged = fmt.Errorf("merge index: %w", s.unmerged)
	}
	return false, s.unmerged
}

// verifyTables reads Badger's tables: all, or those that may have keys that start with one of some bytes. Of a damaged
// table, Badger would merge what it can still read and silently remove the rest, or end the process, since it merges in
// its own goroutines; and whoever reads from one end of the index to the other would miss what it had. Instead the index
// takes no more writes, and what can be read of it stays. The caller holds upkeepMu, so no table goes meanwhile.
func (s *Store) verifyTables(ctx context.Context, first ...byte) error {
	for _, t := range s.db.Tables() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if len(first) > 0 && !slices.ContainsFunc(first, func(b byte) bool { return t.Left[0] <= b && b <= t.Right[0] }) {
			continue
		}
		path := table.NewFilename(t.ID, s.guard.dir)
		_, err := guarded("verify index", func() (struct{}, error) { return struct{}{}, verifyTable(path) })
		if err == nil {
			continue
		}
		s.writeMu.Lock()
		defer s.writeMu.Unlock()
		return s.breakIndex(fmt.Errorf("%s: %w", filepath.Base(path), err))
	}
	return nil
}

// verifyTable reads all of a table, bypassing Badger's block cache, as a merge does.
func verifyTable(path string) error {
	f, err := z.OpenMmapFile(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	t, err := table.OpenTable(f, table.Options{
		BlockSize: blockBytes, Compression: options.ZSTD, ChkMode: options.OnTableAndBlockRead,
	})
	if err != nil {
		return err // which has closed the file
	}
	return t.Close(-1)
}

const (
	paddingBytes = 512 << 10 // of one transaction that fills a memtable
	worthFlush   = 256 << 10 // bytes in a memtable from which on it is flushed to remove what it says is deleted
)

// shrinkIndex makes Badger release the space of deleted keys. On its own, Badger does so no earlier than when it is
// closed. Transactions go on beside it.
func (s *Store) shrinkIndex(ctx context.Context) error {
	s.upkeepMu.Lock()
	defer s.upkeepMu.Unlock()
	_, fresh, merged := s.newTables()
	free, err := disk.Free(s.guard.dir)
	if err != nil || free < fresh+merged+2*flushRoom {
		return err // without room nothing is lost: a later collection does it
	}
	s.opts.Points.At("index flushes")
	if err := s.flushMemtable(ctx); err != nil {
		return fmt.Errorf("flush index: %w", err)
	}
	s.opts.Points.At("index flushed")
	if err := s.mergeTables(ctx); err != nil && !isFull(err) {
		return fmt.Errorf("shrink index: %w", err)
	}
	return nil
}

// flushMemtable has Badger write the memtable as a table, and waits for that. Badger has no call for it but
// DropPrefix, which refuses transactions meanwhile. So the memtable is filled with versions of one key, which the next
// merge removes. The caller holds upkeepMu.
func (s *Store) flushMemtable(ctx context.Context) error {
	s.writeMu.Lock()
	log, used := s.guard.log, s.guard.used
	s.writeMu.Unlock()
	if used < worthFlush {
		return nil
	}
	padding := make([]byte, min(paddingBytes, s.limits.size/2))
	for full := false; !full; {
		err := ctx.Err()
		if err == nil {
			full, err = s.pad(log, padding)
		}
		if err != nil {
			return err
		}
	}
	if err := s.update(func(t *writeTxn) error { return t.delete([]byte{keySentinel}) }); err != nil {
		return err
	}
	return s.awaitFlush(ctx, log)
}

// pad writes padding, unless Badger has begun another log than this one. It is no transaction of the store's and is not
// made durable: its log is removed before the kernel writes most of it.
func (s *Store) pad(log int, padding []byte) (full bool, err error) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if s.broken != nil {
		return false, s.broken
	}
	if err := s.guard.prepare(); err != nil || s.guard.log != log {
		return err == nil, err
	}
	size := int64(len(padding)) + entryBytes
	if err := s.guard.claim(size); err != nil {
		return false, err
	}
	btx := s.db.NewTransaction(true)
	defer btx.Discard()
	if err := btx.Set([]byte{keySentinel}, padding); err != nil {
		return false, fmt.Errorf("write index: %w", err)
	}
	if _, err := guarded("write index", func() (struct{}, error) { return struct{}{}, btx.Commit() }); err != nil {
		s.packs.Freeze()
		s.broken = fmt.Errorf("%w: %w", ErrUnwritable, err)
		return false, s.broken
	}
	s.guard.wrote(size)
	return false, nil
}

// flushLook is how often is looked whether Badger has written a table.
const flushLook = 5 * time.Millisecond

// awaitFlush waits until the memtable with a log is a table, or as long as transactions can go on without that.
func (s *Store) awaitFlush(ctx context.Context, log int) error {
	tick := time.NewTicker(flushLook)
	defer tick.Stop()
	for {
		if count, _, _ := s.newTables(); count >= tablesMost {
			return nil // Badger writes it when tables were merged
		}
		_, err := os.Stat(memLogPath(s.guard.dir, log))
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
