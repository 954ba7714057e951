package chunkstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/disk"
	"snapfs/internal/failpoint"
)

// A pack is a file of records, named by its number (%08d.pack):
//
//	magic   8 bytes "snapPACK"
//	version 2 bytes, little-endian, 1
//	pad     2 bytes, 0
//	number  4 bytes, little-endian
//	crc     4 bytes, CRC-32C of the 16 before it
//	records
const (
	packMagic   = "snapPACK"
	packVersion = 1
	packHeader  = 20
	packMax     = 64 << 20 // a pack that has reached this length takes no more records
	packExt     = ".pack"
	packRoom    = 32 << 20 // what packs leave free: the index needs room to delete and to collect
)

// fileHeader is the header of a pack or a journal.
func fileHeader(magic string, num uint32) []byte {
	h := append(make([]byte, 0, packHeader), magic...)
	h = binary.LittleEndian.AppendUint16(h, packVersion)
	h = binary.LittleEndian.AppendUint16(h, 0)
	h = binary.LittleEndian.AppendUint32(h, num)
	return binary.LittleEndian.AppendUint32(h, crc32.Checksum(h, crcTable))
}

// isPackHeader reports whether h, packHeader bytes, is the header of a pack of this number.
func isPackHeader(h []byte, num uint32) bool {
	return string(h[:8]) == packMagic && binary.LittleEndian.Uint16(h[8:]) == packVersion &&
		binary.LittleEndian.Uint32(h[12:]) == num && binary.LittleEndian.Uint32(h[16:]) == crc32.Checksum(h[:16], crcTable)
}

// place is where a record lies.
type place struct {
	pack uint32
	off  int64
	len  int64
}

func (p place) end() int64 { return p.off + p.len }

// pack is an open pack file.
type pack struct {
	num   uint32
	f     *os.File
	size  int64 // end of what was appended; guarded by packs.mu
	alloc int64 // end of what is allocated; guarded by packs.mu
	index int64 // end of what the index names; guarded by packs.mu
	holds int   // who appended records that the index may not name yet; guarded by packs.mu
	users int   // reads under way, plus one while it belongs to the store; guarded by packs.mu

	failed error // of its last sync, until its holders are gone; guarded by packs.mu
}

// packs is the set of a store's packs.
//
// Records are appended to one pack at a time. Appends are serialised, reads are not.
type packs struct {
	dir    string
	points failpoint.Func

	syncMu sync.Mutex // held while syncing; taken before mu

	mu     sync.Mutex
	all    map[uint32]*pack // guarded by mu
	active *pack            // takes appends, nil until the first; guarded by mu
	dirty  []*pack          // have bytes that were not synced; guarded by mu
	next   uint32           // number of the next new pack; guarded by mu
	frozen bool             // what the index names is not known: nothing is cut off; guarded by mu
}

// packName is the name of a pack's file.
func packName(num uint32) string { return fmt.Sprintf("%08d%s", num, packExt) }

// parsePackName gives the number of the pack whose file has a name.
func parsePackName(name string) (num uint32, ok bool) {
	base, ok := strings.CutSuffix(name, packExt)
	n, err := strconv.ParseUint(base, 10, 32)
	return uint32(n), ok && err == nil
}

// openPacks opens all packs of dir. ends gives for each pack the end of the last record that the index names;
// what a crash left behind it is cut off, and a pack that it does not name is removed.
func openPacks(dir string, ends map[uint32]int64, readOnly bool, points failpoint.Func) (*packs, error) {
	ps := &packs{dir: dir, points: points, all: map[uint32]*pack{}, next: 1}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range names {
		num, ok := parsePackName(e.Name())
		if !ok {
			continue
		}
		if err := ps.open(num, ends, readOnly); err != nil {
			return nil, errors.Join(err, ps.close())
		}
	}
	for num := range ends {
		ps.next = max(ps.next, num+1) // a lost pack's number must not come again
	}
	return ps, nil
}

func (ps *packs) open(num uint32, ends map[uint32]int64, readOnly bool) error {
	ps.next = max(ps.next, num+1)
	path := filepath.Join(ps.dir, packName(num))
	end, named := ends[num]
	if !named && !readOnly {
		return os.Remove(path)
	}
	flag := os.O_RDWR
	if readOnly {
		flag = os.O_RDONLY
	}
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return err
	}
	fi, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	// A file that ends before end is damaged: reads of what is missing will say so.
	if fi.Size() > end && !readOnly {
		if err := f.Truncate(end); err != nil {
			return errors.Join(err, f.Close())
		}
		ps.points.At("pack cut")
	}
	p := &pack{num: num, f: f, size: end, alloc: end, index: end, users: 1}
	ps.all[num] = p
	if fi.Size() >= end && end < packMax && !readOnly && (ps.active == nil || ps.active.num < num) {
		ps.active = p
	}
	return nil
}

// create makes a new pack and makes it the active one; mu is held.
func (ps *packs) createLocked() error {
	num := ps.next
	f, err := os.OpenFile(filepath.Join(ps.dir, packName(num)), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(fileHeader(packMagic, num), 0)
	ps.points.At("pack begun")
	if err == nil {
		err = disk.SyncDir(ps.dir)
	}
	if err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	ps.next++
	p := &pack{num: num, f: f, size: packHeader, alloc: packHeader, users: 1}
	ps.all[num] = p
	ps.active = p
	ps.dirty = append(ps.dirty, p)
	return nil
}

// holds is the set of packs that one writer has appended to: they must stay until what it wrote is named or dropped.
type holds map[uint32]bool // guarded by packs.mu

// append writes a record, whose place is not durable before the next sync.
func (ps *packs) append(rec []byte, by *holds) (place, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.active == nil || ps.active.size >= packMax {
		if err := ps.createLocked(); err != nil {
			return place{}, err
		}
	}
	p := ps.active
	if err := p.reserve(ps.dir, int64(len(rec))); err != nil {
		return place{}, err
	}
	// A short write leaves bytes that no index names; the next record overwrites them.
	if _, err := p.f.WriteAt(rec, p.size); err != nil {
		return place{}, err
	}
	ps.points.At("record appended")
	at := place{p.num, p.size, int64(len(rec))}
	p.size += int64(len(rec))
	if !(*by)[p.num] {
		if *by == nil {
			*by = holds{}
		}
		(*by)[p.num] = true
		p.holds++
	}
	if len(ps.dirty) == 0 || ps.dirty[len(ps.dirty)-1] != p {
		ps.dirty = append(ps.dirty, p)
	}
	return at, nil
}

// drop gives up a writer's holds. What a pack that no one holds has behind the last record that the index names is cut
// off, and a pack without such a record removed; it tells whether there was something.
func (ps *packs) drop(by *holds, log *slog.Logger) (cut bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for num := range *by {
		p := ps.all[num]
		if p == nil {
			continue
		}
		if p.holds--; p.holds > 0 || ps.frozen {
			continue
		}
		p.failed = nil // all that the index names was synced before that
		if p.size <= p.index {
			continue
		}
		cut = true
		if err := ps.cutLocked(p); err != nil {
			log.Warn("records that were given up stay until the store is opened again", "pack", num, "error", err)
		}
	}
	*by = nil
	return cut
}

// cutLocked takes records that the index does not name off the end of a pack; mu is held.
func (ps *packs) cutLocked(p *pack) error {
	if p.index == 0 {
		return ps.removeLocked(p)
	}
	p.size, p.alloc = p.index, p.index
	err := p.f.Truncate(p.size)
	ps.points.At("pack cut")
	return err
}

// named notes that the index names records of a pack up to end.
func (ps *packs) named(num uint32, end int64) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.all[num]; p != nil {
		p.index = max(p.index, end)
	}
}

// freeze keeps all records: a transaction that names some may or may not be durable.
func (ps *packs) freeze() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.frozen = true
}

// retire makes a pack take no more records; false if someone still holds it. size is its final length.
func (ps *packs) retire(num uint32) (size int64, ok bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.all[num]
	if p == nil || p.holds > 0 {
		return 0, false
	}
	if ps.active == p {
		ps.active = nil
	}
	return p.size, true
}

// sizes gives the length of each pack.
func (ps *packs) sizes() map[uint32]int64 {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	m := make(map[uint32]int64, len(ps.all))
	for num, p := range ps.all {
		m[num] = p.size
	}
	return m
}

// reserve allocates space ahead for n more bytes, so that a file grows in few extents; packs.mu is held.
func (p *pack) reserve(dir string, n int64) error {
	if p.size+n <= p.alloc {
		return nil
	}
	// The index keeps room to delete and collect in.
	if err := disk.Require(dir, n+packRoom); err != nil {
		return err
	}
	step := min(max(p.size/2, 64<<10), 8<<20)
	want := p.size + n + step
	err := disk.Allocate(p.f, p.alloc, want-p.alloc)
	if errors.Is(err, unix.ENOSPC) {
		want = p.size + n
		err = disk.Allocate(p.f, p.alloc, want-p.alloc)
	}
	if err != nil {
		return fmt.Errorf("allocate pack %d: %w", p.num, err)
	}
	p.alloc = want
	return nil
}

// sync makes everything appended before durable.
func (ps *packs) sync() error {
	ps.syncMu.Lock()
	defer ps.syncMu.Unlock()
	ps.mu.Lock()
	dirty := ps.dirty
	ps.dirty = nil
	for _, p := range dirty {
		p.users++ // it may be removed meanwhile
	}
	ps.mu.Unlock()
	defer func() {
		for _, p := range dirty {
			ps.release(p)
		}
	}()
	for i, p := range dirty {
		ps.mu.Lock()
		err := p.failed
		ps.mu.Unlock()
		if err == nil {
			err = unix.Fdatasync(int(p.f.Fd()))
		}
		if err != nil {
			ps.keepDirty(dirty[i:], err)
			return fmt.Errorf("sync pack %d: %w", p.num, err)
		}
		ps.points.At("pack synced")
	}
	return nil
}

// keepDirty notes that packs could not be synced, the first because of err. What the kernel failed to write it may have
// dropped, and says so once: no record of that pack may be named any more that was not before.
func (ps *packs) keepDirty(dirty []*pack, err error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	dirty[0].failed = err
	if ps.active == dirty[0] {
		ps.active = nil
	}
	dirty = slices.DeleteFunc(dirty, func(p *pack) bool { return ps.all[p.num] != p })
	ps.dirty = append(slices.Clone(dirty), ps.dirty...)
}

// acquire keeps a pack open; nil if there is none of this number.
func (ps *packs) acquire(num uint32) *pack {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.all[num]
	if p != nil {
		p.users++
	}
	return p
}

func (ps *packs) release(p *pack) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.releaseLocked(p)
}

// releaseLocked is release; mu is held.
func (ps *packs) releaseLocked(p *pack) {
	p.users--
	if p.users == 0 {
		_ = p.f.Close() // it was removed; nothing depends on it
	}
}

// read reads and parses the record at a place.
func (ps *packs) read(at place) (*record, error) {
	b, err := ps.readRaw(at)
	if err != nil {
		return nil, err
	}
	r, err := parseRecord(b)
	if err != nil {
		return nil, fmt.Errorf("pack %d at %d: %w", at.pack, at.off, err)
	}
	return r, nil
}

// readInto is read into memory that is used again: the record is valid until that is released.
func (ps *packs) readInto(sc *scratch, at place) (*record, error) {
	if at.len <= maxRecord+32 {
		sc.record = slices.Grow(sc.record[:0], int(at.len))[:at.len]
	}
	if err := ps.fill(sc.record, at); err != nil {
		return nil, err
	}
	r, err := parseRecord(sc.record)
	if err != nil {
		return nil, fmt.Errorf("pack %d at %d: %w", at.pack, at.off, err)
	}
	return r, nil
}

// readRaw reads the bytes at a place.
func (ps *packs) readRaw(at place) ([]byte, error) {
	var b []byte
	if at.len <= maxRecord+32 {
		b = make([]byte, at.len)
	}
	return b, ps.fill(b, at)
}

// fill reads the bytes at a place into b, which has its length, unless that is impossible.
func (ps *packs) fill(b []byte, at place) error {
	p := ps.acquire(at.pack)
	if p == nil {
		return corrupt.Errorf("pack %d is missing", at.pack)
	}
	defer ps.release(p)
	if at.len > maxRecord+32 {
		return corrupt.Errorf("pack %d at %d: record of %d bytes", at.pack, at.off, at.len)
	}
	if n, err := p.f.ReadAt(b, at.off); err != nil {
		return corrupt.Errorf("pack %d at %d: %d of %d bytes: %w", at.pack, at.off, n, at.len, err)
	}
	return nil
}

// holds tells whether a pack's file reaches as far as a place.
func (ps *packs) holds(at place) bool {
	p := ps.acquire(at.pack)
	if p == nil {
		return false
	}
	defer ps.release(p)
	fi, err := p.f.Stat()
	return err == nil && fi.Size() >= at.end()
}

// remove deletes a pack's file; reads under way end undisturbed.
func (ps *packs) remove(num uint32) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.all[num]; p != nil {
		return ps.removeLocked(p)
	}
	return nil
}

// removeLocked deletes a pack's file; mu is held.
func (ps *packs) removeLocked(p *pack) error {
	delete(ps.all, p.num)
	if ps.active == p {
		ps.active = nil
	}
	ps.dirty = slices.DeleteFunc(ps.dirty, func(d *pack) bool { return d == p })
	ps.releaseLocked(p)
	err := os.Remove(filepath.Join(ps.dir, packName(p.num)))
	ps.points.At("pack removed")
	return err
}

// allocated sums up the space the packs take.
func (ps *packs) allocated() (int64, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	total := int64(0)
	for _, p := range ps.all {
		var st unix.Stat_t
		if err := unix.Fstat(int(p.f.Fd()), &st); err != nil {
			return 0, err
		}
		total += st.Blocks * 512
	}
	return total, nil
}

// close gives back what was allocated ahead and closes the files.
func (ps *packs) close() error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var errs []error
	for _, p := range ps.all {
		if p.alloc > p.size {
			errs = append(errs, p.f.Truncate(p.size))
		}
		errs = append(errs, p.f.Close())
	}
	ps.all, ps.active = nil, nil
	return errors.Join(errs...)
}
