package pack

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/disk"
	"snapfs/internal/failpoint"
)

// Set is the set of a store's packs. Records are appended to one pack at a time. Safe for concurrent use: appends are
// serialised, reads are not.
type Set struct {
	dir    string
	points failpoint.Func

	syncMu sync.Mutex // held while syncing; taken before mu

	mu     sync.Mutex
	all    map[uint32]*file // guarded by mu
	active *file            // takes appends, nil until the first; guarded by mu
	dirty  []*file          // have bytes that were not synced; guarded by mu
	next   uint32           // number of the next new pack; guarded by mu
	frozen bool             // what the index names is not known: nothing is cut off; guarded by mu
}

// Open opens all packs of dir. ends gives for each pack the end of the last record that the index names;
// what a crash left behind it is cut off, and a pack that it does not name is removed.
func Open(dir string, ends map[uint32]int64, readOnly bool, points failpoint.Func) (*Set, error) {
	ps := &Set{dir: dir, points: points, all: map[uint32]*file{}, next: 1}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range names {
		num, ok := ParseName(e.Name())
		if !ok {
			continue
		}
		if err := ps.open(num, ends, readOnly); err != nil {
			return nil, errors.Join(err, ps.Close())
		}
	}
	for num := range ends {
		ps.next = max(ps.next, num+1) // a lost pack's number must not come again
	}
	return ps, nil
}

func (ps *Set) open(num uint32, ends map[uint32]int64, readOnly bool) error {
	ps.next = max(ps.next, num+1)
	path := filepath.Join(ps.dir, Name(num))
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
	p := &file{num: num, f: f, size: end, alloc: end, index: end, users: 1}
	ps.all[num] = p
	if fi.Size() >= end && end < maxSize && !readOnly && (ps.active == nil || ps.active.num < num) {
		ps.active = p
	}
	return nil
}

// createLocked makes a new pack and makes it the active one; mu is held.
func (ps *Set) createLocked() error {
	num := ps.next
	f, err := os.OpenFile(filepath.Join(ps.dir, Name(num)), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(Header(magic, num), 0)
	ps.points.At("pack begun")
	if err == nil {
		err = disk.SyncDir(ps.dir)
	}
	if err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	ps.next++
	p := &file{num: num, f: f, size: HeaderSize, alloc: HeaderSize, users: 1}
	ps.all[num] = p
	ps.active = p
	ps.dirty = append(ps.dirty, p)
	return nil
}

// Reaches is the set of packs that one writer has appended to: they must stay until what it wrote is named or dropped.
type Holds map[uint32]bool // guarded by Set.mu

// Append writes a record, whose place is not durable before the next sync.
func (ps *Set) Append(rec []byte, by *Holds) (Place, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.active == nil || ps.active.size >= maxSize {
		if err := ps.createLocked(); err != nil {
			return Place{}, err
		}
	}
	p := ps.active
	if err := p.reserve(ps.dir, int64(len(rec))); err != nil {
		return Place{}, err
	}
	// A short write leaves bytes that no index names; the next record overwrites them.
	if _, err := p.f.WriteAt(rec, p.size); err != nil {
		return Place{}, err
	}
	ps.points.At("record appended")
	at := Place{p.num, p.size, int64(len(rec))}
	p.size += int64(len(rec))
	if !(*by)[p.num] {
		if *by == nil {
			*by = Holds{}
		}
		(*by)[p.num] = true
		p.holds++
	}
	if len(ps.dirty) == 0 || ps.dirty[len(ps.dirty)-1] != p {
		ps.dirty = append(ps.dirty, p)
	}
	return at, nil
}

// Drop gives up a writer's holds. What a pack that nobody holds has behind the last record that the index names is cut
// off, and a pack without such a record removed; it reports whether there was something.
func (ps *Set) Drop(by *Holds, log *slog.Logger) (cut bool) {
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
func (ps *Set) cutLocked(p *file) error {
	if p.index == 0 {
		return ps.removeLocked(p)
	}
	p.size, p.alloc = p.index, p.index
	err := p.f.Truncate(p.size)
	ps.points.At("pack cut")
	return err
}

// Named notes that the index names records of a pack up to end.
func (ps *Set) Named(num uint32, end int64) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.all[num]; p != nil {
		p.index = max(p.index, end)
	}
}

// Freeze keeps all records: a transaction that names some may or may not be durable.
func (ps *Set) Freeze() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.frozen = true
}

// Retire makes a pack take no more records; false if somebody still holds it. size is its final length.
func (ps *Set) Retire(num uint32) (size int64, ok bool) {
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

// Sizes gives the length of each pack.
func (ps *Set) Sizes() map[uint32]int64 {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	m := make(map[uint32]int64, len(ps.all))
	for num, p := range ps.all {
		m[num] = p.size
	}
	return m
}

// Sync makes everything appended before durable.
func (ps *Set) Sync() error {
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
func (ps *Set) keepDirty(dirty []*file, err error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	dirty[0].failed = err
	if ps.active == dirty[0] {
		ps.active = nil
	}
	dirty = slices.DeleteFunc(dirty, func(p *file) bool { return ps.all[p.num] != p })
	ps.dirty = append(slices.Clone(dirty), ps.dirty...)
}

// acquire keeps a pack open; nil if there is none of this number.
func (ps *Set) acquire(num uint32) *file {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.all[num]
	if p != nil {
		p.users++
	}
	return p
}

func (ps *Set) release(p *file) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.releaseLocked(p)
}

// releaseLocked is release; mu is held.
func (ps *Set) releaseLocked(p *file) {
	p.users--
	if p.users == 0 {
		_ = p.f.Close() // it was removed; nothing depends on it
	}
}

// Read reads and parses the record at a place.
func (ps *Set) Read(at Place) (*Record, error) {
	b, err := ps.ReadRaw(at)
	if err != nil {
		return nil, err
	}
	r, err := ParseRecord(b)
	if err != nil {
		return nil, fmt.Errorf("pack %d at %d: %w", at.Pack, at.Off, err)
	}
	return r, nil
}

// ReadInto is Read into scratch memory: the record is valid until that is released.
func (ps *Set) ReadInto(sc *Scratch, at Place) (*Record, error) {
	if at.Len <= MaxRecord+32 {
		sc.Record = slices.Grow(sc.Record[:0], int(at.Len))[:at.Len]
	}
	if err := ps.fill(sc.Record, at); err != nil {
		return nil, err
	}
	r, err := ParseRecord(sc.Record)
	if err != nil {
		return nil, fmt.Errorf("pack %d at %d: %w", at.Pack, at.Off, err)
	}
	return r, nil
}

// ReadRaw reads the bytes at a place.
func (ps *Set) ReadRaw(at Place) ([]byte, error) {
	var b []byte
	if at.Len <= MaxRecord+32 {
		b = make([]byte, at.Len)
	}
	return b, ps.fill(b, at)
}

// fill reads the bytes at a place into b, which has its length, unless that is impossible.
func (ps *Set) fill(b []byte, at Place) error {
	p := ps.acquire(at.Pack)
	if p == nil {
		return corrupt.Errorf("pack %d is missing", at.Pack)
	}
	defer ps.release(p)
	if at.Len > MaxRecord+32 {
		return corrupt.Errorf("pack %d at %d: record of %d bytes", at.Pack, at.Off, at.Len)
	}
	if n, err := p.f.ReadAt(b, at.Off); err != nil {
		return corrupt.Errorf("pack %d at %d: %d of %d bytes: %w", at.Pack, at.Off, n, at.Len, err)
	}
	return nil
}

// Reaches reports whether a pack's file reaches as far as a place.
func (ps *Set) Reaches(at Place) bool {
	p := ps.acquire(at.Pack)
	if p == nil {
		return false
	}
	defer ps.release(p)
	fi, err := p.f.Stat()
	return err == nil && fi.Size() >= at.End()
}

// Remove deletes a pack's file; reads under way end undisturbed.
func (ps *Set) Remove(num uint32) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.all[num]; p != nil {
		return ps.removeLocked(p)
	}
	return nil
}

// removeLocked deletes a pack's file; mu is held.
func (ps *Set) removeLocked(p *file) error {
	delete(ps.all, p.num)
	if ps.active == p {
		ps.active = nil
	}
	ps.dirty = slices.DeleteFunc(ps.dirty, func(d *file) bool { return d == p })
	ps.releaseLocked(p)
	err := os.Remove(filepath.Join(ps.dir, Name(p.num)))
	ps.points.At("pack removed")
	return err
}

// Allocated sums up the space the packs take.
func (ps *Set) Allocated() (int64, error) {
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

// Close gives back what was allocated ahead and closes the files.
func (ps *Set) Close() error {
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
