package extract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/internal/hosttree"
	"snapfs/squashfs"
)

const (
	// markerName is the name of the marker. A tree with such a name in its root gets a marker with a number appended.
	markerName    = ".snapfs-restore"
	markerVersion = 1
	maxMarker     = 4096 // bytes
	// lostFound is in a fresh file system.
	lostFound = "lost+found"
)

// Errors of Open and Extract, beside those of the host.
var (
	// ErrBusy is for a target in which another extraction works.
	ErrBusy = errors.New("another restore is writing there")
	// ErrNotEmpty is for a target with files that are not of an interrupted extraction.
	ErrNotEmpty = errors.New("the directory is not empty")
	// ErrOther is for a target with what an extraction of another snapshot has left.
	ErrOther = errors.New("the directory has an interrupted restore of another snapshot")
)

// errNoMarker is for a target that has something, and no marker.
var errNoMarker = errors.New("no marker")

// marker is the contents of the file of that name.
type marker struct {
	Version  int    `json:"version"`
	Snapshot string `json:"snapshot"`
	Boot     string `json:"boot"` // boot id of the machine that wrote the files
}

// Target is a directory that a tree is written into. For one goroutine.
type Target struct {
	path     string
	dir      *os.File
	parent   *os.File // of a directory that Open has made
	snapshot string
}

// Open opens the directory that a snapshot is to be written into, and makes it if only the last element of the path is
// missing. path is absolute, and none of its elements is a symbolic link.
func Open(path, snapshot string) (*Target, error) {
	t := &Target{path: path, snapshot: snapshot}
	var err error
	if t.dir, err = openPath(path); errors.Is(err, unix.ENOENT) {
		up, name := splitPath(path)
		if t.parent, err = openPath(up); err != nil {
			return nil, err
		}
		if err = unix.Mkdirat(int(t.parent.Fd()), name, 0o700); err == nil {
			t.dir, err = openPath(path)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), t.closeParent())
	}
	return t, nil
}

func splitPath(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 1)], path[i+1:]
}

// openPath opens a directory. A symbolic link anywhere in the path was put there meanwhile, and is not followed.
func openPath(path string) (*os.File, error) { return hosttree.Open(path, openDir) }

func (t *Target) closeParent() error {
	if t.parent == nil {
		return nil
	}
	return t.parent.Close()
}

// Close closes the target. The directory stays.
func (t *Target) Close() error { return errors.Join(t.dir.Close(), t.closeParent()) }

// Extract writes the tree of src into the target: all of it, or what is missing after an interrupted call for the same
// snapshot. After an error, and when ctx ends, the target has a part of the tree and the marker, with which the next
// call continues; if nothing was written, it is as empty as before, and is removed if Open has made it. What it has for a
// mode and ACLs itself is lost in any case. The tree must be the same each time. A target that has the whole tree already
// is left as it is: all its files are kept.
func (t *Target) Extract(ctx context.Context, src squashfs.Source, o Options) (r Result, err error) {
	if o.Do != nil {
		src = apart(src)
	}
	err = o.do(func() (err error) { r, err = t.extract(ctx, src, o); return err })
	return r, err
}

func (t *Target) extract(ctx context.Context, src squashfs.Source, o Options) (Result, error) {
	root, err := src.Root(ctx)
	if err != nil {
		return Result{}, err
	}
	if root.Attr.Mode&unix.S_IFMT != unix.S_IFDIR {
		return Result{}, fmt.Errorf("%w: the root is no directory", squashfs.ErrCorrupt)
	}
	names, err := src.Names(ctx, root)
	if err != nil {
		return Result{}, err
	}
	x := &extraction{src: src, opts: o, root: int(t.dir.Fd()), reserved: freeName(names)}
	mark, err := t.claim(x)
	if errors.Is(err, errNoMarker) {
		return t.compare(ctx, x, root, names)
	}
	if err != nil {
		return Result{}, err
	}
	top, err := x.run(ctx, root, names)
	if err != nil {
		return x.result(), errors.Join(err, mark.Close(), t.undo(x))
	}
	return x.result(), t.complete(x, top, mark)
}

// compare ends the extraction into a target that has the whole tree already. It refuses any other that is not empty.
func (t *Target) compare(ctx context.Context, x *extraction, root *squashfs.Entry, names []string) (Result, error) {
	whole, err := x.isWhole(ctx, root, names)
	if err == nil && !whole {
		err = ErrNotEmpty
	}
	if err == nil && !x.opts.NoSync {
		err = unix.Syncfs(x.root)
	}
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", t.path, err)
	}
	return x.result(), t.seal(x, root)
}

// freeName gives the marker a name that the tree does not have.
func freeName(names []string) string {
	name := markerName
	for i := 1; slices.Contains(names, name); i++ {
		name = markerName + "-" + strconv.Itoa(i)
	}
	return name
}

// claim locks the marker of an interrupted extraction, or makes one.
func (t *Target) claim(x *extraction) (*os.File, error) {
	mark, err := t.openMarker(x, unix.O_RDWR)
	fresh := errors.Is(err, unix.ENOENT)
	if fresh {
		there, err := readNames(x.root)
		if err != nil {
			return nil, err
		}
		there = slices.DeleteFunc(there, func(name string) bool { return name == lostFound })
		if len(there) > 0 {
			return nil, errNoMarker
		}
		mark, err = t.openMarker(x, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
		if errors.Is(err, unix.EEXIST) {
			return nil, fmt.Errorf("%s: %w", t.path, ErrBusy)
		}
		if err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	if err := t.readMarker(x, mark, fresh); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", t.path, err), mark.Close())
	}
	if err := t.writeMarker(x, mark); err != nil {
		return nil, errors.Join(err, mark.Close())
	}
	return mark, nil
}

func (t *Target) openMarker(x *extraction, flags int) (*os.File, error) {
	fd, err := retry(func() (int, error) {
		return unix.Openat(x.root, x.reserved, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.path+"/"+x.reserved, err)
	}
	return os.NewFile(uintptr(fd), t.path+"/"+x.reserved), nil
}

// readMarker locks the marker and finds out what is in the target.
func (t *Target) readMarker(x *extraction, mark *os.File, fresh bool) error {
	if err := unix.Flock(int(mark.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return ErrBusy
	} else if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(mark.Fd()), &st); err != nil {
		return err
	}
	if st.Nlink == 0 {
		return ErrBusy // it has just been completed
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink > 1 { // it would be written to
		return fmt.Errorf("%w: %s is not what a restore makes", ErrNotEmpty, x.reserved)
	}
	if fresh {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(mark, maxMarker))
	if err != nil {
		return err
	}
	if len(text) == 0 { // interrupted before anything was written
		there, err := readNames(x.root)
		there = slices.DeleteFunc(there, func(name string) bool { return name == lostFound || name == x.reserved })
		if err == nil && len(there) > 0 {
			err = ErrNotEmpty
		}
		return err
	}
	var m marker
	// Behind it there may be the end of a longer one, if writeMarker was interrupted.
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&m); err != nil || m.Version != markerVersion {
		return fmt.Errorf("%w: %s says nothing that this version understands", ErrNotEmpty, x.reserved)
	}
	if m.Snapshot != t.snapshot {
		return fmt.Errorf("%w, %q", ErrOther, m.Snapshot)
	}
	x.resume, x.trust = true, m.Boot != "" && m.Boot == bootID()
	return nil
}

// writeMarker says in the marker whose tree the target gets.
func (t *Target) writeMarker(x *extraction, mark *os.File) error {
	boot := bootID()
	if x.resume && !x.trust {
		boot = "" // which files are whole nobody knows any more, if this call is interrupted, too
	}
	text, err := json.Marshal(marker{Version: markerVersion, Snapshot: t.snapshot, Boot: boot})
	if err != nil {
		return err
	}
	if _, err := mark.WriteAt(append(text, '\n'), 0); err != nil {
		return err
	}
	if err := mark.Truncate(int64(len(text)) + 1); err != nil || x.opts.NoSync {
		return err
	}
	if err := mark.Sync(); err != nil {
		return err
	}
	x.opts.Points.At("restore marked")
	return t.dir.Sync()
}

// bootID tells this run of the machine from others; "" where that is not known.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// complete makes the tree durable, gives the root its attributes and removes the marker. A crash between the last two
// steps leaves a complete tree whose root has the time of the crash.
func (t *Target) complete(x *extraction, top *dir, mark *os.File) error {
	err := func() error {
		if !x.opts.NoSync {
			if err := unix.Syncfs(x.root); err != nil {
				return fmt.Errorf("syncing %s: %w", t.path, err)
			}
		}
		x.opts.Points.At("restored tree synced")
		e := top.entry
		if err := x.attributes(x.root, top, "", e); err != nil {
			return fmt.Errorf("%s: %w", t.path, err)
		}
		if err := x.removeMarker(); err != nil {
			return fmt.Errorf("removing the marker of %s: %w", t.path, err)
		}
		return t.seal(x, e)
	}()
	return errors.Join(err, mark.Close())
}

// seal gives the root its time, which is the last step of a complete tree.
func (t *Target) seal(x *extraction, root *squashfs.Entry) error {
	if err := setTimes(x.root, times(root)); err != nil && !denied(err) {
		return fmt.Errorf("%s: %w", t.path, err)
	}
	x.opts.Points.At("restore complete")
	if x.opts.NoSync {
		return nil
	}
	if err := t.dir.Sync(); err != nil || t.parent == nil {
		return err
	}
	return t.parent.Sync()
}

// removeMarker removes the marker, also from a directory whose owner may not change it and is this process.
func (x *extraction) removeMarker() error {
	err := unix.Unlinkat(x.root, x.reserved, 0)
	if !errors.Is(err, unix.EACCES) {
		return err
	}
	var st unix.Stat_t
	if e := unix.Fstat(x.root, &st); e != nil || unix.Fchmod(x.root, 0o700) != nil {
		return errors.Join(err, e)
	}
	err = unix.Unlinkat(x.root, x.reserved, 0)
	return errors.Join(err, unix.Fchmod(x.root, st.Mode&0o7777))
}

// undo leaves the target as it was if nothing was written.
func (t *Target) undo(x *extraction) error {
	there, err := readNames(x.root)
	if err != nil || !slices.Equal(there, []string{x.reserved}) {
		return err
	}
	if err := unix.Unlinkat(x.root, x.reserved, 0); err != nil || t.parent == nil {
		return err
	}
	_, name := splitPath(t.path)
	return unix.Unlinkat(int(t.parent.Fd()), name, unix.AT_REMOVEDIR)
}
