package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

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

	mu       sync.Mutex
	next     uint64 // guarded by mu
	reserved uint64 // guarded by mu: numbers below are recorded as used
}

func loadUppers(ctx context.Context, dir string, store *chunkstore.Store, points failpoint.Func) (*uppers, error) {
	u := &uppers{dir: dir, store: store, points: points, next: 1, reserved: 1}
	err := store.View(ctx, func(tx *chunkstore.Tx) error {
		v, err := tx.Get(bucketMeta, keyNextUpper)
		if errors.Is(err, chunkstore.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		n, err := strconv.ParseUint(string(v), 10, 64)
		if err != nil || n == 0 {
			return fmt.Errorf("%w: record %s/%s: %s", ErrCorrupt, bucketMeta, keyNextUpper, shown(string(v)))
		}
		u.next, u.reserved = n, n
		return nil
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
	if u.next > maxUpper {
		return fmt.Errorf("%w: all %d numbers of uppers are used up: export the workspaces into a new home", ErrUnavailable, maxUpper)
	}
	to := min(u.next+upperBlock, maxUpper+1)
	err := u.store.Update(ctx, true, func(tx *chunkstore.Tx) error {
		return tx.Put(bucketMeta, keyNextUpper, strconv.AppendUint(nil, to, 10))
	})
	if err != nil {
		return classify(err)
	}
	u.points.At("numbers of uppers reserved")
	u.reserved = to
	return nil
}

// number gives a number that no upper ever had.
func (u *uppers) number(ctx context.Context) (uint64, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.reserveLocked(ctx); err != nil {
		return 0, err
	}
	n := u.next
	u.next++
	return n, nil
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
	err := hosttree.RemovePath(u.root(n))
	u.points.At("upper removed")
	return err
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
