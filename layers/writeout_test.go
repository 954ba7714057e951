package layers

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"snapfs/internal/testseed"
)

// TestRow: what is long and without a gap is written out, each byte once, by one goroutine at a time.
func TestRow(t *testing.T) {
	const step = 1 << 20
	var r row
	if _, n := r.add(5, rowLeast); n != rowLeast {
		t.Errorf("a long write: %d bytes are written out, want %d", n, int64(rowLeast))
	}
	r.settled()
	for _, c := range []struct {
		name       string
		off, bytes int64
	}{
		{"from the beginning", 0, 4 * rowLeast},
		{"from within", 3 * rowLeast, 2 * rowLeast},
		{"backwards", 0, rowLeast + rowStep},
	} {
		written := c.off
		for off := c.off; off < c.off+c.bytes; off += step {
			from, n := r.add(off, step)
			long := off+step-c.off >= rowLeast
			switch {
			case n == 0 && long && off+step-written >= rowStep:
				t.Errorf("%s: nothing is written out of %d bytes at %d", c.name, off+step-written, written)
			case n == 0:
				continue
			case !long || from != written || from+n != off+step:
				t.Errorf("%s: %d bytes at %d are written out after %d at %d", c.name, n, from, off+step-c.off, c.off)
			}
			if _, more := r.add(off+step, 0); more != 0 {
				t.Errorf("%s: twice at a time", c.name)
			}
			r.settled()
			written = from + n
		}
		if written < c.off+c.bytes-rowStep {
			t.Errorf("%s: written out up to %d of %d", c.name, written, c.off+c.bytes)
		}
	}
	for off := int64(0); off < 4*rowLeast; off += 2 * step {
		if _, n := r.add(off, step); n != 0 {
			t.Errorf("with gaps: %d bytes are written out at %d", n, off)
		}
	}
}

// TestWriteOut writes a long file, reads it and removes it: nothing is lost, no descriptor is left.
func TestWriteOut(t *testing.T) {
	r := newRig(t)
	r.create("file", "")
	before := openFDs(t)
	e, err := r.find("file")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(testseed.Of(t), 0))
	want := make([]byte, rowLeast+2*rowStep)
	for i := 0; i < len(want); i += 8 {
		binary.NativeEndian.PutUint64(want[i:], rng.Uint64())
	}
	for off := 0; off < len(want); off += 1 << 20 {
		if n, err := r.o.Write(e.Node, want[off:off+1<<20], int64(off), nil); n != 1<<20 || err != nil {
			t.Fatalf("wrote %d bytes at %d: %v", n, off, err)
		}
	}
	r.o.writeOuts.Wait()
	d := descriptors.get(fdKey{r.o.nodes.m[e.Node].top, fdWrite})
	if d == nil {
		t.Fatal("the descriptor is not cached")
	}
	if d.row.begun < rowLeast || d.row.busy {
		t.Errorf("written out up to %d, busy %v", d.row.begun, d.row.busy)
	}
	d.release()
	got := make([]byte, len(want))
	if n, err := r.o.Read(e.Node, got, 0); err != nil || !bytes.Equal(got[:n], want) {
		t.Errorf("read %d bytes, %v, or not what was written", n, err)
	}
	if err := r.o.Fsync(e.Node, true); err != nil {
		t.Error(err)
	}
	if err := r.unlink("file"); err != nil {
		t.Fatal(err)
	}
	r.o.ForgetAll([]Forgotten{{e.Node, 1}})
	r.o.reaper.drain()
	if now := openFDs(t); now > before {
		t.Errorf("%d descriptors, %d before", now, before)
	}
}
