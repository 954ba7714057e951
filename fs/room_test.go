package fs

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/layers"
)

// TestRoomComesBack holds that a change which finds no room waits for that of a file without a name if the kernel has
// forgotten it, however late the FORGET is read, and is refused if the kernel has it.
func TestRoomComesBack(t *testing.T) {
	dir := t.TempDir()
	upper, work := filepath.Join(dir, "upper"), filepath.Join(dir, "work")
	for _, d := range []string{upper, work} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	acct := &layers.Account{}
	acct.SetLimit(layers.Usage{Bytes: 1 << 20, Inodes: 4})
	o, err := layers.New(upper, work, nil, layers.Options{InoBase: 1 << 40, Account: acct})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}()
	a := newAdapter(o, slog.Default())
	root := fuse.InHeader{NodeId: uint64(layers.RootNode)}
	mknod := func(name string) (layers.NodeID, fuse.Status) {
		var out fuse.EntryOut
		st := a.Mknod(nil, &fuse.MknodIn{InHeader: root, Mode: unix.S_IFREG | 0o600}, name, &out)
		return layers.NodeID(out.NodeId), st
	}
	write := func(id layers.NodeID, off uint64) fuse.Status {
		_, st := a.write(&fuse.InHeader{NodeId: uint64(id)}, off, 0, make([]byte, 256<<10))
		return st
	}
	want := func(what string, got, want fuse.Status) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	old, st := mknod("old")
	want("mknod", st, fuse.OK)
	next, st := mknod("next")
	want("mknod", st, fuse.OK)
	for off := uint64(0); write(old, off) == fuse.OK; off += 256 << 10 {
		if off > 1<<20 {
			t.Fatal("no limit")
		}
	}
	want("unlink", a.Unlink(nil, &root, "old"), fuse.OK)
	want("nobody can be asked", write(next, 0), fuse.Status(unix.ENOSPC))
	asked := 0
	a.forgotten = func(ids []layers.NodeID, _ time.Duration) bool {
		if slices.Contains(ids, old) {
			asked++
		}
		return false
	}
	want("the kernel has it", write(next, 0), fuse.Status(unix.ENOSPC))
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	late := func(id layers.NodeID) {
		a.forgotten = func(ids []layers.NodeID, _ time.Duration) bool {
			if slices.Contains(ids, id) {
				time.AfterFunc(20*time.Millisecond, func() { o.Forget(id, 1) })
			}
			return slices.Contains(ids, id)
		}
	}
	late(old)
	want("the kernel has forgotten it", write(next, 0), fuse.OK)
	var ids []layers.NodeID
	for st = fuse.OK; st == fuse.OK && len(ids) < 8; {
		var id layers.NodeID
		if id, st = mknod(strconv.Itoa(len(ids))); st == fuse.OK {
			ids = append(ids, id)
		}
	}
	want("no inodes", st, fuse.Status(unix.ENOSPC))
	want("unlink", a.Unlink(nil, &root, "0"), fuse.OK)
	late(ids[0])
	id, st := mknod("one more")
	want("an inode has come back", st, fuse.OK)
	for _, id := range append(ids[1:], id, next) {
		o.Forget(id, 1)
	}
}
