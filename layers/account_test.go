package layers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
	"snapfs/internal/testseed"
)

// accountRig is a rig of which the account counts, over a lower with some files.
func accountRig(t *testing.T, limit Usage) *rig {
	t.Helper()
	lower := t.TempDir()
	for name, size := range map[string]int{"small": 10, "large": 5 << 20, "plain": 3, "d/a": 5000, "d/e/b": 1 << 20} {
		p := filepath.Join(lower, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, make([]byte, size), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(lower, "small"), filepath.Join(lower, "d/small")); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, lower)
	r.account = &Account{}
	r.account.SetLimit(limit)
	r.reopen()
	return r
}

// recounted holds that what was counted is what the host has.
func (r *rig) recounted(when string) {
	r.t.Helper()
	r.o.reaper.drain()
	got, known := r.o.opts.Account.Used()
	if !known {
		r.t.Errorf("%s: what is used is not known", when)
	}
	exact, err := r.o.Recount(r.t.Context())
	if err != nil || !exact {
		r.t.Fatalf("%s: recount: exact %v, %v", when, exact, err)
	}
	want, _ := r.o.opts.Account.Used()
	if d := got.Bytes - want.Bytes; got.Inodes != want.Inodes || max(d, -d) > r.later(want.Bytes) {
		r.t.Errorf("%s: %+v were counted, there are %+v", when, got, want)
	}
}

// later is how much the host may have allocated or freed by itself: ext4 makes blocks for the extents of a file when it
// writes that back. tmpfs does nothing of the kind.
func (r *rig) later(used int64) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(r.dir, &st); err != nil || st.Type == unix.TMPFS_MAGIC {
		return 0
	}
	return used / 100
}

var someRoom = Usage{Bytes: 1 << 30, Inodes: 1 << 20}

// TestAccountRandom holds that what random changes take is counted as a recount finds it.
func TestAccountRandom(t *testing.T) {
	t.Run("host", accountRandom)
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=512m"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	}()
	t.Run("memory", func(t *testing.T) {
		t.Setenv("TMPDIR", disk)
		accountRandom(t)
	})
}

func accountRandom(t *testing.T) {
	rnd := rand.New(rand.NewPCG(testseed.Of(t), 19))
	r := accountRig(t, someRoom)
	names := []string{"small", "large", "d", "d/a", "d/e", "d/e/b", "d/small", "x", "y", "z", "d/x", "d/e/y", "new", "new/x", "new/y"}
	name := func() string { return names[rnd.IntN(len(names))] }
	kept := map[NodeID]int{} // references that stay for a while
	steps := 1500
	if os.Getenv("SNAPFS_LONG") != "" {
		steps = 50_000
	}
	for i := range steps {
		at := name()
		var err error
		op := rnd.IntN(20)
		switch op {
		case 0, 1:
			err = r.mknod(at, unix.S_IFREG|0o644, 0)
		case 2:
			err = r.mkdir(at, 0o755)
		case 3, 4, 5:
			err = r.write(at, string(make([]byte, 1+rnd.IntN(200_000))), rnd.Int64N(6<<20))
		case 6:
			err = r.unlink(at)
		case 7:
			err = r.rmdir(at)
		case 8, 9:
			err = r.rename(at, name(), uint32(rnd.IntN(2))*unix.RENAME_EXCHANGE)
		case 10:
			err = r.link(at, name())
		case 11, 12:
			err = r.on(at, func(n NodeID) error {
				_, err := r.o.SetAttr(Caller{}, n, SetAttr{Valid: SetSize, Size: uint64(rnd.IntN(3) * rnd.IntN(4<<20))})
				return err
			})
		case 13:
			err = r.on(at, func(n NodeID) error {
				_, err := r.o.SetAttr(Caller{}, n, SetAttr{Valid: SetMode, Mode: uint32(rnd.IntN(0o1000))})
				return err
			})
		case 14:
			err = r.on(at, func(n NodeID) error {
				return r.o.SetXattr(n, fmt.Sprintf("user.%d", rnd.IntN(3)), make([]byte, rnd.IntN(700)), 0) // ext4 has one block for them
			})
		case 15:
			err = r.on(at, func(n NodeID) error {
				mode := []uint32{0, unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE}[rnd.IntN(3)]
				return r.o.Fallocate(n, mode, rnd.Int64N(1<<20), 1+rnd.Int64N(1<<20))
			})
		case 16:
			var e Entry
			if e, err = r.find(at); err == nil { // as an open file
				kept[e.Node]++
			}
		case 17:
			for id, n := range kept {
				r.o.Forget(id, uint64(n))
				delete(kept, id)
				break
			}
		case 18:
			if rnd.IntN(20) == 0 {
				r.seal()
			} else {
				var e Entry
				if e, err = r.o.Tmpfile(Caller{}, RootNode, 0o600); err == nil {
					kept[e.Node]++
					_, err = r.o.Write(e.Node, make([]byte, rnd.IntN(100_000)), 0, nil)
				}
			}
		case 19:
			err = r.on(at, func(n NodeID) error {
				return r.on(name(), func(m NodeID) error {
					_, err := r.o.CopyRange(n, 0, m, rnd.Int64N(1<<20), 1<<20)
					return err
				})
			})
		}
		if errors.Is(err, unix.EIO) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			t.Fatalf("step %d, %d of %s: %v", i, op, at, err)
		}
		r.recounted(fmt.Sprintf("step %d: %d of %s: %v", i, op, at, err))
		if t.Failed() {
			return
		}
	}
	for id, n := range kept {
		r.o.Forget(id, uint64(n))
	}
	r.recounted("all is forgotten")
	r.reopen()
	r.recounted("opened again")
}

// TestAccountFull holds that the limit of bytes is kept, however many write, and that what is written over needs no room.
func TestAccountFull(t *testing.T) {
	const limit = 8 << 20
	r := accountRig(t, Usage{Bytes: limit})
	r.create("first", "")
	var ids []NodeID
	for i := range 32 {
		r.create(fmt.Sprint("file", i), string(make([]byte, 4096)))
		if err := r.on(fmt.Sprint("file", i), func(n NodeID) error { ids = append(ids, n); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	for i := range ids {
		if _, err := r.find(fmt.Sprint("file", i)); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() {
			data := make([]byte, 4096+i*1000)
			for off := int64(0); ; {
				n, err := r.o.Write(id, data, off, nil)
				off += int64(n)
				if errors.Is(err, unix.ENOSPC) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	used, _ := r.account.Used()
	if used.Bytes > limit || used.Bytes < limit-64<<10 {
		t.Errorf("%d bytes are used of %d", used.Bytes, limit)
	}
	r.recounted("full")
	if err := r.write("file3", "again", 0); err != nil {
		t.Errorf("what is allocated is written: %v", err)
	}
	if err := r.write("first", string(make([]byte, 1<<20)), 0); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a file that grows: %v", err)
	}
	if err := r.write("large", "x", 3<<20); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a block of a file below: %v", err)
	}
	if err := r.unlink("plain"); err != nil {
		t.Errorf("removal of what is below: %v", err)
	}
	if err := r.unlink("file31"); err != nil {
		t.Error(err)
	}
	if err := r.write("first", string(make([]byte, 4096)), 0); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("the file that was removed is open: %v", err)
	}
	r.o.Forget(ids[31], 1)
	if err := r.write("first", string(make([]byte, 4096)), 0); err != nil {
		t.Errorf("a file was removed: %v", err)
	}
	for _, id := range ids[:31] {
		if _, err := r.o.SetAttr(Caller{}, id, SetAttr{Valid: SetSize}); err != nil {
			t.Error(err)
		}
	}
	if err := r.write("large", "x", 3<<20); err != nil {
		t.Errorf("files were emptied: %v", err)
	}
	if s, err := r.o.Statfs(); err != nil || s.Blocks*uint64(s.Frsize) != limit {
		t.Errorf("statfs: %+v, %v", s, err)
	}
}

// TestAccountPreallocated holds that what was allocated can be written when nothing else can, and that what would not fit
// is refused as a whole.
func TestAccountPreallocated(t *testing.T) {
	const limit = 4 << 20
	r := accountRig(t, Usage{Bytes: limit})
	r.create("db", "")
	r.create("other", "")
	allocate := func(n int64) error {
		return r.on("db", func(id NodeID) error { return r.o.Fallocate(id, 0, 0, n) })
	}
	if err := allocate(256 << 20); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("more than there is: %v", err)
	}
	if used, _ := r.account.Used(); used.Bytes > 64<<10 {
		t.Errorf("%d bytes are used after that", used.Bytes)
	}
	if err := allocate(3 << 20); err != nil {
		t.Fatal(err)
	}
	for off := int64(0); ; off += 4096 {
		if err := r.write("other", string(make([]byte, 4096)), off); err != nil {
			if !errors.Is(err, unix.ENOSPC) {
				t.Error(err)
			}
			break
		}
	}
	if err := r.write("db", string(make([]byte, 3<<20)), 0); err != nil {
		t.Errorf("what was allocated is written: %v", err)
	}
	r.recounted("full")
}

// TestAccountInodes holds that the limit of inodes is kept, and that hard links count once.
func TestAccountInodes(t *testing.T) {
	r := accountRig(t, Usage{Inodes: 11})
	for i := 0; ; i++ {
		err := r.mknod(fmt.Sprint(i), unix.S_IFREG|0o644, 0)
		if errors.Is(err, unix.ENOSPC) && i == 10 {
			break
		}
		if err != nil || i > 10 {
			t.Fatalf("file %d: %v", i, err)
		}
	}
	if err := r.link("3", "link"); err != nil {
		t.Errorf("another name: %v", err)
	}
	chmod := func() error {
		return r.on("d/a", func(n NodeID) error {
			_, err := r.o.SetAttr(Caller{}, n, SetAttr{Valid: SetMode, Mode: 0o600})
			return err
		})
	}
	if err := chmod(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a file is copied up: %v", err)
	}
	if err := errors.Join(r.unlink("3"), r.unlink("4"), r.rename("5", "6", 0)); err != nil {
		t.Fatal(err)
	}
	if err := chmod(); err != nil {
		t.Errorf("there is room for the directory and the file: %v", err)
	}
	r.recounted("full")
	if s, err := r.o.Statfs(); err != nil || s.Files != 11 || s.Ffree != 0 {
		t.Errorf("statfs: %+v, %v", s, err)
	}
	if err := r.mkdir("more", 0o755); !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
	r.account.SetLimit(Usage{Inodes: 12})
	if err := r.mkdir("more", 0o755); err != nil {
		t.Errorf("with another limit: %v", err)
	}
}

// TestAccountSealed holds that what is sealed counts until the owner says what it takes, and that open files without a
// name go along.
func TestAccountSealed(t *testing.T) {
	r := accountRig(t, Usage{Bytes: 64 << 20, Inodes: 100})
	r.create("file", string(make([]byte, 1<<20)))
	r.create("open", string(make([]byte, 2<<20)))
	e, err := r.find("open")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.unlink("open"); err != nil {
		t.Fatal(err)
	}
	seals := r.account.Seals()
	r.seal()
	if u, _ := r.account.Used(); u.Bytes < 3<<20 {
		t.Errorf("%d bytes are used after the seal", u.Bytes)
	}
	if r.account.SetKept(Usage{}, seals) {
		t.Error("what was measured before the seal is taken")
	}
	r.account.SetKept(Usage{1 << 20, 2}, r.account.Seals())
	if u, _ := r.account.Used(); u.Bytes < 3<<20 || u.Bytes > 3<<20+64<<10 || u.Inodes != 4 {
		t.Errorf("%+v are used, of which %d bytes have no name", u, 2<<20)
	}
	r.o.Forget(e.Node, 1)
	r.o.reaper.drain()
	if u, _ := r.account.Used(); u.Bytes > 1<<20+64<<10 || u.Inodes != 3 {
		t.Errorf("%+v are used when the file is closed", u)
	}
	r.account.SetKept(Usage{}, r.account.Seals())
	r.recounted("sealed")
}

// TestAccountKilled holds that a process which goes on after one that was killed knows what is used but for a step, and
// all of it after a recount.
func TestAccountKilled(t *testing.T) {
	r := accountRig(t, Usage{Bytes: 256 << 20})
	r.create("file", string(make([]byte, 20<<20)))
	was, _ := r.account.Used()
	dead := r.account
	r.account = &Account{}
	r.account.SetLimit(dead.Limit())
	old := r.o
	r.open()
	t.Cleanup(func() { _ = old.Close() })
	u, known := r.account.Used()
	if known || u.Bytes < was.Bytes-1<<20 || u.Bytes > was.Bytes {
		t.Errorf("%+v are used, known %v; it were %+v", u, known, was)
	}
	if exact, err := r.o.Recount(t.Context()); err != nil || !exact {
		t.Fatal(exact, err)
	}
	if u, known := r.account.Used(); u != was || !known {
		t.Errorf("%+v are used, known %v, when they are counted anew; it were %+v", u, known, was)
	}
}

// TestAccountLater holds that an upper which nobody has counted is counted when there is a limit.
func TestAccountLater(t *testing.T) {
	r := accountRig(t, Usage{})
	r.create("file", string(make([]byte, 1<<20)))
	if _, known := r.account.Used(); known {
		t.Error("something is counted without a limit")
	}
	r.account.SetLimit(Usage{Bytes: 2 << 20})
	if exact, err := r.o.Recount(t.Context()); err != nil || !exact {
		t.Fatal(exact, err)
	}
	if u, known := r.account.Used(); u.Bytes < 1<<20 || u.Bytes > 1<<20+64<<10 || !known {
		t.Errorf("%+v, known %v", u, known)
	}
	for off := int64(1 << 20); off < 4<<20; off += 4096 {
		if err := r.write("file", string(make([]byte, 4096)), off); err != nil {
			if !errors.Is(err, unix.ENOSPC) {
				t.Error(err)
			}
			break
		}
	}
	if u, _ := r.account.Used(); u.Bytes > 2<<20 {
		t.Errorf("%+v", u)
	}
}

// TestAccountAgain holds that what has changed while nothing was counted is not counted twice later on.
func TestAccountAgain(t *testing.T) {
	r := accountRig(t, someRoom)
	r.create("file", "1")
	r.create("gone", string(make([]byte, 1<<20)))
	var gone Entry
	err := r.on("gone", func(NodeID) (err error) {
		if gone, err = r.find("gone"); err == nil {
			err = r.unlink("gone")
		}
		return err
	})
	r.account.SetLimit(Usage{})
	err = errors.Join(err, r.write("file", string(make([]byte, 1<<20)), 0))
	r.o.Forget(gone.Node, 1)
	r.account.SetLimit(someRoom)
	if err != nil {
		t.Fatal(err)
	}
	if exact, err := r.o.Recount(t.Context()); err != nil || !exact {
		t.Fatalf("recount: exact %v, %v", exact, err)
	}
	if err := r.write("file", "2", 0); err != nil {
		t.Fatal(err)
	}
	used, _ := r.account.Used()
	want, err := Measure(t.Context(), r.o.upper.dir)
	if err != nil || used.Inodes != want.Inodes || max(used.Bytes-want.Bytes, want.Bytes-used.Bytes) > r.later(want.Bytes) {
		t.Errorf("%+v were counted, there are %+v, %v", used, want, err)
	}
}

// TestAccountDistrusted holds that a note from before others may have changed the upper is not taken for true.
func TestAccountDistrusted(t *testing.T) {
	for _, stale := range []bool{false, true} {
		r := accountRig(t, someRoom)
		r.create("file", string(make([]byte, 1<<20)))
		if stale {
			r.account.Trust(time.Now().Add(time.Hour))
		}
		r.reopen()
		if u, known := r.account.Used(); u.Bytes < 1<<20 || known == stale {
			t.Errorf("stale %v: %+v are used, known %v", stale, u, known)
		}
	}
}

// TestAccountTakenOver holds that a file without a name counts until it is closed, also if it lost its name under the
// process before, and was changed since or not.
func TestAccountTakenOver(t *testing.T) {
	for _, change := range []bool{false, true} {
		r := accountRig(t, someRoom)
		var err error
		if r.live, err = livestate.Create("test"); err != nil {
			t.Fatal(err)
		}
		r.reopen()
		empty, _ := r.account.Used()
		r.create("open", string(make([]byte, 1<<20)))
		e, err := r.find("open")
		if err == nil {
			err = r.unlink("open")
		}
		if err != nil {
			t.Fatal(err)
		}
		r.reopen()
		if u, _ := r.account.Used(); u.Bytes < 1<<20 {
			t.Errorf("change %v: %+v are used while the file is open", change, u)
		}
		if change {
			if _, err := r.o.Write(e.Node, make([]byte, 1<<20), 1<<20, nil); err != nil {
				t.Fatal(err)
			}
		}
		r.o.Forget(e.Node, 1)
		r.o.reaper.drain()
		if u, _ := r.account.Used(); u.Inodes != empty.Inodes || u.Bytes > empty.Bytes+8192 {
			t.Errorf("change %v: %+v are used when the file is closed, and were %+v before it was made", change, u, empty)
		}
	}
}
