package chunkstore

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore/internal/disk"
)

// On a nearly full disk the index is opened with the room that opening really takes, and its logs get the blocks that
// there are.
const (
	openFixed = 2 << 20   // what opening writes beside tables of the logs that it finds
	spareMore = 512 << 10 // what these may take if a transaction is in another log than is thought
	plenty    = openRoom + flushRoom
	logStep   = 1 << 20 // by which logs are allocated on a nearly full disk
	txnMost   = 3 << 20 // of a transaction in a log; see txnLimits
	logHeader = 64      // what a log holds before its first transaction, and more
	txnEnd    = 128     // what a transaction takes in a log beside its entries, and the zeros that follow it
	flushWait = 10 * time.Second
	tinyStore = 1 << 20   // bytes of payload, journal and log
	tinyAhead = 128 << 10 // by which the logs of a tiny store are allocated
)

// roomy reports whether n bytes can be written to dir's file system.
func roomy(dir string, n int64) bool { return requireRoom(dir, n) == nil }

// requireRoom fails with ENOSPC unless n bytes can be written to dir's file system. It may take all that is free for a
// moment, to find out: Badger must not be writing a table.
func requireRoom(dir string, n int64) error {
	err := disk.Require(dir, n)
	if err != nil && disk.CanAllocate(dir, n) {
		return nil
	}
	return err
}

// isFull reports whether an error says that the disk, or a quota, is full.
func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// tableRoom is what a table of a log with n bytes takes at most. Its entries have 3 bytes more than those of the log,
// among 40 or more, before they are compressed.
func tableRoom(n int64) int64 { return n + n/16 + 512<<10 }

// roomToOpen fails if there is no room for what Badger writes when it opens the index in dir: without, it would end the
// process. tight: the disk is nearly full. Then the logs that a dead process left are cut behind what they hold, as
// Badger would do later, which frees blocks that were allocated in advance.
func roomToOpen(dir string) (tight bool, err error) {
	logs, err := memLogs(dir)
	if err != nil || roomy(dir, plenty+int64(len(logs))*tableRoom(walAlloc)) {
		return false, err
	}
	need := int64(openFixed)
	for n := range logs {
		used, err := trimLog(memLogPath(dir, n))
		if err != nil {
			return false, err
		}
		need += tableRoom(used)
	}
	return true, requireRoom(dir, need)
}

// trimLog cuts a log at the end of the page behind its last byte that is not zero, and returns its length. A record
// ends with a checksum of 4 bytes, which may be zeros.
func trimLog(path string) (int64, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // nothing was written through it
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	const page = 4096
	buf := make([]byte, 1<<20)
	size := int64(page)
	for off := (fi.Size() - 1) / int64(len(buf)) * int64(len(buf)); off >= 0; off -= int64(len(buf)) {
		b := buf[:min(int64(len(buf)), fi.Size()-off)]
		if _, err := f.ReadAt(b, off); err != nil {
			return 0, err
		}
		i := len(b)
		for i > 0 && b[i-1] == 0 {
			i--
		}
		if i > 0 {
			size = (off + int64(i) + 4 + page - 1) / page * page
			break
		}
	}
	if size >= fi.Size() {
		return fi.Size(), nil
	}
	return size, f.Truncate(size)
}

// filledLogs counts the logs that hold something: the one in use, and those of which Badger is writing tables.
func filledLogs(dir string) (int, error) {
	logs, err := memLogs(dir)
	count := 0
	for _, size := range logs {
		if size > 0 {
			count++
		}
	}
	return count, err
}

// awaitLogs waits until Badger has written tables of all logs but the newest. It fails if that takes long: Badger tries
// for ever.
func awaitLogs(dir string) error {
	for end := time.Now().Add(flushWait); ; time.Sleep(flushLook) {
		if logs, err := filledLogs(dir); err != nil || logs <= 1 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: the index does not write its tables: %w", dir, unix.ENOSPC)
		}
	}
}

// room is requireRoom while the index is open. On a nearly full disk it waits until Badger has written its tables. The
// caller holds Store.writeMu, so that Badger begins none.
func (g *logGuard) room(n int64) error {
	err := disk.Require(g.dir, n)
	if err == nil || g.merging {
		return err
	}
	if err := awaitLogs(g.dir); err != nil {
		return err
	}
	return requireRoom(g.dir, n)
}

// allocate reserves blocks for the log in use and the next. On a nearly full disk they get what there is, in turn, and
// no more as long as any transaction fits: fits refuses what is too much for them. What is left suffices for the tables
// that Badger is writing, and for that of the log in use once it may be full.
//
// Where there is much room, they get more as the store grows: those of a tiny one what the next transaction takes, those
// of a small one what suffices for any, and for opening the index after a crash.
func (g *logGuard) allocate() error {
	if g.tiny() {
		return g.extend(tinyAhead)
	}
	missing := 2*walAlloc - g.logAlloc - g.nextAlloc
	if missing == 0 || g.small() && g.fits(txnMost) == nil {
		return nil
	}
	current, next := memLogPath(g.dir, g.log), memLogPath(g.dir, g.next)
	logs, err := filledLogs(g.dir)
	if err != nil {
		return err
	}
	all := missing + int64(max(logs, 1))*flushRoom
	if disk.Require(g.dir, all) != nil && g.fits(txnMost) == nil {
		return nil
	}
	if g.room(all) == nil {
		if g.small() {
			return g.grow(current, next)
		}
		err := errors.Join(allocateLog(current, 0), allocateLog(next, os.O_CREATE))
		if err == nil {
			g.logAlloc, g.nextAlloc = walAlloc, walAlloc
		}
		return err
	}
	// The table of the log before takes the room first: Badger would end the process without it.
	if err := awaitLogs(g.dir); err != nil {
		return err
	}
	return g.grow(current, next)
}

// grow allocates blocks for the log in use and the next, in turn: as many as there are, or as a small store needs.
func (g *logGuard) grow(current, next string) error {
	for n := int64(logStep); n <= walAlloc; n += logStep {
		if g.small() && g.fits(txnMost) == nil || g.nearlyFull() && disk.Require(g.dir, flushRoom+2*logStep) != nil {
			return nil
		}
		err := growLog(next, os.O_CREATE, &g.nextAlloc, n)
		if err == nil {
			err = growLog(current, 0, &g.logAlloc, min(g.end+n, walAlloc))
		}
		if isFull(err) && g.nextAlloc > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tiny reports whether the store has so little that it may be left without room if the disk becomes full at once.
func (g *logGuard) tiny() bool { return g.spacious && g.content+g.end < tinyStore }

// small reports whether the logs get room as they grow, instead of all that they can use.
func (g *logGuard) small() bool { return g.spacious && g.content < walAlloc && !g.nearlyFull() }

// extend allocates blocks of the log in use and the next for a transaction with entries of n bytes.
func (g *logGuard) extend(n int64) error {
	up := func(n int64) int64 { return min((n+tinyAhead-1)/tinyAhead*tinyAhead, walAlloc) }
	n += txnEnd
	return errors.Join(
		growLog(memLogPath(g.dir, g.next), os.O_CREATE, &g.nextAlloc, up(logHeader+n)),
		growLog(memLogPath(g.dir, g.log), 0, &g.logAlloc, up(g.end+n)))
}

// claim fails unless a transaction with entries of n bytes can be written now.
func (g *logGuard) claim(n int64) error {
	if g.tiny() {
		if err := g.extend(n); err != nil {
			return err
		}
	}
	return g.fits(n)
}

// growLog allocates a log's first bytes, if fewer were.
func growLog(path string, flag int, has *int64, want int64) error {
	if *has >= want {
		return nil
	}
	err := disk.AllocateFile(path, flag, want)
	if err == nil {
		*has = want
	}
	return err
}

// hold takes blocks for the logs when the index was opened on a nearly full disk, before other programs do.
func (g *logGuard) hold() error {
	if g.room(plenty) == nil {
		return nil
	}
	err := g.prepare()
	if isFull(err) {
		// Blocks of what was just removed are free once the file system's own log says so.
		if err = syncDisk(g.dir); err == nil {
			err = g.prepare()
		}
	}
	if isFull(err) {
		return nil // transactions say so
	}
	return err
}

// syncDisk writes what dir's file system has in memory.
func syncDisk(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

// fits fails unless a transaction with entries of n bytes has room in the log in use, and in the next: Badger writes it
// to one of them. After it, what was allocated and is not used must be enough to open the index after a crash, however
// full the disk is then; but for a tiny store.
func (g *logGuard) fits(n int64) error {
	if g.logAlloc >= walAlloc && g.nextAlloc >= walAlloc {
		return nil
	}
	n += txnEnd
	spare := g.logAlloc + g.nextAlloc - g.end - n
	if (g.logAlloc >= walAlloc || g.end+n <= g.logAlloc) && logHeader+n <= g.nextAlloc &&
		(g.tiny() || spare >= tableRoom(g.end+n)+openFixed+spareMore) {
		return nil
	}
	return fmt.Errorf("%s: no room for the log of the index: %w", g.dir, unix.ENOSPC)
}

// wrote counts a transaction with entries of n bytes.
func (g *logGuard) wrote(n int64) {
	g.used += n
	g.last = n + txnEnd
	g.end += g.last
}

// held is how much of the disk is allocated and can be given up before the index is closed.
func (g *logGuard) held() int64 {
	total := int64(0)
	for _, path := range []string{g.reservePath(), memLogPath(g.dir, g.next)} {
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil && st.Size == 0 {
			total += st.Blocks * 512
		}
	}
	return total
}

// makeRoom fails unless n bytes can be written, if need be in place of the reserve.
func (g *logGuard) makeRoom(n int64) error {
	if g.room(n) == nil {
		return nil
	}
	if err := g.freeReserve(); err != nil {
		return err
	}
	return g.room(n)
}
