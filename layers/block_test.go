package layers

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// bigLower makes a directory with a file f of some MiB of random data, and a rig over it.
func bigLower(t *testing.T, size int64) (*rig, []byte) {
	t.Helper()
	dir := t.TempDir()
	data := randomData(rand.New(rand.NewPCG(1, 1)), size)
	if err := os.WriteFile(filepath.Join(dir, "f"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	return newRig(t, dir), data
}

// sideFiles makes every map go into a side file.
func sideFiles(t *testing.T) {
	t.Helper()
	before := inlineStates
	inlineStates = 0
	t.Cleanup(func() { inlineStates = before })
}

// hostFileOf opens a file of the present upper on the host.
func (r *rig) hostFileOf(name string) *os.File {
	r.t.Helper()
	f, err := os.OpenFile(filepath.Join(r.upper(), name), os.O_RDWR, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = f.Close() })
	return f
}

func (r *rig) wantContents(name string, want []byte) {
	r.t.Helper()
	if got := r.read(name); got != string(want) {
		at := 0
		for at < len(got) && at < len(want) && got[at] == want[at] {
			at++
		}
		r.t.Errorf("%s: %d bytes, want %d, differ at %d", name, len(got), len(want), at)
	}
}

func allocatedBytes(t *testing.T, f *os.File) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// TestBlockPowerLoss: a claim that outlived its data does not hide what is below, and one of a hole stays.
func TestBlockPowerLoss(t *testing.T) {
	sideFiles(t)
	r, want := bigLower(t, 200<<16)
	page := bytes.Repeat([]byte("new "), 1024)
	for _, b := range []int64{3, 5, 150} {
		if err := r.write("f", string(page), b<<16+4096); err != nil {
			t.Fatal(err)
		}
	}
	err := r.on("f", func(n NodeID) error {
		return r.o.Fallocate(n, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 10<<16, 2<<16)
	})
	if err != nil {
		t.Fatal(err)
	}
	clear(want[10<<16 : 12<<16])
	copy(want[150<<16+4096:], page)
	copy(want[5<<16+4096:], page)
	f := r.hostFileOf("f")
	// The machine loses all of block 3 and a part of block 5.
	for _, x := range [][2]int64{{3 << 16, 1 << 16}, {5<<16 + 3*4096, 8192}} {
		if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, x[0], x[1]); err != nil {
			t.Fatal(err)
		}
	}
	v := make([]byte, 4096)
	n, err := unix.Fgetxattr(int(f.Fd()), xattrBlocks, v)
	if err != nil {
		t.Fatal(err)
	}
	if side := binary.LittleEndian.Uint64(v[24:]); side == 0 || n != blocksHeader {
		t.Errorf("attribute of %d bytes, side file %x", n, side)
	}
	binary.LittleEndian.PutUint64(v[16:], 12345)
	if err := unix.Fsetxattr(int(f.Fd()), xattrBlocks, v[:n], 0); err != nil {
		t.Fatal(err)
	}
	before := r.attr("f")
	r.reopen()
	r.wantContents("f", want)
	if a := r.attr("f"); a.Mtime != before.Mtime {
		t.Errorf("mtime moved from %v to %v", before.Mtime, a.Mtime)
	}
	if got := allocatedBytes(t, f); got > 3<<16+8192 {
		t.Errorf("%d bytes in the upper for three blocks", got)
	}
}

// TestBlockKernel: the kernel's overlayfs refuses a partial file, and has all of it after Complete.
func TestBlockKernel(t *testing.T) {
	r, want := bigLower(t, 3<<20)
	if err := errors.Join(r.write("f", "one", 5), r.write("f", "two", 2<<20)); err != nil {
		t.Fatal(err)
	}
	copy(want[5:], "one")
	copy(want[2<<20:], "two")
	mount := func() string {
		m := t.TempDir()
		opts := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,redirect_dir=on,metacopy=on",
			r.lowers[0].dir.side[:len(r.lowers[0].dir.side)-len(sideSuffix)], r.upper(), r.work())
		if err := unix.Mount("overlay", m, "overlay", 0, opts); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(m, unix.MNT_DETACH) }) // where the test did not come to it
		return m
	}
	m := mount()
	got, err := os.ReadFile(filepath.Join(m, "f"))
	if err == nil {
		t.Errorf("the kernel reads %d bytes of a partial file, right: %v", len(got), bytes.Equal(got, want))
	}
	if err := unix.Unmount(m, 0); err != nil {
		t.Fatal(err)
	}
	before := r.attr("f")
	if err := r.o.Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.wantContents("f", want)
	if a := r.attr("f"); a != before && a.Mtime != before.Mtime {
		t.Errorf("attributes were %+v, are %+v", before, a)
	}
	m = mount()
	got, err = os.ReadFile(filepath.Join(m, "f"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the kernel reads %d bytes, %v", len(got), err)
	}
	if err := unix.Unmount(m, 0); err != nil {
		t.Fatal(err)
	}
}

// TestBlockUnnamed: a partial file that loses its name can still be written, over a seal, and be linked again.
func TestBlockUnnamed(t *testing.T) {
	sideFiles(t)
	r, want := bigLower(t, 200<<16)
	e, err := r.find("f")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { r.o.Forget(e.Node, 1) }()
	put := func(s string, off int64) {
		t.Helper()
		if _, err := r.o.Write(e.Node, []byte(s), off, nil); err != nil {
			t.Fatal(err)
		}
		copy(want[off:], s)
	}
	same := func(when string) {
		t.Helper()
		got := make([]byte, len(want)+1)
		if k, err := r.o.Read(e.Node, got, 0); err != nil || !bytes.Equal(got[:k], want) {
			t.Errorf("%s: %d bytes, %v", when, k, err)
		}
	}
	put("named", 100)
	if err := r.unlink("f"); err != nil {
		t.Fatal(err)
	}
	put("unlinked", 1<<20)
	same("unlinked")
	r.seal()
	put("sealed", 2<<20)
	same("sealed")
	if _, err := r.o.SetAttr(Caller{}, e.Node, SetAttr{Valid: SetSize, Size: 5 << 20}); err != nil {
		t.Fatal(err)
	}
	want = want[:5<<20]
	same("truncated")
	if entries, err := os.ReadDir(r.upper() + sideSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("side files of the new upper: %v, %v", entries, err)
	}
}

// TestBlockSideFile: the side file goes with the file.
func TestBlockSideFile(t *testing.T) {
	sideFiles(t)
	r, _ := bigLower(t, 200<<16)
	if err := r.write("f", "x", 0); err != nil {
		t.Fatal(err)
	}
	names := func() int {
		entries, err := os.ReadDir(r.upper() + sideSuffix)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	if n := names(); n != 1 {
		t.Errorf("%d side files", n)
	}
	if err := r.on("f", func(n NodeID) error { return errors.Join(r.o.Fsync(n, true), r.unlink("f")) }); err != nil {
		t.Fatal(err)
	}
	if n := names(); n != 0 {
		t.Errorf("%d side files of no file", n)
	}
}

// TestBlockBadMap: a map that is no map is an error, never other contents.
func TestBlockBadMap(t *testing.T) {
	for _, v := range []string{"", "short", string(make([]byte, blocksHeader)), "\x02\x10" + string(make([]byte, 40))} {
		r, _ := bigLower(t, 2<<20)
		if err := r.write("f", "x", 0); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setxattr(filepath.Join(r.upper(), "f"), xattrBlocks, []byte(v), 0); err != nil {
			t.Fatal(err)
		}
		r.reopen()
		err := r.on("f", func(n NodeID) error {
			_, err := r.o.Read(n, make([]byte, 10), 0)
			if err == nil {
				_, err = r.o.Write(n, []byte("y"), 0, nil)
			}
			return err
		})
		if !errors.Is(err, unix.EIO) || errors.Is(err, io.EOF) {
			t.Errorf("map %q: %v", v, err)
		}
	}
}

// TestWholeCopyUp: where a file is copied up as a whole, its holes stay holes.
func TestWholeCopyUp(t *testing.T) {
	dir := t.TempDir()
	want := make([]byte, 8<<20)
	copy(want[4<<20:], "data")
	f, err := os.Create(filepath.Join(dir, "f"))
	if err == nil {
		_, err = f.WriteAt([]byte("data"), 4<<20)
	}
	if err = errors.Join(err, f.Truncate(8<<20), f.Close()); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, dir)
	r.o.opts.BlockCopyUp = -1
	if err := r.write("f", "DATA", 0); err != nil {
		t.Fatal(err)
	}
	copy(want, "DATA")
	r.wantContents("f", want)
	host := r.hostFileOf("f")
	if n, err := unix.Fgetxattr(int(host.Fd()), xattrMetacopy, nil); !errors.Is(err, unix.ENODATA) {
		t.Errorf("metacopy attribute of %d bytes, %v", n, err)
	}
	if got := allocatedBytes(t, host); got > 64<<10 {
		t.Errorf("%d bytes allocated", got)
	}
}

// TestBlockMapLimits: maps that no file has are refused, and that of the longest file is taken.
func TestBlockMapLimits(t *testing.T) {
	for _, bad := range []struct {
		shift byte
		limit uint64
	}{{15, 1 << 20}, {26, 1 << 30}, {62, 1<<63 - 1}, {43, 1<<63 - 1}, {16, 1 << 63}, {16, 1 << 40}} {
		b := make([]byte, blocksHeader)
		b[0], b[1] = blocksVersion, bad.shift
		binary.LittleEndian.PutUint64(b[8:], bad.limit)
		if _, err := parseBlockMap(b, ""); err == nil {
			t.Errorf("%d bytes in blocks of 2^%d are taken", bad.limit, bad.shift)
		}
	}
	m := newBlockMap(maxPartial, "")
	if _, err := parseBlockMap(m.encode(), ""); err != nil {
		t.Errorf("the map of the longest partial file: %v", err)
	}
	if err := m.claim(location{dirfd: -1}, 0, 0, func(int64) blockState { return blockOwn }); err == nil {
		t.Error("a claim in a file that is none")
	}
	if own, n := m.run(maxPartial-1, 1); own || n != 1 {
		t.Errorf("the last byte: own %v, %d bytes", own, n)
	}
	if own, n := m.run(maxPartial, 7); !own || n != 7 {
		t.Errorf("behind the last byte: own %v, %d bytes", own, n)
	}
}
