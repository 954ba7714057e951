package layers

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/squashfs"
)

// Captured tells how well Capture has met one moment.
type Captured struct {
	// Quiet says that no name came, went or moved while they were looked at: they are those of one moment. Else names that
	// moved meanwhile may be missing, or be there twice.
	Quiet bool
	// Torn lists files, by their paths in the upper, that were written to whenever they were read: each may have some of
	// what was written and not the rest. It has the first of them, TornFiles is how many there are.
	Torn      []string
	TornFiles int
	// Unread is how many files were taken from the store as the capture before had noted them.
	Unread int
	// Same says that nothing has changed since StoreOptions.Since: nothing was stored.
	Same bool
	// State is for StoreOptions.Since of the next capture; nil where change times cannot be relied on.
	State *CaptureState
}

const (
	captureRounds = 8        // how often names are looked at until nothing has moved meanwhile
	captureTries  = 3        // how often a file is read until nobody has written to it meanwhile
	captureWhole  = 1 << 20  // the longest file that is read into memory
	captureRoom   = 32 << 20 // bytes of contents that are read along with the names
	captureChunk  = 256      // names that one goroutine looks at in a row
	maxTorn       = 32       // paths in Captured.Torn
)

// Capture stores what the upper of a kernel overlayfs has now, while programs write to it, as an image over the stack
// below, topmost first: the image that Store would make of it if it were sealed. upper is opened by OpenSealed, with what
// it will be opened with when it is sealed, so that inode numbers stay. Of StoreOptions, Seen makes a capture after
// another one fast, and Scratch has large files be whole. It commits together with the records fn writes.
//
// With StoreOptions.Since it stores what has changed since then if a layer can tell that, as an image over the stack Last;
// onLast says so to fn.
func Capture(
	ctx context.Context, s *chunkstore.Store, upper *Lower, below []*Lower, opts StoreOptions,
	fn func(tx *chunkstore.Tx, m chunkstore.Manifest, onLast bool) error,
) (chunkstore.Manifest, Captured, error) {
	for {
		m, told, err := captureOnce(ctx, s, upper, below, opts, fn)
		switch {
		case (errors.Is(err, errWhole) || errors.Is(err, errNoted)) && opts.Since != nil && ctx.Err() == nil:
			opts.Since = nil
		case errors.Is(err, errNoted) && opts.Seen != nil && ctx.Err() == nil:
			opts.Seen = nil
		default:
			return m, told, err
		}
	}
}

func captureOnce(
	ctx context.Context, s *chunkstore.Store, upper *Lower, below []*Lower, opts StoreOptions,
	fn func(tx *chunkstore.Tx, m chunkstore.Manifest, onLast bool) error,
) (chunkstore.Manifest, Captured, error) {
	fail := func(err error) (chunkstore.Manifest, Captured, error) {
		return chunkstore.Manifest{}, Captured{}, fmt.Errorf("capture: %w", err)
	}
	if upper.dir == nil || UserAttributes() {
		return fail(errors.New("it is no upper of a kernel overlayfs"))
	}
	v, err := openView(append([]*Lower{upper}, below...))
	if err != nil {
		return fail(err)
	}
	defer func() { _ = v.Close() }() // it cannot fail
	k := &sink{tables: map[string]chunkstore.Range{}}
	c := &capture{o: v.o, upper: upper.dir, sink: k, scratch: opts.Scratch, since: opts.Since, begun: coarseNow()}
	c.room.Store(captureRoom)
	var fs unix.Statfs_t
	if err := unix.Fstatfs(upper.dir.root, &fs); err != nil {
		return fail(err)
	}
	if opts.Since != nil {
		opts.Seen = opts.SeenSince
	}
	if c.exact = exactTimes[int64(fs.Type)]; c.exact {
		c.fine = opts.Scratch != "" && isFine(opts.Scratch)
		if c.recaller = newRecaller(upper.dir.root, opts, k); c.recaller != nil {
			c.recaller.fine = c.fine
		}
	}
	defer c.closeFile() // of an entry that was not read
	if opts.Since == nil {
		err = c.predictTables()
	} else {
		if c.last, err = openView(opts.Last); err != nil {
			return fail(err)
		}
		defer func() { _ = c.last.Close() }() // it cannot fail
		if err = c.scan(ctx); err == nil {
			c.told.Same, err = c.planChanges()
		}
	}
	if err != nil {
		return fail(err)
	}
	if c.told.Same {
		c.told.State = c.state()
		return chunkstore.Manifest{}, c.told, nil
	}
	read := false
	m, err := storeSource(ctx, s, c, k, opts, false, func(tx *chunkstore.Tx, m chunkstore.Manifest) error {
		read = true
		if fn == nil {
			return nil
		}
		return fn(tx, m, opts.Since != nil)
	})
	if read { // fn may say that it has the same image
		c.told.State = c.state()
	}
	return m, c.told, err
}

// predictTables takes the tables of the topmost layer below that has some for earlier versions.
func (c *capture) predictTables() error {
	for _, l := range c.o.stack[1:] {
		if err := c.sink.predictTables(l); err != nil || len(c.sink.tables) > 0 {
			return err
		}
	}
	return nil
}

// capture is one reading of an upper that is written to. First the names are looked at, and short files read that nobody
// has noted, until no directory has changed meanwhile; then it is the source of an image. Fields are immutable unless
// they say otherwise.
type capture struct {
	o        *Overlay // the view, with the upper on top
	upper    *dirStore
	sink     *sink
	scratch  string        // StoreOptions.Scratch
	recaller *recaller     // nil: all files are read
	exact    bool          // change times can be relied on
	fine     bool          // as recaller.fine
	begun    int64         // by the clock of change times
	since    *CaptureState // nil: the image is of the whole upper
	last     *view         // of StoreOptions.Last; nil as since

	room atomic.Int64 // bytes of contents that may still be read along with the names
	root *captureDir  // set by scan

	told Captured      // of the goroutine that scans, and later writes, the image
	file squashfs.File // of the entry that was described last; nil: it has none, or is open
	// noClones says that the host makes no copies that share blocks.
	noClones bool
	names    map[uint64]*keptStat // inodes with several names that were read: of their first ones
	links    map[uint64]uint32    // inodes with several names: how many of them the image does not have
}

// tear notes a file that is not whole.
func (c *capture) tear(path string) {
	if c.told.TornFiles++; len(c.told.Torn) < maxTorn {
		c.told.Torn = append(c.told.Torn, path)
	}
}
