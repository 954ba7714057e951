package pack

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/disk"
	"snapfs/internal/failpoint"
	"snapfs/internal/lockorder"
)

// Set is the set of a store's packs. Records are appended to one pack at a time. Safe for concurrent use: appends are
// serialised, reads are not. Reads wait for no write of the host, which may be slow or frozen.
type Set struct {
	dir    string
	points failpoint.Func
	spare  atomic.Int64 // what packs leave free beside keepFree

	syncMu   lockorder.Mutex[lockorder.PackSync]   // held while syncing; taken before mu
	appendMu lockorder.Mutex[lockorder.PackAppend] // held while packs are made, written and cut off; taken before mu

	mu     lockorder.Mutex[lockorder.Packs] // never held over a write of the host
	all    map[uint32]*file                 // guarded by mu
	active *file                            // takes appends, nil until the first; guarded by mu
	dirty  []*file                          // have bytes that were not synced; guarded by mu
	limit  int64                            // from this length on the active pack takes no more; guarded by mu
	next   uint32                           // number of the next new pack; guarded by mu
	frozen bool                             // what the index names is not known: nothing is cut off; guarded by mu
	solid  bool                             // the file system makes no holes; guarded by mu
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
	ps.limit = ps.limitLocked()
	for num := range ends {
		ps.next = max(ps.next, num+1) // a lost pack's number must not come again
		if ps.active != nil && ps.active.num < num {
			ps.active = nil // of several records of a chunk, a rebuild of the index takes the one in the last pack
		}
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
	if fi.Size() >= end {
		if p.holes, err = p.countHoles(end); err != nil {
			return err
		}
	}
	if fi.Size() >= end && end < maxSize && !readOnly && (ps.active == nil || ps.active.num < num) {
		ps.active = p
	}
	return nil
}

// createLocked makes a new pack and makes it the active one; appendMu is held.
func (ps *Set) createLocked() error {
	ps.mu.Lock()
	num, full := ps.next, ps.active
	if full != nil {
		full.users++ // it may be removed meanwhile
	}
	ps.mu.Unlock()
	if full != nil {
		err := full.trim()
		ps.release(full)
		if err != nil {
			return err
		}
	}
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
	p := &file{num: num, f: f, size: HeaderSize, alloc: HeaderSize, users: 1}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.next++
	ps.limit = ps.limitLocked()
	ps.all[num] = p
	ps.active = p
	ps.dirty = append(ps.dirty, p)
	return nil
}

// Spare has packs leave n more bytes of the disk free from now on. Records that need space that they would take fail with
// ENOSPC.
func (ps *Set) Spare(n int64) { ps.spare.Store(n) }

// Holds is the set of packs that one writer has appended to: they must stay until what it wrote is named or dropped.
type Holds map[uint32]bool // guarded by Set.mu

// Append writes a record, whose location is not durable before the next sync.
func (ps *Set) Append(rec []byte, by *Holds) (Location, error) {
	ps.appendMu.Lock()
	defer ps.appendMu.Unlock()
	p, err := ps.holdLocked(by)
	if err != nil {
		return Location{}, err
	}
	if err := p.reserve(ps.dir, int64(len(rec)), keepFree+ps.spare.Load()); err != nil {
		return Location{}, err
	}
	// A short write leaves bytes that no index names; the next record overwrites them.
	if _, err := p.f.WriteAt(rec, p.size); err != nil {
		return Location{}, err
	}
	ps.points.At("record appended")
	ps.mu.Lock()
	defer ps.mu.Unlock()
	at := Location{p.num, p.size, int64(len(rec))}
	p.size += int64(len(rec))
	if len(ps.dirty) == 0 || ps.dirty[len(ps.dirty)-1] != p {
		ps.dirty = append(ps.dirty, p)
	}
	return at, nil
}

// holdLocked gives the pack that takes the next record, held by a writer, so that it is neither retired nor cut off;
// appendMu is held.
func (ps *Set) holdLocked(by *Holds) (*file, error) {
	for {
		ps.mu.Lock()
		p := ps.active
		if p != nil && p.size < ps.limit {
			if !(*by)[p.num] {
				if *by == nil {
					*by = Holds{}
				}
				(*by)[p.num] = true
				p.holds++
			}
			ps.mu.Unlock()
			return p, nil
		}
		ps.mu.Unlock()
		if err := ps.createLocked(); err != nil {
			return nil, err
		}
	}
}

// limitLocked gives the length from which on a new pack takes no more records; mu is held. It grows with the store: a
// pack is a small part of it, so that few live records must be moved with the garbage beside them.
func (ps *Set) limitLocked() int64 {
	total := int64(0)
	for _, p := range ps.all {
		total += p.size
	}
	return min(max(total/packShare, minSize), maxSize)
}

// Drop gives up a writer's holds. What a pack without holds has behind the last record that the index names is cut
// off, and a pack without such a record removed; it reports whether there was something.
func (ps *Set) Drop(by *Holds, log *slog.Logger) (cut bool) {
	ps.appendMu.Lock()
	defer ps.appendMu.Unlock()
	ps.mu.Lock()
	var free []*file
	for num := range *by {
		p := ps.all[num]
		if p == nil {
			continue
		}
		if p.holds--; p.holds > 0 || ps.frozen {
			continue
		}
		p.failed = nil // all that the index names was synced before that
		if p.size > p.index {
			p.size = p.index
			p.users++
			free = append(free, p)
		}
	}
	*by = nil
	ps.mu.Unlock()
	for _, p := range free {
		if err := ps.cutLocked(p); err != nil {
			log.Warn("records that were given up stay until the store is opened again", "pack", p.num, "error", err)
		}
		ps.release(p)
	}
	return len(free) > 0
}

// cutLocked takes what is behind the end of a pack off its file, or removes a pack that is empty; appendMu is held.
func (ps *Set) cutLocked(p *file) error {
	if p.size == 0 {
		return ps.Remove(p.num)
	}
	p.alloc = p.size
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

// Retire makes a pack take no more records; false if a writer still holds it. size is its final length.
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
	p.users--
	last := p.users == 0
	ps.mu.Unlock()
	if last {
		_ = p.f.Close() // it was removed; nothing depends on it
	}
}

// Read reads and parses the record at a location.
func (ps *Set) Read(at Location) (*Record, error) {
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
func (ps *Set) ReadInto(sc *Scratch, at Location) (*Record, error) {
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

// ReadRaw reads the bytes at a location.
func (ps *Set) ReadRaw(at Location) ([]byte, error) {
	var b []byte
	if at.Len <= MaxRecord+32 {
		b = make([]byte, at.Len)
	}
	return b, ps.fill(b, at)
}

// fill reads the bytes at a location into b, which has its length, unless that is impossible.
func (ps *Set) fill(b []byte, at Location) error {
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

// Reaches reports whether a pack's file reaches as far as a location.
func (ps *Set) Reaches(at Location) bool {
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
	p := ps.all[num]
	if p == nil {
		ps.mu.Unlock()
		return nil
	}
	delete(ps.all, num)
	if ps.active == p {
		ps.active = nil
	}
	ps.dirty = slices.DeleteFunc(ps.dirty, func(d *file) bool { return d == p })
	ps.mu.Unlock()
	ps.release(p)
	err := os.Remove(filepath.Join(ps.dir, Name(num)))
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

// Close gives back what was allocated ahead and closes the files. Nobody reads any more, so that mu may be held over
// it.
func (ps *Set) Close() error {
	ps.appendMu.Lock()
	defer ps.appendMu.Unlock()
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
