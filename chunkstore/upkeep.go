package chunkstore

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

// upkeep is what the store does without being asked: it rewrites the journal, merges Badger's tables, and makes the
// filter of hashes. One goroutine does it beside the transactions, which start it and do not wait for it.
// Store.upkeepMu is held by whoever works, be it that goroutine or a caller.
type upkeep struct {
	ctx     context.Context // ends when the store is closed
	cancel  context.CancelFunc
	running bool           // guarded by Store.writeMu
	ended   bool           // guarded by Store.writeMu: nothing is begun any more
	done    sync.WaitGroup // the goroutine
}

// upkeepShare is the share of the time, one of so many parts, for which upkeep that can pause works: the disk and a
// processor are left to others for the rest.
const upkeepShare = 2

// startUpkeep starts the goroutine if there is something to do. The caller holds writeMu.
func (s *Store) startUpkeep() {
	u := &s.upkeep
	if u.running || u.ended || s.broken != nil || !s.journalDue() && !s.mergeWanted && !s.hashes.wanted.Load() {
		return
	}
	u.running = true
	u.done.Go(s.keepUp)
}

// keepUp works until nothing is left to do.
func (s *Store) keepUp() {
	ctx := s.upkeep.ctx
	for {
		s.writeMu.Lock()
		merge, journal, filter := s.mergeWanted, s.journalDue(), s.hashes.wanted.Load()
		s.mergeWanted = false
		if s.upkeep.ended || s.broken != nil || !merge && !journal && !filter {
			s.upkeep.running = false
			s.writeMu.Unlock()
			return
		}
		s.writeMu.Unlock()
		if filter {
			s.warn(ctx, "there is no filter of the index's hashes", s.makeFilter(ctx))
		}
		if merge {
			s.warn(ctx, "the tables of the index were not merged", s.mergeDue(ctx))
		}
		if journal {
			s.warn(ctx, "the journal was not rewritten", s.rewriteJournal(ctx, true))
		}
	}
}

// mergeDue merges Badger's tables if they are still due.
func (s *Store) mergeDue(ctx context.Context) error {
	s.upkeepMu.Lock()
	defer s.upkeepMu.Unlock()
	if !s.tablesDue() {
		return nil
	}
	return s.mergeTables(ctx)
}

// warn logs an error of upkeep, for which nobody waits: it is done again later.
func (s *Store) warn(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil && !errors.Is(err, errJournalGone) {
		s.log.Warn(what, "error", err)
	}
}

// endUpkeep interrupts the goroutine and waits for it. No transaction starts it again.
func (s *Store) endUpkeep() {
	s.writeMu.Lock()
	s.upkeep.ended = true
	s.writeMu.Unlock()
	s.upkeep.cancel()
	s.upkeep.done.Wait()
}

// rest pauses after work, so that upkeep takes its share of the time.
func rest(ctx context.Context, worked time.Duration) error {
	t := time.NewTimer(worked * (upkeepShare - 1))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// pace is called before each of many transactions that write much. It waits while Badger has not written the memtable
// before this one, or while there are many tables to be merged: Badger holds up all transactions when it is further
// behind. Once the store is closed it does not wait. The caller holds no lock that others wait for.
func (s *Store) pace(ctx context.Context) error {
	for {
		s.writeMu.Lock()
		log, half := s.guard.log, s.guard.used > memTableSize/2
		merging := s.upkeep.running && !s.upkeep.ended && s.broken == nil
		s.writeMu.Unlock()
		full := merging
		if merging {
			count, _, _ := s.newTables()
			full = count >= tablesFull
		}
		if half && !full {
			_, err := os.Stat(memLogPath(s.guard.dir, log-1))
			full = err == nil
		}
		if !full || s.isClosed() {
			return ctx.Err()
		}
		if err := rest(ctx, flushLook); err != nil {
			return err
		}
	}
}
