package chunkstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"golang.org/x/sys/unix"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/disk"
	"snapfs/chunkstore/internal/pack"
	"snapfs/internal/failpoint"
)

// RebuildOptions are for RebuildIndex.
type RebuildOptions struct {
	Logger   *slog.Logger                      // nil = discard
	Progress func(stage string, done, n int64) // may be nil

	points failpoint.Func // is called at each step that changes files; only in tests of crashes
}

// Stages of a rebuild.
const (
	StagePacks = "read packs"   // counts bytes
	StageIndex = "index chunks" // counts chunks
)

// Rebuilt says what RebuildIndex found.
type Rebuilt struct {
	Manifests int64
	Records   int64 // callers' values
	Chunks    int64
	// chunks in packs that no manifest needs: they were deleted or never committed, and are left out
	Unneeded int64
	Problems []Problem // what is damaged, and the manifests that lose data by it
	Old      string    // where the old index and journals are kept, if there are problems
}

// Names of the index while it is rebuilt, and after that.
const (
	newIndexName = "index.new"
	oldIndexName = "index.old"
)

// RebuildIndex rebuilds the index of a store from its packs and its journal, whatever is left of the old index, and
// replaces it. No process may have the store open. What was deleted does not come back: the journal lists the
// manifests, and chunks that they do not need are left out. It needs some 150 bytes of memory per chunk, and reads all
// packs. If it fails or is interrupted, the store is unchanged.
func RebuildIndex(ctx context.Context, dir string, opts RebuildOptions) (Rebuilt, error) {
	if opts.Progress == nil {
		opts.Progress = func(string, int64, int64) {}
	}
	s := newStore(dir, Options{Logger: opts.Logger, MustExist: true})
	b := &rebuilder{
		s: s, opts: opts, pages: map[uint64]*page{}, copies: map[uint64][]slot{}, unsure: map[*located]bool{},
	}
	err := b.run(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("rebuild index: %w", err), b.dropJournal(),
			os.RemoveAll(filepath.Join(dir, newIndexName)))
	}
	return b.res, errors.Join(err, s.lock.release())
}

// dropJournal removes the new index's journal, unless that index is in place: beside it, the old one would seem to be
// older than it is.
func (b *rebuilder) dropJournal() error {
	if b.placed || b.s.state.journal == 0 {
		return nil
	}
	return os.Remove(filepath.Join(b.s.packDir(), journalName(b.s.state.journal)))
}

type rebuilder struct {
	s      *Store
	opts   RebuildOptions
	res    Rebuilt
	placed bool // the new index has replaced the old one

	ends    map[uint32]int64  // of the last needed record of each pack
	pages   map[uint64]*page  // all chunks; later, those needed
	copies  map[uint64][]slot // of chunks that lie in several records, the best first
	unsure  map[*located]bool // records that may be part of what a damaged one held
	found   *roaring64.Bitmap // chunks in pages
	lists   []*chunkList      // readable manifests
	journal *replay
	damage  []Problem // of packs; no problem unless a manifest needs it

	sums     []hash            // of the chunks of found, in order of their numbers
	lost     *roaring64.Bitmap // chunks that cannot be read or are wrong
	bases    *roaring64.Bitmap // wrong chunks that right ones need
	doubtful *roaring64.Bitmap // chunks of which one is wrong, but it is unknown which
	vouched  *roaring64.Bitmap // chunks in records with a right digest
	sketched []*fresh          // sketches of the newest chunks
}

func (b *rebuilder) run(ctx context.Context) error {
	s := b.s
	version, err := s.checkFormat()
	if errors.Is(err, ErrFormat) && s.isStore() {
		version, err = 0, nil
	}
	if err != nil {
		return err
	}
	if s.lock, err = lockStore(s.dir, nil); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{b.readJournals, b.readPacks, b.pick, b.choose} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if version == 0 {
		if err := s.create(); err != nil {
			return err
		}
		version = formatVersion
	}
	if err := s.raiseFormat(version); err != nil { // the new index and journal have forms of this version
		return err
	}
	b.opts.points.At("version raised")
	if err := b.write(ctx); err != nil {
		return err
	}
	return b.swap()
}

// readJournals reads the newest complete journal. If there is none, it combines all journals.
func (b *rebuilder) readJournals(context.Context) error {
	dir := b.s.packDir()
	nums, err := journals(dir)
	if err != nil {
		return err
	}
	slices.Sort(nums)
	var all []byte
	var problems []Problem
	for _, num := range slices.Backward(nums) {
		data, err := os.ReadFile(filepath.Join(dir, journalName(num)))
		if err != nil {
			return err
		}
		var bad []Problem
		r := replayJournal(data, b.s.codec, func(off, n int64, err error) {
			if off+n < int64(len(data)) || n == 0 { // else it is the end of what a crash interrupted
				bad = append(bad, Problem{Where: journalName(num), What: fmt.Sprintf("at %d: %v", off, err)})
			}
		})
		if r.whole {
			b.journal, b.res.Problems = r, bad
			return nil
		}
		problems = append(bad, problems...)
		all = append(slices.Clone(data[min(pack.HeaderSize, len(data)):]), all...)
	}
	b.journal = replayJournal(append(make([]byte, pack.HeaderSize), all...), b.s.codec, func(int64, int64, error) {})
	if len(b.journal.values) == 0 {
		return b.withoutJournal(dir)
	}
	b.res.Problems = append(problems, Problem{Where: packsName, What: "no journal is complete: records may be missing"})
	return nil
}

// withoutJournal returns nil if the store cannot have had manifests.
func (b *rebuilder) withoutJournal(dir string) error {
	names, err := os.ReadDir(dir)
	if err == nil && len(names) > 0 {
		err = corrupt.Errorf("%s: no journal can be read: what the packs hold is not known", dir)
	}
	return err
}

// readPacks finds the records of all packs.
func (b *rebuilder) readPacks(ctx context.Context) error {
	dir := b.s.packDir()
	names, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	total, done := int64(0), int64(0)
	sizes := map[uint32]int64{}
	for _, e := range names {
		num, ok := pack.ParseName(e.Name())
		if !ok {
			continue
		}
		fi, err := e.Info()
		if err != nil {
			return err
		}
		sizes[num] = fi.Size()
		total += fi.Size()
	}
	b.found = roaring64.New()
	nums := make([]uint32, 0, len(sizes))
	for num := range sizes {
		nums = append(nums, num)
	}
	slices.Sort(nums)
	for _, num := range nums {
		if err := ctx.Err(); err != nil {
			return err
		}
		b.opts.Progress(StagePacks, done, total)
		data, err := os.ReadFile(filepath.Join(dir, pack.Name(num)))
		if err != nil {
			return err
		}
		pack.Scan(data, func(off int64, r *pack.Record, sure bool) {
			b.addRecord(num, off, r, sure)
		}, func(off, n int64) {
			if pack.HasHole(data, off, n) {
				return // what was live there, choose misses
			}
			b.damage = append(b.damage,
				Problem{Where: pack.Name(num), What: fmt.Sprintf("%d bytes at %d are no record", n, off)})
		})
		done += sizes[num]
	}
	b.opts.Progress(StagePacks, total, total)
	return nil
}

// addRecord adds the chunks of a record.
func (b *rebuilder) addRecord(num uint32, off int64, r *pack.Record, sure bool) {
	if r.Kind == pack.Journal {
		return
	}
	rec := &located{
		Location: pack.Location{Pack: num, Off: off, Len: r.Size}, delta: r.Kind == pack.Delta, gen: r.Gen,
		bases: r.Bases,
	}
	if !sure {
		b.unsure[rec] = true
	}
	for _, m := range r.Members {
		if m.Num >= endNumber {
			continue // no store gives out such a number
		}
		no, i := pageOf(m.Num)
		pg := b.pages[no]
		if pg == nil {
			pg = &page{}
			b.pages[no] = pg
		}
		sl := slot{rec, m.Len}
		if before := pg.slots[i]; before.rec != nil {
			b.addCopy(m.Num, before, sl)
		}
		pg.slots[i] = sl
		b.found.Add(m.Num)
	}
}

func (b *rebuilder) locate(num uint64) (*located, int, error) {
	no, i := pageOf(num)
	if pg := b.pages[no]; pg != nil && pg.slots[i].rec != nil {
		return pg.slots[i].rec, pg.slots[i].len, nil
	}
	return nil, 0, fmt.Errorf("chunk %d: %w", num, errNoChunk)
}

// choose keeps the chunks that manifests need.
func (b *rebuilder) choose(ctx context.Context) error {
	named := roaring64.New()
	for key := range b.journal.values {
		if key[0] != keyManifest || len(key) != len(manifestKey(0)) {
			continue
		}
		id := ID(binary.BigEndian.Uint64([]byte(key[1:])))
		m, err := assembleManifest(id, b.s.codec, func(key []byte) ([]byte, error) {
			v, ok := b.journal.values[string(key)]
			if !ok {
				return nil, ErrNotFound
			}
			return v, nil
		})
		if err != nil {
			b.res.Problems = append(b.res.Problems, Problem{journalName(0), err.Error(), []ID{id}})
			continue
		}
		b.lists = append(b.lists, m)
		named.Or(m.bitmap())
	}
	slices.SortFunc(b.lists, func(x, y *chunkList) int { return int(int64(x.ID) - int64(y.ID)) })
	need := named.Clone()
	for front := named; !front.IsEmpty(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		next := roaring64.New()
		for it := front.Iterator(); it.HasNext(); {
			rec, _, err := b.locate(it.Next())
			if err != nil {
				continue // lost, see dropLost
			}
			for _, base := range rec.bases {
				// A record that may be forged must not name a number that uses up the others.
				known := base < endNumber && (base < b.journal.lease || !b.unsure[rec])
				if known && need.CheckedAdd(base) {
					next.Add(base)
				}
			}
		}
		front = next
	}
	unneeded := roaring64.AndNot(b.found, need)
	b.res.Unneeded = int64(unneeded.GetCardinality())
	for it := unneeded.Iterator(); it.HasNext(); {
		b.drop(it.Next())
	}
	b.found = need
	return nil
}

// drop leaves a chunk out.
func (b *rebuilder) drop(num uint64) {
	no, i := pageOf(num)
	pg := b.pages[no]
	if pg == nil {
		return
	}
	pg.slots[i] = slot{}
	if pg.empty() {
		delete(b.pages, no)
	}
}

// write writes the new index.
func (b *rebuilder) write(ctx context.Context) error {
	s := b.s
	index := filepath.Join(s.dir, newIndexName)
	if err := os.RemoveAll(index); err != nil {
		return err
	}
	// The reserve of the old index makes room for the new one.
	if err := (&logGuard{dir: filepath.Join(s.dir, indexName)}).freeReserve(); err != nil &&
		!errors.Is(err, unix.ENOTDIR) {
		return err
	}
	count, txns, err := openCounter(filepath.Join(s.dir, counterName), false)
	if err != nil {
		return err
	}
	// The new index must not be counted before it replaces the old one: after a crash the old one would seem to have
	// lost transactions.
	if err := count.close(); err != nil {
		return err
	}
	lock := s.lock
	s.lock = nil // run's caller unlocks
	defer func() { s.lock = lock }()
	s.guard.dir = index
	if s.db, err = openBadger(index, s.opts, s.log, &s.merges); err != nil {
		return errors.Join(err, s.release())
	}
	b.countEnds()
	if s.packs, err = pack.Open(s.packDir(), b.ends, true, nil); err != nil {
		return errors.Join(err, s.release())
	}
	s.journal.dir, s.journal.off = s.packDir(), true
	s.state.txns = max(txns, b.journal.txns)
	err = b.fill(ctx)
	return errors.Join(err, s.release())
}

// countEnds determines how much of each pack is needed.
func (b *rebuilder) countEnds() {
	b.ends = map[uint32]int64{}
	for _, pg := range b.pages {
		for i := range pg.slots {
			if r := pg.slots[i].rec; r != nil {
				b.ends[r.Pack] = max(b.ends[r.Pack], r.End())
			}
		}
	}
	for num, list := range b.copies {
		if at, _, err := b.locate(num); err != nil || !b.unsure[at] {
			continue
		}
		for _, sl := range list { // isSure compares them
			b.ends[sl.rec.Pack] = max(b.ends[sl.rec.Pack], sl.rec.End())
		}
	}
}

// fill writes the contents of the index.
func (b *rebuilder) fill(ctx context.Context) error {
	s := b.s
	if err := b.hash(ctx); err != nil {
		return err
	}
	b.checkDigests()
	if err := b.chunks(ctx); err != nil {
		return err
	}
	b.report()
	top := b.journal.lease
	for _, m := range b.lists {
		s.state.nextID = max(s.state.nextID, m.ID)
		for _, r := range m.runs {
			top = max(top, r.first+r.count) // a number that a manifest names must not be assigned again, lost or not
		}
	}
	if !b.found.IsEmpty() {
		top = max(top, b.found.Maximum()+1)
	}
	nums, err := journals(s.journal.dir)
	if err != nil {
		return err
	}
	for _, num := range nums {
		s.journal.last = max(s.journal.last, num)
	}
	if err := b.values(ctx); err != nil {
		return err
	}
	packs := slices.Collect(maps.Keys(b.ends))
	for part := range slices.Chunk(packs, lastEntries) {
		ends := map[uint32]int64{}
		for _, num := range part {
			ends[num] = b.ends[num]
		}
		if err := s.update(func(t *writeTxn) error { return t.extendPacks(ends) }); err != nil {
			return err
		}
	}
	if err := s.update(func(t *writeTxn) error {
		t.state.nextID = max(t.state.nextID, b.journal.nextID)
		t.state.lease = top
		t.state.packed = top // it is unknown what was repacked: it is not done again
		for _, m := range b.lists {
			t.state.logical += m.Size
		}
		return nil
	}); err != nil {
		return err
	}
	s.writeMu.Lock()
	s.journal.off = false
	s.writeMu.Unlock()
	return s.rewriteJournal(ctx, false)
}

// roomFor reports whether a transaction takes a whole page of chunks.
func (b *rebuilder) roomFor(t *writeTxn, no uint64) bool {
	const each = 1 + hashLen + 10 + sketchSize
	pg := b.pages[no]
	return pg == nil || t.room(pageChunks+1, pageChunks*each+pageCost(no, pg))
}

// values writes manifests and records.
func (b *rebuilder) values(ctx context.Context) error {
	s := b.s
	keys := make([]string, 0, len(b.journal.values))
	for k := range b.journal.values {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for len(keys) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.update(func(t *writeTxn) error {
			for len(keys) > 0 && t.room(1, int64(len(keys[0])+len(b.journal.values[keys[0]]))) {
				k := keys[0]
				if err := t.set([]byte(k), b.journal.values[k]); err != nil {
					return err
				}
				switch k[0] {
				case keyManifest:
					t.state.manifests++
				case keyValue:
					b.res.Records++
				}
				keys = keys[1:]
			}
			return nil
		}); err != nil {
			return err
		}
	}
	b.res.Manifests = s.state.manifests
	return nil
}

// swap replaces the old index. If something was damaged, the old one is kept with its journals: the new journal has
// less.
func (b *rebuilder) swap() error {
	dir := b.s.dir
	index, next, old := filepath.Join(dir, indexName), filepath.Join(dir, newIndexName),
		filepath.Join(dir, oldIndexName)
	if err := errors.Join(os.RemoveAll(old), disk.SyncDir(next)); err != nil {
		return err
	}
	b.opts.points.At("index rebuilt")
	err := unix.Renameat2(unix.AT_FDCWD, next, unix.AT_FDCWD, index, unix.RENAME_EXCHANGE)
	b.opts.points.At("index exchanged")
	switch {
	case err == nil:
		b.placed = true
		err = os.Rename(next, old)
	case errors.Is(err, unix.ENOENT):
		err = os.Rename(next, index)
		b.placed = err == nil
	// the file system cannot exchange; a crash between the two renames leaves no index
	case errors.Is(err, unix.EINVAL):
		if err = os.Rename(index, old); err == nil {
			err = os.Rename(next, index)
			b.placed = err == nil
		}
	}
	if err := errors.Join(err, disk.SyncDir(dir)); err != nil {
		return err
	}
	b.opts.points.At("index in place")
	keep := len(b.res.Problems) > 0
	if keep {
		b.res.Old = old
		if err := os.MkdirAll(old, 0o700); err != nil {
			return err
		}
	} else if err := os.RemoveAll(old); err != nil {
		return err
	}
	packDir := filepath.Join(dir, packsName)
	nums, err := journals(packDir)
	for _, num := range nums {
		name := journalName(num)
		switch {
		case num == b.s.state.journal:
		case keep:
			err = errors.Join(err, os.Rename(filepath.Join(packDir, name), filepath.Join(old, name)))
		default:
			err = errors.Join(err, os.Remove(filepath.Join(packDir, name)))
		}
	}
	return err
}
