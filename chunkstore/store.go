package chunkstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	badger "github.com/dgraph-io/badger/v4"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/disk"
	"snapfs/chunkstore/internal/frame"
	"snapfs/chunkstore/internal/pack"
	"snapfs/chunkstore/internal/sketch"
	"snapfs/internal/failpoint"
	"snapfs/internal/lockorder"
	"snapfs/internal/varint"
)

// Options open a store.
type Options struct {
	Logger     *slog.Logger // nil = discard
	CacheBytes int64        // decoded blocks, shared by all readers; 0 = 64 MiB
	ReadOnly   bool
	// MustExist refuses to create a store in an empty directory.
	MustExist bool
	// Lock is what another process had from LockFiles, and must not use any more. It may have been killed, and not have
	// ended. Open closes it if it is of no use.
	Lock []*os.File

	Points failpoint.Func // is called at each step that changes files; only in tests of crashes
}

// Names in a store's directory.
const (
	lockName  = "LOCK"
	indexName = "index"
	packsName = "packs"

	counterName = "COUNT" // counter
)

const (
	defaultCache  = 64 << 20
	pageCache     = 16 << 20
	manifestCache = 8 << 20
	segmentCache  = 8 << 20
	leaseStep     = 1 << 16
)

// Store is a store that is open in one directory. It is safe for concurrent use.
type Store struct {
	dir   string
	opts  Options
	log   *slog.Logger
	lock  *storeLock
	count *counter // nil if there is none
	db    *badger.DB
	packs *pack.Set
	codec *frame.Codec

	journal journal

	blocks    *blockCache
	loader    loader
	pages     *lru[uint64, *page]
	manifests *lru[ID, *chunkList]
	segments  *lru[segmentKey, *segment]
	sketches  sketch.Index
	hashes    hashes

	sketchLoad sketchLoad

	transforms *transformCache
	inflating  chan struct{} // one token: the ingest that holds an inflated section
	helpers    chan struct{} // one token per goroutine that decodes beside a reader

	users sync.WaitGroup // calls, readers and ingests under way

	stateMu lockorder.Mutex[lockorder.StoreState]
	closed  bool // guarded by stateMu

	closeMu      lockorder.Mutex[lockorder.StoreClose] // held by Close, before all others; guards the next three
	shut         bool                                  // the packs are closed
	reserveFreed bool                                  // the reserve was freed, so that the index can be closed
	ended        bool

	line       line                                   // transactions that wait
	writeMu    lockorder.Mutex[lockorder.StoreWriter] // held by the one writer of the index
	state      state                                  // guarded by writeMu
	guard      logGuard                               // guarded by writeMu
	broken     error                                  // why the index takes no more writes; guarded by writeMu
	damaged    atomic.Bool                            // broken is ErrIndex
	opened     uint64                                 // transactions when the store was opened; immutable
	limits     txnLimits                              // of transactions of which several may follow; immutable
	prefixFrom int64                                  // bytes of chunks from which on they get a prefix; immutable

	upkeepMu    lockorder.Mutex[lockorder.StoreUpkeep] // held while the journal is rewritten or tables are merged
	upkeep      upkeep
	merges      merges // its methods are called with upkeepMu held, or by Close
	mergeWanted bool   // guarded by writeMu: Badger's tables may be due to be merged
	unmerged    error  // guarded by writeMu: why there was no room for that

	numMu   lockorder.Mutex[lockorder.StoreNumbers]
	nextNum uint64 // next chunk number; guarded by numMu
	lease   uint64 // numbers below it may be assigned; guarded by numMu

	pins    pins
	gcMu    lockorder.Mutex[lockorder.StoreGC] // held by the one collection
	left    int64                              // garbage that the last collection left on purpose; guarded by gcMu
	liveSet liveSet

	remembered atomic.Pointer[remembered]

	stored, moved atomic.Int64 // bytes of records written since the store was opened: new ones, and by collections
}

// Open opens or creates the store in dir and removes what a crash left behind.
func Open(dir string, opts Options) (*Store, error) {
	s := newStore(dir, opts)
	if err := s.open(); err != nil {
		for _, f := range opts.Lock {
			_ = f.Close() // nothing was written
		}
		return nil, errors.Join(fmt.Errorf("open store: %w", err), s.release())
	}
	return s, nil
}

// newStore returns a store that is not open yet.
func newStore(dir string, opts Options) *Store {
	s := &Store{dir: dir, opts: opts, log: opts.Logger, codec: frame.NewCodec()}
	s.limits, s.prefixFrom = defaultLimits, prefixFrom
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if opts.CacheBytes == 0 {
		s.opts.CacheBytes = defaultCache
	}
	s.blocks = newBlockCache(s.opts.CacheBytes)
	s.loader.credit = creditStart
	s.pages = newLRU[uint64, *page](pageCache)
	s.manifests = newLRU[ID, *chunkList](manifestCache)
	s.segments = newLRU[segmentKey, *segment](segmentCache)
	s.transforms = newTransformCache(s.opts.CacheBytes)
	s.inflating = make(chan struct{}, 1)
	s.upkeep.ctx, s.upkeep.cancel = context.WithCancel(context.Background())
	s.helpers = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1))
	return s
}

func (s *Store) packDir() string { return filepath.Join(s.dir, packsName) }

func (s *Store) open() error {
	version, err := s.checkFormat()
	if err != nil {
		return err
	}
	if s.lock, err = lockStore(s.dir, s.opts.Lock); err != nil {
		return err
	}
	if version == 0 {
		if err := s.create(); err != nil {
			return err
		}
		version = formatVersion
	}
	ends, err := s.openIndex(filepath.Join(s.dir, indexName))
	if err == nil {
		err = s.checkAhead(ends)
	}
	if err != nil {
		if errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrIndex) {
			err = fmt.Errorf("%w: %w", ErrIndex, err)
		}
		return err
	}
	if s.packs, err = pack.Open(s.packDir(), ends, s.opts.ReadOnly, s.opts.Points); err != nil {
		return err
	}
	s.opts.Points.At("packs open")
	if err := s.raiseFormat(version); err != nil {
		return err
	}
	s.opts.Points.At("version raised")
	if err := s.openJournal(); err != nil || s.opts.ReadOnly {
		return err
	}
	if err := os.RemoveAll(filepath.Join(s.dir, newIndexName)); err != nil {
		return err
	}
	if err := s.sweepParts(); err != nil {
		return err
	}
	s.writeMu.Lock() // upkeep may run already
	defer s.writeMu.Unlock()
	return s.guard.hold()
}

// openIndex opens and checks the index. It returns the end of the last record that the index names in each pack.
func (s *Store) openIndex(index string) (ends map[uint32]int64, err error) {
	if err := s.checkIndex(index); err != nil {
		return nil, err
	}
	s.guard.dir = index
	crashed, err := hasLogs(index)
	if err == nil && !crashed {
		crashed, err = hasUnnamed(index)
	}
	if err != nil {
		return nil, err
	}
	if s.db, err = openBadger(index, s.opts, s.log, &s.merges); err != nil {
		return nil, err
	}
	err = s.view(func(btx *badger.Txn) error {
		b, err := get(btx, []byte{keyState})
		if err == nil {
			err = s.state.decode(b)
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		ends, err = readEnds(btx)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := s.filterEmpty(); err != nil {
		return nil, err
	}
	err = s.checkCount()
	if err == nil && crashed {
		err = s.checkCounts()
	}
	s.nextNum, s.lease, s.opened = s.state.lease, s.state.lease, s.state.txns
	if s.state.ahead > 0 { // of ingests that a crash ended
		s.state.ahead = 0
		s.state.dropped++
	}
	return ends, err
}

// readEnds reads the end of the last record that the index names in each pack.
func readEnds(btx *badger.Txn) (map[uint32]int64, error) {
	ends := map[uint32]int64{}
	prefix := []byte{keyPack}
	err := scan(btx, prefix, prefix, func(key, value []byte) (bool, error) {
		p := varint.Parser{Rest: value}
		end := int64(p.Uint())
		if len(key) != 5 || p.Bad || end < pack.HeaderSize {
			return false, corrupt.Errorf("end of a pack is malformed")
		}
		ends[binary.BigEndian.Uint32(key[1:])] = end
		return true, nil
	})
	return ends, err
}

// checkIndex creates the directories of a new store, and refuses packs without an index.
func (s *Store) checkIndex(index string) error {
	packDir := s.packDir()
	if s.opts.ReadOnly {
		return nil
	}
	if err := os.MkdirAll(packDir, 0o700); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(index, "MANIFEST")); errors.Is(err, os.ErrNotExist) {
		names, err := os.ReadDir(packDir)
		if err != nil {
			return err
		}
		if len(names) > 0 {
			return fmt.Errorf("%w: %s is missing", ErrIndex, index)
		}
	}
	return disk.SyncDir(s.dir)
}

// enter begins a call. If it succeeds, callers must call leave.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.users.Add(1)
	return nil
}

func (s *Store) leave() { s.users.Done() }

// isClosed reports whether Close was called; background work ends then.
func (s *Store) isClosed() bool {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	return s.closed
}

// Close waits for calls, readers and ingests under way, and shrinks the store. If the disk has no room for that, it
// fails with ENOSPC: the store is then as after a crash, and Close may be called again.
func (s *Store) Close() error {
	s.closeMu.Lock()
	defer s.closeMu.Unlock()
	if s.ended {
		return nil
	}
	s.stateMu.Lock()
	closedBefore := s.closed
	s.closed = true
	s.stateMu.Unlock()
	s.users.Wait()
	s.endUpkeep()
	var errs []error
	if !closedBefore && !s.opts.ReadOnly && s.broken == nil {
		errs = append(errs, s.settleIndex())
	}
	errs = append(errs, s.closePacks())
	if err := s.roomToClose(); err != nil {
		return errors.Join(append(errs, err)...)
	}
	s.ended = true
	errs = append(errs, s.release())
	return errors.Join(errs...)
}

// settleIndex returns unused numbers and rewrites the journal, before the store is closed.
func (s *Store) settleIndex() error {
	if s.nextNum != s.state.lease {
		if err := s.update(func(t *writeTxn) error {
			t.state.lease = s.nextNum
			return nil
		}); err != nil {
			return err
		}
	}
	if !s.state.idleJournal() {
		return nil
	}
	err := s.rewriteJournal(context.Background(), false)
	if isFull(err) {
		s.log.Warn("the disk is full: the journal is rewritten later", "error", err)
		return nil
	}
	return err
}

// closePacks runs once; closeMu is held, or no other goroutine has the store.
func (s *Store) closePacks() error {
	if s.packs == nil || s.shut {
		return nil
	}
	s.shut = true
	err := errors.Join(s.packs.Close(), s.journal.close(s.state.journalEnd))
	s.opts.Points.At("packs closed")
	return err
}

// freeReserve frees the space that is reserved for a flush, as closePacks does once.
func (s *Store) freeReserve() error {
	if s.db == nil || s.opts.ReadOnly || s.reserveFreed {
		return nil
	}
	s.reserveFreed = true
	err := errors.Join(s.guard.freeReserve(), removeEmptyLogs(s.guard.dir))
	s.opts.Points.At("reserve given up")
	return err
}

// roomToClose frees the reserve, and fails if there is no room for what closing Badger writes: a table of the memtable,
// and one merged of all tables. Without room, Badger would end the process; the reserve then stays, so that the store
// can be opened again. Without descriptors for them it fails, too.
func (s *Store) roomToClose() (err error) {
	if s.db == nil || s.opts.ReadOnly {
		return nil
	}
	if err := s.merges.begin(s.guard.dir, s.db.Tables); err != nil {
		return fmt.Errorf("close index: %w", err)
	}
	defer func() {
		if err != nil {
			s.merges.release()
		}
	}()
	need := int64(0)
	if s.broken == nil {
		if need, err = s.closingWrites(); err != nil {
			return err
		}
	}
	if err := s.guard.room(need - s.guard.held()); err != nil {
		return fmt.Errorf("close index: %w", err)
	}
	err = s.freeReserve()
	if full := s.guard.room(need); full != nil {
		s.reserveFreed = false
		return fmt.Errorf("close index: %w", errors.Join(full, err, keepRoom(s.guard.dir)))
	}
	return err
}

// closingWrites gives the bytes that closing Badger writes at most.
func (s *Store) closingWrites() (int64, error) {
	if err := awaitLogs(s.guard.dir); err != nil && !isFull(err) {
		return 0, err
	}
	logs, err := filledLogs(s.guard.dir)
	need, fresh := s.guard.used, s.guard.used > 0 || logs > 1
	need += int64(max(logs-1, 0)) * 2 * tableRoom(walAlloc) // Badger is still writing tables of them
	for _, t := range s.db.Tables() {
		need += int64(t.OnDiskSize)
		fresh = fresh || t.Level == 0
	}
	if !fresh || err != nil {
		return 0, err
	}
	return need + s.guard.used + closeRoom, nil
}

// release closes whatever is open.
func (s *Store) release() error {
	s.endUpkeep()
	errs := []error{s.closePacks()}
	if s.db != nil {
		err := s.freeReserve()
		cerr := s.closeIndex()
		s.opts.Points.At("index closed")
		if err = errors.Join(err, cerr); err == nil && !s.opts.ReadOnly {
			err = errors.Join(trimIndex(s.guard.dir), keepRoom(s.guard.dir))
		}
		errs = append(errs, err)
	}
	if s.count != nil {
		errs = append(errs, s.count.close())
	}
	return errors.Join(append(errs, s.lock.release())...)
}

// closeIndex closes Badger, which merges tables if something was written. If a table is damaged, the index is left as a
// crash would leave it, so that RebuildIndex and readers still have the tables and the log.
func (s *Store) closeIndex() error {
	defer s.merges.release()
	if s.state.txns != s.opened && s.broken == nil {
		if err := s.verifyTables(context.Background()); err != nil {
			return err
		}
	}
	if errors.Is(s.broken, ErrIndex) {
		return s.broken
	}
	if s.opts.ReadOnly {
		return s.db.Close()
	}
	if err := s.merges.begin(s.guard.dir, s.db.Tables); err != nil {
		return fmt.Errorf("close index: %w", err)
	}
	_, err := guarded("close index", func() (struct{}, error) { return struct{}{}, s.db.Close() })
	tables, terr := tablesOf(s.guard.dir)
	if terr != nil {
		return errors.Join(err, terr)
	}
	if lost := s.merges.end(tables, nil); lost != nil {
		err = errors.Join(err, s.lose(lost))
	}
	return err
}

// lose records that a merge has lost tables. The caller holds writeMu, or is Close.
func (s *Store) lose(lost error) error {
	return s.breakIndex(errors.Join(lost, markDamaged(s.guard.dir)))
}

// breakIndex ends writing, since the index is damaged. The caller holds writeMu, or is Close.
func (s *Store) breakIndex(why error) error {
	s.broken = fmt.Errorf("%w: %w", ErrIndex, why)
	s.damaged.Store(true)
	if s.packs != nil {
		s.packs.Freeze()
	}
	return s.broken
}

var _ io.Closer = (*Store)(nil)
