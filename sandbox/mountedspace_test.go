package sandbox

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"snapfs/internal/testseed"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// churn is a mounted workspace with files of random contents, of which some are rewritten at each step.
type churn struct {
	*history
	rng   *rand.Rand
	files map[string][]byte
}

const (
	churnFiles = 24
	churnSize  = 64 << 10
)

// newChurn makes one.
func newChurn(t *testing.T) *churn {
	t.Helper()
	work := t.TempDir()
	c := &churn{
		history: &history{t: t, dir: filepath.Join(work, "home"), at: filepath.Join(work, "m")},
		rng:     rand.New(rand.NewPCG(testseed.Of(t), 1)), files: map[string][]byte{},
	}
	c.open()
	t.Cleanup(func() {
		if err := c.h.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := c.h.Create(t.Context(), CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	c.mount()
	for i := range churnFiles {
		c.write(fmt.Sprintf("d%d/f%d", i%4, i), churnSize)
	}
	c.snapshot()
	return c
}

// write writes a file, in place if it is there.
func (c *churn) write(name string, size int) {
	c.t.Helper()
	b := make([]byte, size)
	for k := range b {
		b[k] = byte(c.rng.Uint32())
	}
	c.files[name] = b
	from := filepath.Join(c.t.TempDir(), "new")
	if err := os.WriteFile(from, b, 0o644); err != nil {
		c.t.Fatal(err)
	}
	c.sh(`mkdir -p "$M/` + filepath.Dir(name) + `"; dd status=none bs=1M conv=notrunc if="` + from + `" of="$M/` + name + `"`)
}

// poke changes some bytes of a file.
func (c *churn) poke(name string) {
	c.t.Helper()
	b := slices.Clone(c.files[name])
	at := c.rng.IntN(len(b) - 8)
	copy(b[at:], "changed!")
	c.files[name] = b
	c.sh(fmt.Sprintf(`printf 'changed!' | dd status=none conv=notrunc bs=8 oflag=seek_bytes seek=%d of="$M/%s"`, at, name))
}

// rewrite rewrites a quarter of the files.
func (c *churn) rewrite() {
	c.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		if strings.HasPrefix(name, "d") && c.rng.IntN(4) == 0 {
			c.write(name, churnSize)
		}
	}
}

// snapshot takes one.
func (c *churn) snapshot() string {
	c.t.Helper()
	s, err := c.h.Snapshot(c.t.Context(), SnapshotRequest{Workspace: "w", WaitStored: true})
	if err != nil {
		c.t.Fatal(err)
	}
	return s.ID
}

// prune keeps two snapshots, and collects.
func (c *churn) prune() GCResult {
	c.t.Helper()
	if _, err := c.h.Prune(c.t.Context(), PruneRequest{KeepLast: 2}); err != nil {
		c.t.Fatal(err)
	}
	r, err := c.h.GC(c.t.Context(), GCRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// pruneAll is prune until nobody keeps what was merged: a mount whose layers are in use just now goes on to the merged
// ones later.
func (c *churn) pruneAll(when string) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		r := c.prune()
		if len(r.Pinned) == 0 {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("%s: somebody keeps what was merged: %+v", when, r.Pinned)
		}
	}
}

// shows compares what a mount shows, asked for anew, with files.
func (c *churn) shows(at string, files map[string][]byte) {
	c.t.Helper()
	out := filepath.Join(c.t.TempDir(), "copy")
	c.sh(`find "` + at + `" -type f -exec dd status=none if={} iflag=nocache count=0 \;; cp -r "` + at + `/." "` + out + `"`)
	n := 0
	err := filepath.WalkDir(out, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		n++
		name, err := filepath.Rel(out, path)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if string(b) != string(files[name]) {
			c.t.Errorf("%s of %s has other contents", name, at)
		}
		return err
	})
	if err != nil {
		c.t.Error(err)
	}
	if n != len(files) {
		c.t.Errorf("%s shows %d files, want %d", at, n, len(files))
	}
}

// space holds that the packs have little more in them than what is kept, beside some bytes that are in use; files have
// room in advance, which does not count.
func (c *churn) space(more int64) {
	c.t.Helper()
	st, err := c.h.Stats(c.t.Context(), StatsRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	if has := st.Stored + st.Reclaimable; has > st.Stored*5/4+more || st.PinnedBytes > more {
		c.t.Errorf("%d bytes in packs, %d stored, %d pinned: %+v", has, st.Stored, st.PinnedBytes, st.Pinned)
	}
}

// lowers tells how many layers lie beneath a mount.
func (c *churn) lowers(workspace string) int {
	l := c.h.liveOf(workspace)
	defer l.lockStack()()
	return len(l.stack.Lowers())
}

// TestMountedSpace holds that what only deleted snapshots showed goes with the next collection while workspaces stay
// mounted, and that programs do not notice.
func TestMountedSpace(t *testing.T) {
	c := newChurn(t)
	const big = 3 << 20
	c.write("held/big", big) // copied up by blocks
	c.write("held/old", churnSize)
	c.snapshot()
	x := hold(t, filepath.Join(c.at, "held"))
	first := x.look()
	branch, branched := "", map[string][]byte{}
	for i := range 24 {
		c.rewrite()
		c.poke("held/big")
		id := c.snapshot()
		if i == 9 {
			at := filepath.Join(filepath.Dir(c.dir), "m2")
			branched = maps.Clone(c.files)
			b, err := c.h.Branch(t.Context(), RestoreRequest{Snapshot: id, Mountpoint: at, MakeMountpoint: true})
			if err != nil {
				t.Fatal(err)
			}
			branch = b.ID
		}
		if i == 13 { // which a paused workspace goes on to, too
			if _, err := c.h.Pause(t.Context(), PauseRequest{Workspace: branch}); err != nil {
				t.Fatal(err)
			}
		}
		if i%6 < 5 {
			continue
		}
		c.pruneAll(fmt.Sprint(i))
		c.space(0)
		if n := c.lowers("w"); n > 4 {
			t.Errorf("%d: %d lowers beneath the mount", i, n)
		}
		c.shows(c.at, c.files)
		if len(branched) > 0 {
			c.shows(filepath.Join(filepath.Dir(c.dir), "m2"), branched)
		}
		for name, now := range x.look() {
			want := sumOf(c.files["held/"+name])
			if now.ino != first[name].ino || now.read != want || now.mapped != want {
				t.Errorf("%d: the program has %+v of %s, want number %s, %s", i, now, name, first[name].ino, want)
			}
		}
	}
	c.same(0)
}

// TestMountedSpaceDeleted holds that files which are deleted and open stay readable over merges and collections, that
// they keep no more than the images that they lie in, that the collection says so, and that it goes when they are
// closed.
func TestMountedSpaceDeleted(t *testing.T) {
	c := newChurn(t)
	c.write("held/deleted", 3<<20)
	c.snapshot()
	x := hold(t, filepath.Join(c.at, "held"))
	c.poke("held/deleted") // some of it in the upper
	c.snapshot()
	want := sumOf(c.files["held/deleted"])
	c.sh(`rm "$M/held/deleted"`)
	delete(c.files, "held/deleted")
	for i := range 12 {
		c.rewrite()
		c.snapshot()
		if i%4 < 3 {
			continue
		}
		r := c.prune()
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if len(r.Pinned) == 1 && r.Pinned[0].Why == api.PinDeleted {
				break
			}
			r = c.prune() // as in pruneAll
		}
		if len(r.Pinned) != 1 || r.Pinned[0].Why != api.PinDeleted || r.Pinned[0].Workspace != "w" ||
			r.Pinned[0].Mountpoint != c.at || r.Pinned[0].Files != 1 || r.Pinned[0].Bytes != r.PinnedBytes {
			t.Errorf("%d: got %+v", i, r)
		}
		c.space(r.PinnedBytes)
		c.shows(c.at, c.files)
		if now := x.look()["deleted"]; now.read != want || now.mapped != want {
			t.Errorf("%d: the program has %+v, want %s", i, now, want)
		}
	}
	x.end()
	c.pruneAll("closed") // the kernel forgets it in time
	c.prune()            // it may have gone after the collection and before that looked
	c.space(0)
	c.same(0)
}

// TestMountedSpaceReadOnly holds that a read-only mount goes on, too: its upper becomes a layer beneath it, and is
// merged.
func TestMountedSpaceReadOnly(t *testing.T) {
	c := newChurn(t)
	c.write("held/file", churnSize)
	if _, err := c.h.Unmount(t.Context(), UnmountRequest{Workspace: "w"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.h.Mount(t.Context(), MountRequest{
		Workspace: "w", Mountpoint: c.at, MountOptions: MountOptions{ReadOnly: true},
	}); err != nil {
		t.Fatal(err)
	}
	upper := c.h.catalog.Workspace("w").Upper
	x := hold(t, filepath.Join(c.at, "held"))
	first := x.look()
	id := c.snapshot()
	for s := range c.h.catalog.ListSnapshots(catalog.Query{}) {
		if s.ID == id {
			continue
		}
		if err := c.h.Delete(t.Context(), RefRequest{Ref: s.ID}); err != nil {
			t.Fatal(err)
		}
	}
	c.pruneAll("read-only")
	if n := c.lowers("w"); n != 1 {
		t.Errorf("%d lowers beneath the mount", n)
	}
	if err := c.h.uppers.WaitDiscarded(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.h.uppers.Exists(upper) {
		t.Error("the directory of what was the upper is still there")
	}
	c.space(0)
	c.shows(c.at, c.files)
	if now := x.look(); !maps.Equal(now, first) || now["file"].read != sumOf(c.files["held/file"]) {
		t.Errorf("the program has %+v, had %+v", now, first)
	}
	x.end()
	c.same(0)
}
