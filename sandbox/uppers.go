package sandbox

import (
	"context"
	"errors"
	"fmt"
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
)

// upperBlock is how many numbers of uppers are reserved with one record; a crash skips what is left of them.
const upperBlock = 64

// uppers makes and finds the numbered upper directories of a home.
type uppers struct {
	dir   string
	store *chunkstore.Store

	points failpoint.Func // as in Options

	inUse func(context.Context) (*roaring.Bitmap, error) // Home.spacesInUse

	mu       sync.Mutex
	next     uint64          // guarded by mu: space
	reserved uint64          // guarded by mu: spaces below are recorded as used
	last     uint64          // guarded by mu: space
	wrapped  bool            // guarded by mu: spaces are given out again
	survey   bool            // guarded by mu: used must be looked up
	used     *roaring.Bitmap // guarded by mu: spaces that are not to be given out; replaced, never changed
	making   map[uint64]bool // guarded by mu: uppers without a directory yet

	wide atomic.Pointer[map[wideKey]uint64] // what numbers begin with, never changed but replaced, with mu held
}

func loadUppers(ctx context.Context, dir string, store *chunkstore.Store, points failpoint.Func) (*uppers, error) {
	u := &uppers{
		dir: dir, store: store, points: points, next: firstSpace, reserved: firstSpace, last: lastSpace, used: roaring.New(),
		making: map[uint64]bool{},
	}
	err := store.View(ctx, func(tx *chunkstore.Tx) error {
		v, err := tx.Get(bucketMeta, keyNextUpper)
		if errors.Is(err, chunkstore.ErrNotFound) {
			return nil
		}
		if err == nil {
			err = u.decodeSpaces(v)
		}
		if err != nil {
			return err
		}
		return u.loadSpaces(tx)
	})
	if err != nil {
		return nil, classify(err)
	}
	return u, nil
}

// reserve makes sure that the next number is recorded as used. The caller holds mu.
func (u *uppers) reserveLocked(ctx context.Context) error {
	if u.next < u.reserved {
		return nil
	}
	to := min(u.next+upperBlock, u.last+1)
	err := u.store.Update(ctx, true, func(tx *chunkstore.Tx) error {
		return tx.Put(bucketMeta, keyNextUpper, u.encodeSpaces(to))
	})
	if err != nil {
		return classify(err)
	}
	u.points.At("numbers of uppers reserved")
	u.reserved = to
	return nil
}

// number gives a number that no upper has, and whose inode numbers no file has.
func (u *uppers) number(ctx context.Context) (uint64, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	space, err := u.spaceLocked(ctx)
	if err != nil {
		return 0, err
	}
	n := spaceUppers + space
	u.making[n] = true
	return n, nil
}

// made notes that an upper has its directory, or never will have it.
func (u *uppers) made(n uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.making, n)
}

// root is the directory of an upper, path and work what the overlay takes.
func (u *uppers) root(n uint64) string { return filepath.Join(u.dir, strconv.FormatUint(n, 10)) }
func (u *uppers) path(n uint64) string { return filepath.Join(u.root(n), "upper") }
func (u *uppers) work(n uint64) string { return filepath.Join(u.root(n), "work") }

// create makes a new empty upper. It is durable only after sync, or after a sync of the whole file system.
func (u *uppers) create(ctx context.Context) (uint64, error) {
	n, err := u.number(ctx)
	if err != nil {
		return 0, err
	}
	for wait := roomWait; ; wait *= 2 {
		err := u.make(n)
		if err == nil {
			return n, nil
		}
		err = errors.Join(err, u.remove(n))
		if !errors.Is(err, unix.ENOSPC) || wait > roomWaitMax {
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// What a program has just removed from a mount gives its room back once the kernel forgets it, a moment after rm(1) has
// ended, and the overlay has the host free it: a full disk is looked at again for about a second.
const (
	roomWait    = 5 * time.Millisecond
	roomWaitMax = 640 * time.Millisecond
)

// make makes the directories of an upper.
func (u *uppers) make(n uint64) error {
	defer u.made(n)
	for _, dir := range []string{u.root(n), u.path(n), u.work(n)} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		u.points.At("directory of an upper made")
	}
	// Mkdir applies the umask of the process; the root of a workspace has the mode that every other root has.
	return os.Chmod(u.path(n), 0o755)
}

// sync makes a new empty upper durable.
func (u *uppers) sync(n uint64) error {
	err := errors.Join(fsyncDir(u.root(n)), fsyncDir(u.dir))
	u.points.At("upper synced")
	return err
}

// remove removes an upper that no record names.
func (u *uppers) remove(n uint64) error {
	return u.removeSlowly(context.Background(), n, func() {})
}

// removeSlowly is remove for background work. It calls giveWay often, which may wait, and ends early with ctx.
func (u *uppers) removeSlowly(ctx context.Context, n uint64, giveWay func()) error {
	err := hosttree.RemovePathSlowly(ctx, u.root(n), giveWay)
	if ctx.Err() != nil {
		return err
	}
	u.points.At("upper removed")
	u.made(n)
	return errors.Join(err, u.dropWide(n))
}

// exists reports whether the directory of an upper is there.
func (u *uppers) exists(n uint64) bool {
	fi, err := os.Stat(u.path(n))
	return err == nil && fi.IsDir()
}

// empty reports whether nothing was ever written into the upper directory called name.
func (u *uppers) empty(name string) bool {
	for _, sub := range []string{"upper", "work"} {
		entries, err := os.ReadDir(filepath.Join(u.dir, name, sub))
		if err != nil && !errors.Is(err, os.ErrNotExist) || len(entries) > 0 && sub == "upper" {
			return false
		}
	}
	return true
}

// syncAll makes everything on the file system of the home durable, what is written to uppers included.
func (u *uppers) syncAll() error {
	d, err := os.Open(u.dir)
	if err != nil {
		return err
	}
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return errors.Join(fmt.Errorf("syncfs %s: %w", u.dir, err), d.Close())
	}
	u.points.At("file system synced")
	return d.Close()
}

// allocated counts the bytes that the files below the directory of an upper take on the host.
func (u *uppers) allocated(ctx context.Context, n uint64) (int64, error) {
	var total int64
	seen := map[uint64]bool{} // inodes with several names
	err := hosttree.Walk(ctx, u.path(n), func(st *unix.Stat_t) error {
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
