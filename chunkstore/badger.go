package chunkstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	badger "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"golang.org/x/sys/unix"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/disk"
	"snapfs/internal/hostspace"
)

// Settings of Badger. All values stay below the value threshold, so that its value log is never used: it loses good
// values around a bad one.
const (
	memTableSize   = 16 << 20
	blockBytes     = 16 << 10           // of a block of a table
	valueThreshold = 1 << 20            // the largest that Badger accepts
	walAlloc       = 20 << 20           // a memtable's log: the memtable and one transaction beyond it
	writableRoom   = 4 << 20            // what btrfs may take of a limit to write what is allocated
	flushRoom      = 24 << 20           // for the table of a full memtable
	openRoom       = 2*walAlloc + 4<<20 // for all that an index wants before its first transaction
	closeRoom      = 1 << 20            // what closing writes, except tables
	tightDisk      = 4 * openRoom       // with less than this free, a closed index keeps a reserve
	spaciousDisk   = 1 << 30            // with more than this free, an open one allocates as it grows
)

// Names in the index's directory.
const (
	memExt      = ".mem"
	reserveName = "RESERVE"
)

func badgerOptions(dir string, opts Options, log badgerLog) badger.Options {
	return badger.DefaultOptions(dir).
		WithLogger(log).
		WithReadOnly(opts.ReadOnly).
		WithBypassLockGuard(true).  // the store has its own lock
		WithSyncWrites(false).      // logGuard.sync does it: Badger would also sync its value log, which is never used
		WithDetectConflicts(false). // writers are serialised by Store.writeMu
		WithNumVersionsToKeep(1).
		WithMetricsEnabled(false).
		WithMemTableSize(memTableSize).
		WithNumMemtables(2).
		WithValueThreshold(valueThreshold).
		WithValueLogFileSize(1 << 20).
		WithCompression(options.ZSTD).
		WithZSTDCompressionLevel(3).
		WithBlockSize(blockBytes).
		WithBlockCacheSize(indexCacheMax). // sizeIndexCache lowers it
		WithChecksumVerificationMode(options.OnBlockRead).
		WithCompactL0OnClose(true).
		WithNumLevelZeroTablesStall(tablesMost).
		WithNumCompactors(0) // Store.mergeTables does it
}

// guarded turns a panic into an error: Badger panics on many damaged files, and a mapped file that is cut short faults.
func guarded[T any](what string, fn func() (T, error)) (v T, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = corrupt.Errorf("%s: %v", what, r)
		}
	}()
	return fn()
}

// openBadger opens the database in dir, whose merges are watched. On a nearly full disk it waits until Badger has written
// what it found in logs.
func openBadger(dir string, opts Options, log *slog.Logger, m *merges) (*badger.DB, error) {
	tight := false
	if !opts.ReadOnly {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		if err := errors.Join(removeEmptyLogs(dir), removeUnused(dir)); err != nil {
			return nil, err
		}
		if err := (&logGuard{dir: dir}).freeReserve(); err != nil {
			return nil, err
		}
		var err error
		if tight, err = roomToOpen(dir); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(checkDamaged(dir), checkTables(dir)); err != nil {
		return nil, err
	}
	db, err := guarded("open index", func() (*badger.DB, error) {
		return badger.Open(badgerOptions(dir, opts, badgerLog{log, m}))
	})
	var errno unix.Errno
	switch {
	case err == nil:
		if tight {
			if err := awaitLogs(dir); err != nil {
				log.Warn("the index was opened without room", "error", err) // transactions are refused until it is done
			}
		}
		return db, sizeIndexCache(db)
	case errors.As(err, &errno) || errors.Is(err, ErrCorrupt):
		return nil, err
	}
	return nil, fmt.Errorf("%w: open index: %w", ErrCorrupt, err) // Badger has no error class for that
}

// memLogs lists the numbers and sizes of the memtable logs in dir.
func memLogs(dir string) (map[int]int64, error) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	logs := map[int]int64{}
	for _, e := range names {
		base, ok := strings.CutSuffix(e.Name(), memExt)
		n, err := strconv.Atoi(base)
		if !ok || err != nil {
			continue
		}
		fi, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue // flushed in the meantime
		}
		if err != nil {
			return nil, err
		}
		logs[n] = fi.Size()
	}
	return logs, nil
}

// hasLogs reports whether transactions wait in logs: the process that had the index open did not close it.
func hasLogs(dir string) (bool, error) {
	logs, err := memLogs(dir)
	if errors.Is(err, os.ErrNotExist) {
		err = nil // a new index
	}
	for _, size := range logs {
		if size > 0 {
			return true, err
		}
	}
	return false, err
}

func memLogPath(dir string, n int) string {
	return filepath.Join(dir, fmt.Sprintf("%05d%s", n, memExt))
}

// removeEmptyLogs removes logs that were created in advance and never used; Badger refuses them. Badger empties a log
// that it has flushed before it removes it, possibly at the same time.
func removeEmptyLogs(dir string) error {
	logs, err := memLogs(dir)
	if err != nil {
		return err
	}
	for n, size := range logs {
		if size == 0 {
			if err := os.Remove(memLogPath(dir, n)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// logGuard keeps an open database from meeting a full disk where it would be killed by it, in its memory-mapped files:
//   - the memtable log in use is really allocated, and so is the next one, which is made in advance as an empty file
//     with blocks behind its end; on a nearly full disk both get the blocks that there are;
//   - a reserve is held that a flush fits into, and given up when the disk gets full;
//   - transactions are refused before a flush that would have no room;
//   - a closed index on a nearly full disk keeps the room that opening it needs (keepRoom).
//
// Packs stop growing earlier than that (packs.margin), so that deleting and collecting still work. Used with
// Store.writeMu held.
type logGuard struct {
	dir       string
	log       int   // the log in use when next was created
	next      int   // the log created in advance, 0 = none
	used      int64 // bytes of transactions since the log in use was started, approximately
	end       int64 // of what the log in use holds, at most
	last      int64 // bytes of the last transaction in its log, at most
	logAlloc  int64 // first bytes of the log in use that have blocks
	nextAlloc int64 // the same of the next
	content   int64 // bytes of payload and journal
	spacious  bool  // there was much room when it was last looked
	reserved  bool
	merging   bool // Badger merges tables beside transactions
}

// prepare is called before each transaction.
func (g *logGuard) prepare() error {
	if err := g.balance(); err != nil {
		return err
	}
	if g.next != 0 {
		fi, err := os.Stat(memLogPath(g.dir, g.next))
		if err == nil && fi.Size() == 0 {
			return g.allocate()
		}
	}
	logs, err := memLogs(g.dir)
	if err != nil {
		return err
	}
	newest := 0
	for n, size := range logs {
		if size > 0 {
			newest = max(newest, n)
		}
	}
	switch newest {
	case g.log: // the next could not be created
		g.nextAlloc = 0
	case g.next:
		g.used, g.end, g.logAlloc, g.nextAlloc = 0, logHeader+g.last, g.nextAlloc, 0
	default:
		g.used, g.end, g.logAlloc, g.nextAlloc = 0, logHeader, 0, 0
	}
	g.log, g.next = newest, newest+1
	return g.allocate()
}

// sync makes the last committed transaction durable. Badger has written all of it to one log, through a memory map.
func (g *logGuard) sync() error {
	num := g.log
	// The first transaction that does not fit into a log starts the next.
	if fi, err := os.Stat(memLogPath(g.dir, g.next)); err != nil {
		return err
	} else if fi.Size() > 0 {
		num = g.next
	}
	f, err := os.OpenFile(memLogPath(g.dir, num), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fdatasync(int(f.Fd())), f.Close())
}

// balance allocates or frees the reserve, and fails if there is no room for a flush that may follow.
func (g *logGuard) balance() error {
	free, err := disk.Free(g.dir)
	if err != nil {
		return err
	}
	if free < writableRoom {
		if err := hostspace.Writable(g.dir, writableRoom); err != nil {
			return err
		}
	}
	g.spacious = free >= spaciousDisk
	switch {
	case free >= 3*flushRoom && !g.reserved && (!g.small() || g.end >= memTableSize/4):
		g.reserved = disk.AllocateFile(g.reservePath(), os.O_CREATE, flushRoom) == nil
	case free < flushRoom && g.reserved:
		if err := g.freeReserve(); err != nil {
			return err
		}
		free += flushRoom
	}
	if free < 2*flushRoom && g.nearlyFull() {
		if err := awaitLogs(g.dir); err != nil {
			return err
		}
		if free, err = disk.Free(g.dir); err != nil {
			return err
		}
	}
	if free < flushRoom && g.nearlyFull() {
		return fmt.Errorf("%s: %d bytes free, the index may need %d: %w", g.dir, free, flushRoom, unix.ENOSPC)
	}
	return nil
}

// nearlyFull reports whether Badger may soon write the memtable as a table.
func (g *logGuard) nearlyFull() bool { return g.used > memTableSize/2 }

func (g *logGuard) reservePath() string { return filepath.Join(g.dir, reserveName) }

// freeReserve frees the reserve.
func (g *logGuard) freeReserve() error {
	g.reserved = false
	if err := os.Remove(g.reservePath()); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func allocateLog(path string, flag int) error { return disk.AllocateFile(path, flag, walAlloc) }

// keepRoom leaves a reserve in a closed index on a nearly full disk. The next Open then has the room that it needs to
// delete and to collect, even if other programs fill the disk until then.
func keepRoom(dir string) error {
	free, err := disk.Free(dir)
	if err != nil || free >= tightDisk {
		return err
	}
	g := logGuard{dir: dir}
	// A clean-up writes while the store is open, and uses some of it.
	for n := int64(openRoom + 8<<20); n >= 4<<20; n -= 4 << 20 {
		if disk.AllocateFile(g.reservePath(), os.O_CREATE, n) == nil {
			return nil
		}
	}
	return g.freeReserve() // a smaller reserve is useless
}

// trimIndex removes what a closed database does not need: the statistics of garbage in the value log (1 MiB of zeros),
// the value log itself, which is never used, and the log created in advance.
func trimIndex(dir string) error { return errors.Join(removeEmptyLogs(dir), removeUnused(dir)) }

// badgerLog forwards Badger's warnings and errors, and drops lower levels.
type badgerLog struct {
	log    *slog.Logger
	merges *merges
}

func (l badgerLog) Errorf(format string, args ...any) { l.write(slog.LevelError, format, args) }
func (l badgerLog) Infof(format string, args ...any)  { l.merges.log(format, args) }
func (l badgerLog) Debugf(format string, args ...any) { l.merges.log(format, args) }

func (l badgerLog) Warningf(format string, args ...any) {
	l.merges.log(format, args)
	l.write(slog.LevelWarn, format, args)
}

func (l badgerLog) write(level slog.Level, format string, args []any) {
	l.log.Log(context.Background(), level, "index: "+strings.TrimSpace(fmt.Sprintf(format, args...)))
}
