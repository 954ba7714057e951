package uppers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/internal/failpoint"
	"snapfs/internal/hosttree"
	"snapfs/internal/lockorder"
	"snapfs/sandbox/internal/errclass"
)

// Records are what the records of a home say of uppers. Callers may change the maps that they get.
type Records interface {
	// Uppers are those of workspaces and of sealed layers.
	Uppers() map[uint64]bool
	// StagedUppers are those of changes that are durable and not visible yet.
	StagedUppers() map[uint64]bool
	// Trash are those that no other record names: their directories are to be removed.
	Trash(ctx context.Context) (map[uint64]bool, error)
	// DropTrash records that the directory of an upper in the trash is gone.
	DropTrash(ctx context.Context, upper uint64) error
	// Images are the manifests of all images, whose inode numbers are in use.
	Images() []chunkstore.ID
}

// Options are what a Set works with.
type Options struct {
	Dir     string // holds the uppers and nothing else; exists
	Store   *chunkstore.Store
	Records Records
	// Yield is called often by background work, and may wait.
	Yield  func(context.Context)
	Logger *slog.Logger
	Points failpoint.Func // is told each durable step; nil but in tests of crashes
	// LastSpace is the greatest space that is given out; 0 stands for the greatest there is. Tests use up a few.
	LastSpace uint64
}

// Set is the uppers of a home. Safe for concurrent use.
type Set struct {
	dir     string
	store   *chunkstore.Store
	records Records
	yield   func(context.Context)
	log     *slog.Logger
	points  failpoint.Func
	last    uint64 // space

	pool    *pool
	janitor *janitor
	ordered bool // the file system has one log, see sync.go

	unsynced unsynced

	mu       lockorder.Mutex[lockorder.Uppers]
	next     uint64          // guarded by mu: space
	reserved uint64          // guarded by mu: spaces below are recorded as used
	wrapped  bool            // guarded by mu: spaces are given out for another time
	survey   bool            // guarded by mu: used must be looked up
	used     *roaring.Bitmap // guarded by mu: spaces that are not to be given out; replaced, never changed
	making   map[uint64]bool // guarded by mu: uppers without a directory yet

	wide atomic.Pointer[map[wideKey]uint64] // what numbers begin with, never changed but replaced, with mu held
}

// Open reads the records of numbers and spaces. Background work waits for Run.
func Open(ctx context.Context, o Options) (*Set, error) {
	s := &Set{
		dir: o.Dir, store: o.Store, records: o.Records, yield: o.Yield, log: o.Logger, points: o.Points,
		last: o.LastSpace, next: firstSpace, reserved: firstSpace, used: roaring.New(), making: map[uint64]bool{},
		ordered: isOrdered(o.Dir), unsynced: unsynced{uppers: map[uint64]bool{}},
	}
	if s.last == 0 {
		s.last = lastSpace
	}
	s.pool, s.janitor = newPool(s), newJanitor(s)
	err := s.store.View(ctx, func(tx *chunkstore.Tx) error {
		v, err := tx.Get(bucketMeta, keyNextUpper)
		if errors.Is(err, chunkstore.ErrNotFound) {
			return nil
		}
		if err == nil {
			err = s.decodeSpaces(v)
		}
		if err != nil {
			return err
		}
		return s.loadSpaces(tx)
	})
	if err != nil {
		return nil, errclass.Mark(err)
	}
	keepApart(s.dir)
	return s, nil
}

// Run makes uppers ready and empties the trash until ctx ends.
func (s *Set) Run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { s.pool.run(ctx) })
	both.Go(func() { s.janitor.run(ctx) })
	both.Wait()
}

// reserveLocked makes sure that the next number is recorded as used. The caller holds mu.
func (s *Set) reserveLocked(ctx context.Context) error {
	if s.next < s.reserved {
		return nil
	}
	to := min(s.next+reservedAtOnce, s.last+1)
	err := s.store.Update(ctx, true, func(tx *chunkstore.Tx) error {
		return tx.Put(bucketMeta, keyNextUpper, s.encodeSpaces(to))
	})
	if err != nil {
		return errclass.Mark(err)
	}
	s.points.At("numbers of uppers reserved")
	s.reserved = to
	return nil
}

// reservedAtOnce is how many numbers of uppers are reserved by one transaction; a crash skips what is left of them.
const reservedAtOnce = 64

// number gives a number that no upper has, and whose inode numbers no file has.
func (s *Set) number(ctx context.Context) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	space, err := s.spaceLocked(ctx)
	if err != nil {
		return 0, err
	}
	n := spaceUppers + space
	s.making[n] = true
	return n, nil
}

// made notes that an upper has its directory, or never will have it.
func (s *Set) made(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.making, n)
}

// Dir is the directory that holds the uppers.
func (s *Set) Dir() string { return s.dir }

// Root is the directory of an upper; Path and Work are the two in it that an overlay takes.
func (s *Set) Root(n uint64) string { return filepath.Join(s.dir, strconv.FormatUint(n, 10)) }
func (s *Set) Path(n uint64) string { return filepath.Join(s.Root(n), "upper") }
func (s *Set) Work(n uint64) string { return filepath.Join(s.Root(n), "work") }

// Create makes a new empty upper. It is durable only after Sync, or after a sync of the whole file system.
func (s *Set) Create(ctx context.Context) (uint64, error) {
	n, err := s.number(ctx)
	if err != nil {
		return 0, err
	}
	for wait := roomWait; ; wait *= 2 {
		err := s.make(n)
		if err == nil {
			return n, nil
		}
		err = errors.Join(err, s.Remove(n))
		if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) || wait > roomWaitMax {
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// CreateDurable is Create followed by Sync.
func (s *Set) CreateDurable(ctx context.Context) (uint64, error) {
	n, err := s.Create(ctx)
	if err != nil {
		return 0, errclass.Mark(fmt.Errorf("making an upper: %w", err))
	}
	if err := s.Sync(n); err != nil {
		return 0, errors.Join(err, s.Remove(n))
	}
	return n, nil
}

// What a program has just removed from a mount gives its room back once the kernel forgets it, a moment after rm(1) has
// ended, and the overlay has the host free it: a full disk is looked at again for about a second.
const (
	roomWait    = 5 * time.Millisecond
	roomWaitMax = 640 * time.Millisecond
)

// make makes the directories of an upper.
func (s *Set) make(n uint64) error {
	defer s.made(n)
	for _, dir := range []string{s.Root(n), s.Path(n), s.Work(n)} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		s.points.At("directory of an upper made")
	}
	// Mkdir applies the umask of the process; the root of a workspace has the mode that every other root has.
	return os.Chmod(s.Path(n), 0o755)
}

// Remake makes an upper empty that a record names and whose directory is not there, or not complete.
func (s *Set) Remake(n uint64) error { return errors.Join(s.Remove(n), s.make(n)) }

// Sync makes a new empty upper durable.
func (s *Set) Sync(n uint64) error {
	err := errors.Join(hosttree.SyncDir(s.Root(n)), hosttree.SyncDir(s.dir))
	s.points.At("upper synced")
	return err
}

// Remove removes an upper that no record names.
func (s *Set) Remove(n uint64) error {
	return s.removeSlowly(context.Background(), n, func() {})
}

// removeSlowly is Remove for background work. It calls yield often, which may wait, and ends early with ctx.
func (s *Set) removeSlowly(ctx context.Context, n uint64, yield func()) error {
	err := hosttree.RemovePathSlowly(ctx, s.Root(n), yield)
	if ctx.Err() != nil {
		return err
	}
	s.points.At("upper removed")
	s.made(n)
	s.forget(n)
	return errors.Join(err, s.dropWide(n))
}

// Exists reports whether the directory of an upper is there.
func (s *Set) Exists(n uint64) bool {
	fi, err := os.Stat(s.Path(n))
	return err == nil && fi.IsDir()
}

// Allocated counts the bytes that the files below the directory of an upper take on the host.
func (s *Set) Allocated(ctx context.Context, n uint64) (int64, error) {
	var total int64
	seen := map[uint64]bool{} // inodes with several names
	err := hosttree.Walk(ctx, s.Path(n), func(st *unix.Stat_t) error {
		if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			if seen[st.Ino] {
				return nil
			}
			seen[st.Ino] = true
		}
		total += st.Blocks * 512
		return nil
	})
	return total, err
}
