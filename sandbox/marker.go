package sandbox

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/internal/holder"
	"snapfs/internal/hosttree"
	"snapfs/internal/userns"
	"snapfs/layers"
	"snapfs/sandbox/api"
)

// The marker says that a directory is a home. It is one line of magic and one of JSON:
//
//	snapfs home
//	{"version":1,"id":"…","state":"ready","sum":"…"}
//
// The sum tells a damaged marker from one of a later version. Markers of earlier versions have none, and get one when
// the home is opened. State "new" means that the home was never complete: nothing in it is worth keeping.
const (
	markerName    = "snapfs-home"
	markerMagic   = "snapfs home\n"
	markerVersion = 1
)

type marker struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	State   string `json:"state"` // new or ready
	// Attributes is "user:UID" in a home whose uppers have user.* attributes in place of trusted.* ones.
	Attributes string `json:"attributes,omitempty"`
	// Sum is CRC-32C of the other fields, in hexadecimal.
	Sum string `json:"sum,omitempty"`
}

// checksum is what Sum should be.
func (m marker) checksum() string {
	text := fmt.Sprintf("%d %s %s", m.Version, m.ID, m.State)
	if m.Attributes != "" {
		text += " " + m.Attributes
	}
	return fmt.Sprintf("%08x", crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli)))
}

// mending is how errors say what mends a marker.
const mending = "'snapfs check --rebuild-index' writes it anew"

// readMarker tells what dir is: fs.ErrNotExist for no marker, ErrCorrupt or ErrInvalid for one that is not ours.
func readMarker(dir string) (marker, error) {
	var m marker
	path := filepath.Join(dir, markerName)
	b, err := os.ReadFile(path)
	if err != nil {
		return m, err
	}
	rest, ok := bytes.CutPrefix(b, []byte(markerMagic))
	if !ok {
		return m, fmt.Errorf("%w: %s is not the marker of a snapfs home: choose another home; if it is one, %s",
			ErrCorrupt, path, mending)
	}
	if !bytes.HasSuffix(rest, []byte("}\n")) || json.Unmarshal(rest, &m) != nil {
		return m, fmt.Errorf("%w: %s is truncated or damaged: %s", ErrCorrupt, path, mending)
	}
	if m.Sum != "" && m.Sum != m.checksum() {
		return m, fmt.Errorf("%w: %s is damaged: %s", ErrCorrupt, path, mending)
	}
	if m.Version > markerVersion {
		return m, fmt.Errorf("%w: %s is a home of version %d; this snapfs knows version %d: "+
			"use the snapfs that made it", ErrInvalid, dir, m.Version, markerVersion)
	}
	if m.Version != markerVersion || !api.IsID(m.ID) || m.State != "new" && m.State != "ready" {
		return m, fmt.Errorf("%w: %s has no identity: %s", ErrCorrupt, path, mending)
	}
	return m, nil
}

// MayOpen fails if this program cannot open the home in dir, as far as that can be told while another process has it: the
// home is of a later version, or of another user. Errors are those of Open.
func MayOpen(dir string) error {
	m, err := readMarker(dir)
	if err == nil {
		err = m.checkAttributes(dir)
	}
	if err == nil {
		err = chunkstore.CheckVersion(filepath.Join(dir, "store"))
	}
	if err != nil {
		return fmt.Errorf("home %s: %w", dir, classify(err))
	}
	return nil
}

// ownAttributes is marker.Attributes of the homes that this process makes. What has no override is of the user who runs
// it, by the number that a user namespace gives him.
func ownAttributes() string {
	if layers.UserAttributes() {
		return fmt.Sprintf("user:%d", os.Geteuid())
	}
	return ""
}

// checkAttributes refuses a home whose uppers have other attributes than this process reads and writes.
func (m marker) checkAttributes(dir string) error {
	switch {
	case m.Attributes == ownAttributes():
		return nil
	case m.Attributes == "":
		return fmt.Errorf("%w: home %s was made by root, and this is user %d%s: run snapfs as root, let this user use the "+
			"daemon's socket ('snapfs help serve', --allow), or choose another home", ErrUnavailable, dir, os.Geteuid(), inNamespace())
	}
	return fmt.Errorf("%w: home %s was made without privilege: run snapfs as the user who made it, or choose another home",
		ErrUnavailable, dir)
}

// ownedHere refuses a home that another user has made: nobody else can tell which attributes its uppers have.
func ownedHere(dir string) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: home %s is of user %d, and its marker is damaged: run this as that user",
			ErrUnavailable, dir, st.Uid)
	}
	return nil
}

// inNamespace says of a user that it is one of a user namespace.
func inNamespace() string {
	if userns.Initial() {
		return ""
	}
	return " of a user namespace"
}

// writeMarker publishes the marker durably.
func writeMarker(dir string, m marker) error {
	m.Sum = m.checksum()
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return hosttree.WriteFile(filepath.Join(dir, markerName), append(append([]byte(markerMagic), line...), '\n'))
}

// freshHome is the marker of a home to be made in dir, which must be missing, empty, or the rest of an earlier attempt.
func freshHome(dir string) (marker, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return marker{}, unusable(dir, err)
	}
	stranger := ""
	for _, e := range entries {
		switch name := e.Name(); name {
		case api.LockName, markerName + ".tmp":
		case api.SettingsName: // written before the first start
		case holder.SocketName, holder.DeathName, holder.DeathName + ".tmp":
		case api.LogName, api.SocketName: // of a daemon, and in order before the directories of its home
			if name == api.SocketName && e.Type() == fs.ModeSocket {
				continue // a service manager makes it before the daemon starts
			}
			stranger = name
		case "store", "uppers", seenDir, readsDir, emptyDir, "lost+found":
			// A file system has a lost+found of its own; the others are of a home whose marker is missing.
			if name == "lost+found" {
				continue
			}
			return marker{}, fmt.Errorf("%w: %s holds a %s directory but no %s: "+
				"choose another home; if it is one, %s", ErrCorrupt, dir, name, markerName, mending)
		default:
			return marker{}, notHome(dir, name)
		}
	}
	if stranger != "" {
		return marker{}, notHome(dir, stranger)
	}
	return marker{Version: markerVersion, ID: uuid.NewString(), State: "new", Attributes: ownAttributes()}, nil
}

func notHome(dir, name string) error {
	return fmt.Errorf("%w: %s is not empty and not a snapfs home (it holds %s): choose an empty directory", ErrInvalid,
		dir, api.Quoted(name))
}

// unusable explains why a home cannot be used where it is.
func unusable(dir string, err error) error {
	if errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("%w: home %s: %w", ErrInvalid, dir, err)
	}
	return fmt.Errorf("%w: home %s cannot be used: %w", ErrUnavailable, dir, err)
}

// number64 is the home's id as images have it.
func number64(id string) uint64 {
	sum := blake3.Sum256([]byte("snapfs home " + id))
	return max(binary.LittleEndian.Uint64(sum[:]), 1)
}

// homeLock is the lock of a home, which the kernel drops with the process. It is on a file that names the process, and
// on the directory itself: the file can be removed or replaced while the home is open.
type homeLock struct {
	file, dir *os.File
	store     []*os.File // of the lock of the store; of the process before, as long as the store is not open
}

// Close releases the lock. The file stays: removing it would race with the next process.
func (l *homeLock) Close() error { return errors.Join(l.file.Close(), l.dir.Close()) }

// lockHome takes the home for this process. What a keeper has of the process before is taken over.
func lockHome(dir string, kept []*os.File) (*homeLock, error) {
	l, err := keptLock(dir, kept)
	if l == nil && err == nil {
		l, err = takeLock(dir)
	}
	if err != nil {
		return nil, err
	}
	pid := []byte(strconv.Itoa(os.Getpid()) + "\n")
	_, err = l.file.WriteAt(pid, 0)
	if err = errors.Join(l.file.Truncate(int64(len(pid))), err); err != nil {
		return nil, errors.Join(unusable(dir, err), l.Close())
	}
	return l, nil
}

// takeLock locks a home that no process has.
func takeLock(dir string) (*homeLock, error) {
	f, err := os.OpenFile(filepath.Join(dir, api.LockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, unusable(dir, err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, errors.Join(unusable(dir, err), f.Close())
	}
	l := &homeLock{file: f, dir: d}
	err = flockHome(f, f.Name())
	if err == nil {
		err = flockHome(d, f.Name())
		if errors.Is(err, unix.EBADF) { // network file systems lock only what is open for writing
			err = nil
		}
	}
	if err != nil {
		holder := lockHolder(f.Name())
		_ = l.Close() // nothing was written
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, unusable(dir, err)
		}
		who := "another process"
		if holder != 0 {
			who = fmt.Sprintf("process %d", holder)
		}
		return nil, fmt.Errorf("%w: home %s is in use by %s: stop it first, or use another home", ErrConflict, dir, who)
	}
	return l, nil
}

// orphanWait is how long the lock of a process that is gone is waited for: a child of it that has just been forked
// holds the descriptor until it executes its program.
const orphanWait = 2 * time.Second

// flockHome locks a file; EWOULDBLOCK if a process has it, whose id may be in the file at path.
func flockHome(f *os.File, path string) error {
	for end := time.Now().Add(orphanWait); ; time.Sleep(5 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end) {
			return err
		}
		if pid := lockHolder(path); pid != 0 && !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			return err
		}
	}
}

// lockHolder is the process that says it has the lock; 0 if none does.
func lockHolder(path string) int {
	holder, _ := os.ReadFile(path) // only to say who
	pid, err := strconv.Atoi(strings.TrimSpace(string(holder)))
	if err != nil || pid <= 0 {
		return 0
	}
	return pid
}
