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

// mergeTables merges Badger's tables into one level. Transactions go on meanwhile, except on a nearly full disk, where
// they wait: they are refused when there is no room for a merge, and must not be because one is taking that room.
// The caller holds upkeepMu.
func (s *Store) mergeTables(ctx context.Context) error {
	if err := s.verifyTables(ctx); err != nil {
		return err
	}
	lsm, _ := s.db.Size()
	free, err := disk.Free(s.guard.dir)
	if err != nil {
		return err
	}
	s.writeMu.Lock()
	if free < 2*s.guard.room(lsm) {
		defer s.writeMu.Unlock()
	} else {
		s.guard.merging = true
		s.writeMu.Unlock()
		defer func() {
			s.writeMu.Lock()
			defer s.writeMu.Unlock()
			s.guard.merging = false
		}()
	}
	s.opts.Points.At("tables verified")
	_, err = guarded("merge index", func() (struct{}, error) { return struct{}{}, s.db.Flatten(1) })
	s.opts.Points.At("tables merged")
	return errors.Join(err, sizeIndexCache(s.db))
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
		s.broken = fmt.Errorf("%w: %s: %w", ErrIndex, filepath.Base(path), err)
		if s.packs != nil {
			s.packs.Freeze()
		}
		return s.broken
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
	lsm, _ := s.db.Size()
	free, err := disk.Free(s.guard.dir)
	if err != nil || free < s.guard.room(lsm)+flushRoom {
		return err // without room nothing is lost: a later collection does it
	}
	s.opts.Points.At("index flushes")
	if err := s.flushMemtable(ctx); err != nil {
		return fmt.Errorf("flush index: %w", err)
	}
	s.opts.Points.At("index flushed")
	if err := s.mergeTables(ctx); err != nil {
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
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.update(func(t *writeTxn) error {
			t.limits = defaultLimits // also where a test has set smaller ones
			full = s.guard.log != log
			if full {
				return t.delete([]byte{keySentinel})
			}
			return t.set([]byte{keySentinel}, padding)
		}); err != nil {
			return err
		}
	}
	return s.awaitFlush(ctx, log)
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
