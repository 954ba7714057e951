package fs_test

import (
	"bytes"
	"math/rand"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// blockBehaviours are about files that are large enough to be copied up by blocks.
var blockBehaviours = map[string]behaviour{
	"BlockWrites": {seed: seedBig, check: func(w *world) {
		b := openBig(w, "big")
		ino, blocks := w.stat("big").Ino, w.stat("big").Blocks
		b.write(1<<20+5, 10)
		b.write(0, 4096)
		b.write(2<<20-100, 70_000)
		if st := w.stat("big"); st.Ino != ino || st.Size != bigSize || st.Blocks < blocks/2 || st.Blocks > 2*blocks {
			w.Errorf("%d blocks of inode %d, %d bytes; were %d of inode %d", st.Blocks, st.Ino, st.Size, blocks, ino)
		}
		b.same("written")
		w.must(b.f.Truncate(1<<20 + 77))
		w.must(b.model.Truncate(1<<20 + 77))
		w.must(b.f.Truncate(2 << 20))
		w.must(b.model.Truncate(2 << 20))
		b.same("cut off and made longer")
		w.must(b.f.Sync())
	}},
	"BlockAppend": {seed: seedBig, check: func(w *world) {
		w.mustSh(0, "printf tail >> big && printf more >> d/other")
		w.wantTail("big", "tailmore")
		if a, b := w.stat("big"), w.stat("d/other"); a.Ino != b.Ino || a.Nlink != 2 || a.Size != bigSize+8 {
			w.Errorf("names are inodes %d and %d with %d links, %d bytes", a.Ino, b.Ino, a.Nlink, a.Size)
		}
	}},
	"BlockMmap": {seed: seedBig, check: func(w *world) {
		b := openBig(w, "big")
		mem, err := unix.Mmap(int(b.f.Fd()), 0, bigSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		w.must(err)
		for _, off := range []int{5, 700_000, bigSize - 3} {
			copy(mem[off:off+3], "map")
			_, err := b.model.WriteAt([]byte("map"), int64(off))
			w.must(err)
		}
		w.must(unix.Msync(mem, unix.MS_SYNC))
		b.same("mapped")
		b.write(100, 50)
		if !bytes.Equal(mem[100:150], b.data(100, 50)) {
			w.Errorf("a mapping does not show what was written")
		}
		w.must(unix.Munmap(mem))
		b.same("unmapped")
	}},
	"BlockHoles": {seed: seedBig, check: func(w *world) {
		b := openBig(w, "big")
		for _, mode := range []uint32{unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_ZERO_RANGE, 0} {
			off := int64(mode)<<16 + 300_000
			w.must(unix.Fallocate(int(b.f.Fd()), mode, off, 200_000))
			w.must(unix.Fallocate(int(b.model.Fd()), mode, off, 200_000))
			b.same("fallocate")
		}
		if err := unix.Fallocate(int(b.f.Fd()), unix.FALLOC_FL_COLLAPSE_RANGE, 1<<20, 1<<16); err == nil {
			w.must(unix.Fallocate(int(b.model.Fd()), unix.FALLOC_FL_COLLAPSE_RANGE, 1<<20, 1<<16))
		}
		b.same("collapse")
	}},
	"BlockCopyRange": {seed: seedBig, check: func(w *world) {
		b := openBig(w, "big")
		b.write(1<<20, 100)
		out := w.open("out", os.O_CREATE|os.O_RDWR)
		for done := 0; done < bigSize; {
			n, err := unix.CopyFileRange(int(b.f.Fd()), nil, int(out.Fd()), nil, bigSize-done, 0)
			w.must(err)
			if done += n; n == 0 {
				break
			}
		}
		got, err := os.ReadFile(w.path("out"))
		if err != nil || !bytes.Equal(got, b.data(0, bigSize)) {
			w.Errorf("copied %d bytes, %v", len(got), err)
		}
		from, to := int64(5), int64(2<<20)
		n, err := unix.CopyFileRange(int(out.Fd()), &from, int(b.f.Fd()), &to, 100_000, 0)
		w.must(err)
		_, err = b.model.WriteAt(got[5:5+n], 2<<20)
		w.must(err)
		b.same("copied into")
	}},
	"BlockDirect": {seed: seedBig, check: func(w *world) {
		b := openBig(w, "big")
		f := w.open("big", os.O_RDWR|syscall.O_DIRECT)
		mem := aligned(8192)
		copy(mem, bytes.Repeat([]byte("direct"), 1000))
		_, err := f.WriteAt(mem, 1<<20-4096)
		w.must(err)
		_, err = b.model.WriteAt(mem, 1<<20-4096)
		w.must(err)
		b.same("direct")
	}},
	"BlockMetadataFirst": {seed: seedBig, check: func(w *world) {
		w.must(os.Chmod(w.path("big"), 0o600))
		w.must(os.Rename(w.path("big"), w.path("moved")))
		b := openBig(w, "moved")
		b.write(123, 456)
		b.same("moved")
		w.must(os.Remove(w.path("moved")))
		b.write(2<<20, 456)
		b.same("removed")
	}},
}

const bigSize = 3<<20 + 321

// seedBig makes a large file with two names.
func seedBig(w *world) {
	p := make([]byte, bigSize)
	rand.New(rand.NewSource(9)).Read(p)
	clear(p[600_000:1_300_000])
	w.must(os.WriteFile(w.path("big"), p, 0o666))
	w.must(os.Mkdir(w.path("d"), 0o777))
	w.must(os.Link(w.path("big"), w.path("d/other")))
}

// bigFile is a large file, and a plain one with the same history outside of the mount.
type bigFile struct {
	w        *world
	f, model *os.File
	rnd      *rand.Rand
}

func openBig(w *world, name string) *bigFile {
	w.Helper()
	data, err := os.ReadFile(w.path(name))
	w.must(err)
	b := &bigFile{w: w, f: w.open(name, os.O_RDWR), rnd: rand.New(rand.NewSource(3))}
	model := filepath.Join(w.TempDir(), "model")
	w.must(os.WriteFile(model, data, 0o600))
	b.model, err = os.OpenFile(model, os.O_RDWR, 0)
	w.must(err)
	w.Cleanup(func() { _ = b.model.Close() })
	return b
}

func (b *bigFile) write(off int64, n int) {
	b.w.Helper()
	p := make([]byte, n)
	b.rnd.Read(p)
	for _, f := range []*os.File{b.f, b.model} {
		_, err := f.WriteAt(p, off)
		b.w.must(err)
	}
}

// data is what the file should have.
func (b *bigFile) data(off int64, n int) []byte {
	b.w.Helper()
	p := make([]byte, n)
	_, err := b.model.ReadAt(p, off)
	b.w.must(err)
	return p
}

func (b *bigFile) same(when string) {
	b.w.Helper()
	got, want := make([]byte, 4<<20), make([]byte, 4<<20)
	n, _ := b.f.ReadAt(got, 0) // io.EOF
	k, _ := b.model.ReadAt(want, 0)
	if n != k || !bytes.Equal(got[:n], want[:k]) {
		b.w.Errorf("%s: contents differ, %d bytes, want %d", when, n, k)
	}
}

func (w *world) wantTail(name, text string) {
	w.Helper()
	got, err := os.ReadFile(w.path(name))
	if err != nil || !bytes.HasSuffix(got, []byte(text)) {
		w.Errorf("%s: %d bytes, want %q at the end, %v", name, len(got), text, err)
	}
}
