package chunkstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	badger "github.com/dgraph-io/badger/v4"
	"golang.org/x/sys/unix"

	"snapfs/chunkstore/internal/disk"
	"snapfs/chunkstore/internal/pack"
)

// successor is a journal that is being written. It takes the place of the one in use in three steps:
//
//	base    all that the index held at one time, read beside the transactions
//	carry   the entries that the one in use got since, copied as they are; the last of them by the transaction that follows
//	finish  a transaction adds the complete mark and names the successor
//
// Until the last step, the index names the one in use. Open removes what a crash leaves of a successor.
type successor struct {
	f        *os.File
	num      uint32
	at       int64 // end of what is written
	unsynced int64 // bytes
	beside   bool  // pauses to leave the disk to transactions

	from    uint32 // the journal in use, 0 = none
	carried int64  // its entries up to here are in base, or were copied
	was     *os.File
}

const (
	carryMost      = 64 << 10 // bytes of entries that are left to the last step
	successorSync  = 1 << 20  // bytes between two syncs: transactions wait for them, as they share the disk
	journalBackoff = 256      // transactions until a rewrite that failed is tried again
)

// errJournalGone says that the journal in use was abandoned while its successor was written.
var errJournalGone = errors.New("the journal was abandoned meanwhile")

// journalDue reports whether the journal is to be rewritten: it is not complete, or has more than doubled. The caller
// holds writeMu.
func (s *Store) journalDue() bool {
	st := &s.state
	if s.journal.off || st.journal == 0 || st.txns < s.journal.retry {
		return false
	}
	return st.journalBase == 0 || st.journalEnd > 2*st.journalBase+journalSlack
}

// rewriteJournal writes a successor of the journal, whatever is in that, and makes it the one in use. Transactions go
// on beside it; with beside it is slower, and leaves the disk to them for half of the time.
func (s *Store) rewriteJournal(ctx context.Context, beside bool) error {
	s.upkeepMu.Lock()
	defer s.upkeepMu.Unlock()
	err := s.succeed(ctx, beside)
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.journal.retry = 0
	if err != nil && !errors.Is(err, errJournalGone) {
		s.journal.retry = s.state.txns + journalBackoff
	}
	return err
}

// succeed is rewriteJournal for callers that hold upkeepMu.
func (s *Store) succeed(ctx context.Context, beside bool) (err error) {
	// What a damaged table had would be missing, silently.
	if err := s.verifyTables(ctx, journalPrefixes...); err != nil {
		return err
	}
	s.writeMu.Lock()
	if s.broken != nil {
		defer s.writeMu.Unlock()
		return s.broken
	}
	st, inUse := s.state, s.journal.f
	btx := s.db.NewTransaction(false) // sees exactly what the journal describes
	n, err := s.journal.create()
	s.writeMu.Unlock()
	defer btx.Discard()
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	n.beside, n.from, n.carried = beside, st.journal, st.journalEnd
	named := false
	defer func() {
		if !named {
			err = errors.Join(err, n.remove())
		}
	}()
	if err := n.base(ctx, s, btx, &st); err != nil {
		return err
	}
	s.opts.Points.At("journal copied")
	if err := n.carry(ctx, s, inUse); err != nil {
		return err
	}
	if err := s.update(func(t *writeTxn) error {
		t.successor = n
		return nil
	}); err != nil {
		named = errors.Is(err, ErrUnwritable) // it may be
		return err
	}
	named = true
	s.journal.drop(s, n.was)
	return nil
}

// create makes a journal without entries. The caller holds writeMu.
func (j *journal) create() (*successor, error) {
	n := &successor{num: j.last + 1}
	var err error
	n.f, err = os.OpenFile(filepath.Join(j.dir, journalName(n.num)), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	j.last = n.num
	if err := n.write(pack.Header(journalMagic, n.num)); err != nil {
		return nil, errors.Join(err, n.remove())
	}
	return n, nil
}

func (n *successor) remove() error { return errors.Join(n.f.Close(), os.Remove(n.f.Name())) }

// write appends to the file.
func (n *successor) write(b []byte) error {
	_, err := n.f.WriteAt(b, n.at)
	n.at += int64(len(b))
	n.unsynced += int64(len(b))
	return err
}

// spare fails unless the disk has room for so many bytes, and for the tables that Badger may write meanwhile.
func (n *successor) spare(size int64) error {
	return disk.Require(filepath.Dir(n.f.Name()), size+2*flushRoom)
}

// sync makes the file and its name durable.
func (n *successor) sync() error {
	n.unsynced = 0
	return errors.Join(unix.Fdatasync(int(n.f.Fd())), disk.SyncDir(filepath.Dir(n.f.Name())))
}

// ease syncs what was written, if that is much, and pauses in proportion to the time since began.
func (n *successor) ease(ctx context.Context, began time.Time) error {
	if n.unsynced >= successorSync {
		n.unsynced = 0
		if err := unix.Fdatasync(int(n.f.Fd())); err != nil {
			return err
		}
	}
	if !n.beside {
		return ctx.Err()
	}
	return rest(ctx, time.Since(began))
}

// base writes all that the index holds.
func (n *successor) base(ctx context.Context, s *Store, btx *badger.Txn, st *state) error {
	var changes []byte
	began := time.Now()
	flush := func() error {
		if len(changes) == 0 {
			return nil
		}
		err := n.spare(journalEntry)
		if err == nil {
			err = n.write(appendEntry(nil, st, 0, changes, s.codec))
		}
		changes = changes[:0]
		if err == nil {
			err = n.ease(ctx, began)
		}
		began = time.Now()
		return err
	}
	for _, prefix := range journalPrefixes {
		if err := scan(btx, []byte{prefix}, []byte{prefix}, func(key, value []byte) (bool, error) {
			if len(changes)+len(key)+len(value) > journalEntry-16 {
				if err := flush(); err != nil {
					return false, err
				}
			}
			changes = appendChange(changes, key, value, false)
			return true, nil
		}); err != nil {
			return err
		}
	}
	return flush()
}

// carry copies the entries that the journal in use got since base, until few are left.
func (n *successor) carry(ctx context.Context, s *Store, inUse *os.File) error {
	for {
		s.writeMu.Lock()
		now, end := s.state.journal, s.state.journalEnd
		s.writeMu.Unlock()
		if now != n.from {
			return errJournalGone
		}
		if end-n.carried <= carryMost {
			return n.sync()
		}
		began := time.Now()
		if err := n.spare(journalEntry); err != nil {
			return err
		}
		if err := n.copy(inUse, min(end, n.carried+journalEntry)); err != nil {
			return err
		}
		if err := n.ease(ctx, began); err != nil {
			return err
		}
	}
}

// copy appends the entries of the journal in use up to end.
func (n *successor) copy(inUse *os.File, end int64) error {
	if end <= n.carried {
		return nil
	}
	b := make([]byte, end-n.carried)
	if _, err := io.ReadFull(io.NewSectionReader(inUse, n.carried, end-n.carried), b); err != nil {
		return err
	}
	n.carried = end
	return n.write(b)
}

// finish is the last step, within a transaction of which the caller changes nothing else; others may share it.
func (n *successor) finish(s *Store, t *writeTxn) error {
	if t.state.journal != n.from {
		return errJournalGone
	}
	if err := n.copy(s.journal.f, t.state.journalEnd); err != nil {
		return err
	}
	if err := n.write(appendEntry(nil, &t.state, journalComplete, t.changes, s.codec)); err != nil {
		return err
	}
	s.opts.Points.At("journal complete")
	if err := unix.Fdatasync(int(n.f.Fd())); err != nil {
		return err
	}
	n.put(s, t)
	return nil
}

// put makes the journal the one in use when t is committed.
func (n *successor) put(s *Store, t *writeTxn) {
	t.state.journal, t.state.journalEnd, t.state.journalBase = n.num, n.at, n.at
	t.done = append(t.done, func() { n.was = s.journal.use(n.f, n.at) })
}
