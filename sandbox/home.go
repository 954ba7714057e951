package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/internal/failpoint"
	"snapfs/internal/lockorder"
	"snapfs/internal/statcache"
	"snapfs/layers"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/keylock"
	"snapfs/sandbox/internal/layerstore"
	"snapfs/sandbox/internal/uppers"
	"snapfs/sandbox/internal/workfiles"
	"snapfs/sandbox/internal/yield"
)

// emptyDir is a directory of the home that stays empty.
const emptyDir = "empty"

// Options open a home.
type Options struct {
	Logger *slog.Logger // nil = discard
	// MustExist refuses to make a home that is not there.
	MustExist bool
	// Remount mounts again what was mounted when the last process that held the home ended. A workspace that cannot be
	// mounted is logged, and tried again by the next process. Without Remount, all stay unmounted, also later.
	Remount bool
	// OwnMountpoints takes charge of the directories on which workspaces are mounted. Those that were made for a mount
	// are removed with it, unless something is in them. All are immutable below the mount, where the file system can:
	// should this process end without taking leave, they take no writes until a process mounts there again.
	OwnMountpoints bool
	// Limits are what one session may have.
	Limits Limits
	// Events are how many events are kept, and for how long.
	Events EventLimits
	// IdleAfter is for how long no call and no request of a mount must have come before the home is tidied, until the
	// next one: layers are merged, garbage is collected, cold data packed anew. 0: never.
	IdleAfter time.Duration
	// Transport is that of mounts that leave it open: auto, uring or dev; empty is auto.
	Transport string
	// EnableURing switches the kernel's FUSE over io_uring on, for the whole system and until the next boot, and says
	// so in the log. Where that is impossible it is logged, and an error if Transport is uring.
	EnableURing bool
	// Keeper, if not nil, keeps the connections of mounts, so that they outlive this process: the next one goes on with
	// them, before it does anything else. What is kept and cannot be gone on with is given up.
	Keeper Keeper
	// KeepMounts has the Keeper keep the mounts that this process makes. Those that it has are gone on with in any case.
	KeepMounts bool
	// Deaths are those of the processes that had the home before and have died without giving it back, oldest first, and
	// LastLog the last lines that the last of them has logged: see RecordDeaths. A request that was being handled when
	// three of them have died by a fault, within a minute, is answered with EIO.
	Deaths  []Death
	LastLog []string

	points failpoint.Func   // is told each durable step; nil but in tests of crashes
	clock  func() time.Time // nil = time.Now

	lastSpace uint64 // as in uppers.Options
	few       int    // in the place of fewFiles, of tests; 0 = fewFiles
}

// Home is an open home directory: its store, workspaces and mounts. One process holds it at a time. Safe for concurrent
// use.
type Home struct {
	// Set by Open; what changes in these has a lock of its own.
	dir     string
	log     *slog.Logger
	lock    *homeLock
	keeper  Keeper // nil for none
	store   *chunkstore.Store
	catalog *catalog.Catalog
	uppers  *uppers.Set
	id      string // of the home
	number  uint64 // the home's id, as images have it

	ownPoints  bool        // as Options.OwnMountpoints
	ns, boot   string      // mount namespace of this process, and the kernel's run
	keepGuards atomic.Bool // mountpoints stay guarded when the home is closed
	outlive    bool        // as Options.KeepMounts
	keepMounts atomic.Bool // connections that are kept go on when the home is closed
	deaths     []Death     // as Options.Deaths
	lastLog    []string    // as Options.LastLog

	cache  *layerstore.Cache
	engine engine
	ops    keylock.Locks[lockorder.HomeOps]
	lowers keylock.Locks[lockorder.KernelLowers] // see lowerOf
	probes keylock.Locks[lockorder.KernelProbes] // see upperInUse
	// Of applies to directories: the directories by the snapshots that are needed, and why interrupted ones could not
	// be gone on with, by their ids.
	applying, stuck sync.Map
	limits          atomic.Pointer[Limits]
	points          failpoint.Func // as in Options
	metrics         *metrics
	events          eventExpiry

	accounts  *accounts
	reserve   *layers.Reserve // nil: the file system does not tell what is free
	turnStats turnStats
	captured  captureStates // of kernel mounts
	size      homeSize
	few       int // as in Options; immutable
	sources   sourceNews

	followers   followers // get every event once it is durable
	storer      *layerstore.Storer
	kernelWatch sync.Once
	abandoned   sync.Map // of abandonedUpper by number
	yielder     *yield.Yielder
	working     working
	host        *hostProbe
	merger      *layerstore.Merger
	idler       *idler
	files       *workfiles.Server
	mounts      mountReader

	ctx    context.Context // ends when Close begins
	cancel context.CancelFunc
	work   sync.WaitGroup // background goroutines: uppers, storer, merger, idler, sweeper, hostProbe

	mu      lockorder.Mutex[lockorder.Home] // guards what follows
	live    map[string]*live                // by workspace: what has a FUSE connection
	silent  silent                          // guarded by mu
	closing bool
	calls   sync.WaitGroup // Add only under mu while not closing

	closeMu  lockorder.Mutex[lockorder.HomeClose] // held by Close, before all others; guards the rest
	closed   bool
	closeErr error // of Close
}

var _ API = (*Home)(nil)

// Open opens or makes the home in dir, sweeps what a crash left and resumes background storing. A directory that is not
// a home, or not of this version, is refused and left as it was. Errors: ErrUnavailable without access,
// ErrNotFound with MustExist, ErrInvalid for another directory or version, ErrConflict while a process holds the home,
// ErrCorrupt for a damaged one.
func Open(ctx context.Context, dir string, opts Options) (*Home, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("home %s: %w", dir, err)
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if err := opts.transport(); err != nil {
		return nil, err
	}
	dir, m, made, err := prepareHome(dir, opts)
	if err != nil {
		return nil, err
	}
	kept, err := takeKept(opts.Keeper)
	if err != nil {
		return nil, errors.Join(err, removeMade(made, err))
	}
	lock, err := lockHome(dir, kept)
	if err != nil {
		return nil, errors.Join(err, removeMade(made, err))
	}
	h := &Home{dir: dir, log: opts.Logger, lock: lock, keeper: opts.Keeper, live: map[string]*live{}, silent: silent{}}
	lock.keep(h)
	for _, d := range opts.Deaths {
		h.log.Error("a daemon of this home died", "pid", d.PID, "time", d.Time, "reason", d.Reason, "served", d.Served,
			"message", d.Message)
	}
	h.engine = fuseEngine{opts.Logger, opts.Transport}
	h.points, h.ownPoints = opts.points, opts.OwnMountpoints
	h.outlive = opts.KeepMounts && opts.Keeper != nil
	h.deaths, h.lastLog = opts.Deaths, opts.LastLog
	h.few = cmp.Or(opts.few, fewFiles)
	h.readOwnNamespace()
	h.SetLimits(opts.Limits, opts.Events)
	h.metrics = newMetrics(h)
	h.accounts = newAccounts()
	h.yielder = yield.New()
	h.working, h.host = newWorking(), newHostProbe(h)
	h.sources.told = make(chan sourceChange, mostToldAtOnce)
	h.idler = newIdler(h, opts.IdleAfter)
	h.files = workfiles.NewServer(h.log)
	h.ctx, h.cancel = context.WithCancel(context.Background())
	if err := h.open(ctx, m, opts); err != nil {
		h.cancel()
		h.KeepMounts() // what is kept stays so
		if e := h.handOver(); e != nil {
			return nil, errors.Join(err, e)
		}
		err = errors.Join(err, h.closeStore(), lock.Close())
		return nil, errors.Join(err, removeMade(made, err))
	}
	pending := h.pinApplied()
	h.start()
	h.resumeAllApplied(pending)
	h.dropSnapshotViews(ctx)
	if opts.Remount {
		h.mountAgain(ctx)
	} else {
		h.giveUpAll()
	}
	return h, nil
}

// prepareHome reads the marker of dir, or makes the directory of a new home; made says what did not exist before.
func prepareHome(dir string, opts Options) (real string, m marker, made string, err error) {
	m, err = readMarker(dir)
	switch {
	case err == nil:
		if err := m.checkAttributes(dir); err != nil {
			return "", m, "", err
		}
	case errors.Is(err, ErrCorrupt), errors.Is(err, ErrInvalid):
		return "", m, "", err
	case !errors.Is(err, fs.ErrNotExist):
		return "", m, "", unusable(dir, err)
	case opts.MustExist:
		if _, err := freshHome(dir); errors.Is(err, ErrCorrupt) { // the marker is lost
			return "", m, "", err
		}
		return "", m, "", fmt.Errorf("%w: there is no snapfs home in %s", ErrNotFound, dir)
	default:
		if m, err = freshHome(dir); err != nil {
			return "", m, "", err
		}
		if made, err = makeDirs(dir); err != nil {
			return "", m, "", unusable(dir, err)
		}
	}
	// Mounts are recognised by their resolved paths, and so must the home be.
	real, err = filepath.EvalSymlinks(dir)
	if err != nil {
		return "", m, "", unusable(dir, err)
	}
	return real, m, made, nil
}

// makeDirs is MkdirAll that tells the topmost directory it made.
func makeDirs(dir string) (made string, err error) {
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Lstat(d); err == nil || !errors.Is(err, fs.ErrNotExist) {
			break
		}
		made = d
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		if made != "" {
			_ = os.RemoveAll(made) // the first error is the one to tell
		}
		return "", err
	}
	return made, nil
}

// removeMade removes what Open made before it failed, unless another process has taken it meanwhile.
func removeMade(made string, cause error) error {
	if made == "" || errors.Is(cause, ErrConflict) {
		return nil
	}
	return os.RemoveAll(made)
}

// open reads or makes what is in the home.
func (h *Home) open(ctx context.Context, m marker, opts Options) (err error) {
	fresh := m.State == "new"
	storeDir := filepath.Join(h.dir, "store")
	if fresh {
		if err := writeMarker(h.dir, m); err != nil {
			return unusable(h.dir, err)
		}
		h.points.At("marker written")
		for _, sub := range []string{"store", "uppers", "lost+found"} {
			path := filepath.Join(h.dir, sub)
			if sub == "store" {
				// The rest of an attempt that was never completed.
				if err := os.RemoveAll(path); err != nil {
					return unusable(h.dir, err)
				}
			}
			if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return unusable(h.dir, err)
			}
			h.points.At("directory made")
		}
	}
	for _, sub := range []string{"store", "uppers"} {
		if fi, err := os.Stat(filepath.Join(h.dir, sub)); err != nil || !fi.IsDir() {
			return fmt.Errorf("%w: home %s has no %s directory: put it back from a backup, or choose another home",
				ErrCorrupt, h.dir, sub)
		}
	}
	if h.accounts.since, err = makeEmptyDir(h.dir); err != nil {
		return unusable(h.dir, err)
	}
	if h.reserve, err = layers.NewReserve(filepath.Join(h.dir, "uppers")); err != nil {
		return unusable(h.dir, err)
	}
	if err := statcache.Sweep(filepath.Join(h.dir, seenDir)); err != nil {
		h.log.Warn("what imports that were interrupted have noted stays", "error", err)
	}
	h.store, err = chunkstore.Open(storeDir, chunkstore.Options{Logger: h.log, MustExist: !fresh, Lock: h.lock.store, Points: h.points})
	if err != nil {
		if errors.Is(err, chunkstore.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		if errors.Is(err, chunkstore.ErrIndex) {
			err = fmt.Errorf("%w; 'snapfs check --rebuild-index' makes the index anew", err)
		}
		if errors.Is(err, chunkstore.ErrFormat) {
			err = fmt.Errorf("%w; %s", err, mending)
		}
		return fmt.Errorf("opening the store of %s: %w", h.dir, classify(err))
	}
	h.lock.store = h.store.LockFiles()
	h.lock.keep(h)
	if err := h.checkIdentity(ctx, m, fresh); err != nil {
		return err
	}
	h.catalog, err = catalog.Open(ctx, h.store, catalog.Options{
		Clock: opts.clock, Tell: h.told, Wait: h.host.wait, Changed: h.accounts.changed,
		Points: h.points,
	})
	if err != nil {
		return err
	}
	h.uppers, err = uppers.Open(ctx, uppers.Options{
		Dir: filepath.Join(h.dir, "uppers"), Store: h.store, Records: h.catalog,
		Yield: h.yielder.Yield, Logger: h.log, Points: h.points, LastSpace: opts.lastSpace,
	})
	if err != nil {
		return err
	}
	h.id, h.number = m.ID, number64(m.ID)
	parts := layerstore.Parts{
		Catalog: h.catalog, Store: h.store, Uppers: h.uppers, Number: h.number, Logger: h.log, Points: h.points,
		Source: h.openSource,
	}
	h.cache = layerstore.NewCache(parts, idleLowers())
	h.merger = layerstore.NewMerger(parts, h.cache, func(ctx context.Context) { h.refreshAll(ctx, false) })
	h.storer = layerstore.NewStorer(parts, h.cache, h.merger, h.yielder.Yield, storerOwner{h})
	if err := h.recover(ctx); err != nil {
		return err
	}
	if fresh || m.Sum == "" {
		m.State = "ready"
		if err := writeMarker(h.dir, m); fresh && err != nil {
			return unusable(h.dir, err)
		} else if err != nil { // a sum is a safeguard only
			h.log.Warn("the marker of the home cannot be written", "error", err)
		}
		h.points.At("marker made ready")
	}
	return nil
}

// now is the time as records have it.
func (h *Home) now() time.Time { return h.catalog.Now().UTC() }

// told is given events that have just become durable.
func (h *Home) told(events []Event) {
	h.metrics.tell(events)
	h.events.count.Add(int64(len(events)))
	h.followers.tell(events)
}

// makeEmptyDir makes the directory that stands for a tree without entries, with the mode of a new workspace's root. All
// versions that have known it do so when they open a home: last is when that was.
func makeEmptyDir(home string) (last time.Time, err error) {
	path := filepath.Join(home, emptyDir)
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return last, err
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return last, err
	}
	return time.Unix(0, st.Ctim.Nano()), os.Chmod(path, 0o755) // whatever the umask
}

// checkIdentity makes sure that the store is the one that the home was made with: a new one in its place would show a
// home without workspaces.
func (h *Home) checkIdentity(ctx context.Context, m marker, fresh bool) error {
	if fresh {
		return catalog.SetHome(ctx, h.store, m.ID)
	}
	id, err := catalog.HomeOf(ctx, h.store)
	if err == nil && id != m.ID {
		return fmt.Errorf("%w: the store in %s is not the one of this home: put the right one back from a backup",
			ErrCorrupt, h.dir)
	}
	return err
}

// start starts the background goroutines; Close ends them and waits.
func (h *Home) start() {
	h.work.Go(func() { h.uppers.Run(h.ctx) })
	h.work.Go(func() { h.storer.Run(h.ctx) })
	h.work.Go(func() { h.merger.Run(h.ctx) })
	h.work.Go(h.idler.run)
	h.work.Go(h.tellSources)
	h.work.Go(h.tallyQuotas)
	h.merger.Kick()
	h.work.Go(h.expireRegularly)
}

// begin enters a call: it refuses what is cancelled or comes after Close, and ties the context to the life of the home.
// end must be called when the call returns.
func (h *Home) begin(ctx context.Context) (_ context.Context, end func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return nil, nil, fmt.Errorf("%w: the home %s is being closed", ErrUnavailable, h.dir)
	}
	h.calls.Add(1)
	h.idler.enter()
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(h.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		h.idler.leave()
		h.calls.Done()
	}, nil
}

// Dir is the home's directory, absolute and without symbolic links.
func (h *Home) Dir() string { return h.dir }

// Background is what is being done because the home is idle; "" for nothing. To ask does not end that.
func (h *Home) Background() string { return h.idler.working() }

// Mounts counts the live mounts.
func (h *Home) Mounts() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.live)
}

// Close cancels what runs, unmounts everything (by force what is in use, after a grace period) but what KeepMounts is
// about, parks background storing and gives the home back. Later calls return the first one's error. Where the disk has no room for closing,
// nothing is lost, the home is not given back, and Close may be called again.
func (h *Home) Close() error {
	h.closeMu.Lock()
	defer h.closeMu.Unlock()
	if h.closed {
		return h.closeErr
	}
	h.mu.Lock()
	h.closing = true
	h.mu.Unlock()
	h.cancel()
	h.calls.Wait()
	h.files.Close()
	if h.keepMounts.Load() {
		h.work.Wait() // before programs have to wait
	}
	if err := h.handOver(); err != nil {
		return err
	}
	err := h.unmountAll(5 * time.Second)
	h.vacateAll()
	err = errors.Join(err, h.closeStore())
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return err
	}
	h.closed, h.closeErr = true, errors.Join(err, h.mounts.close(), h.unlock())
	return h.closeErr
}

// closeStore ends background work and closes the store; also after an open that failed half-way.
func (h *Home) closeStore() error {
	h.cancel()
	h.work.Wait()
	var err error
	if h.cache != nil {
		err = h.cache.Close()
	}
	if h.store != nil {
		err = errors.Join(err, h.store.Close())
	}
	return err
}
