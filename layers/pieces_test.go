package layers

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestPieces: a call that closes the gate while much data is copied or allocated gets in between, and sees a part of
// it.
func TestPieces(t *testing.T) {
	const size = 64 << 20
	r := newRig(t)
	r.create("from", "x")
	r.create("to", "")
	from, to := r.nodeOf("from"), r.nodeOf("to")
	f, err := r.o.openWritable(from, true)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 1<<20)
	for off := int64(0); off < size; off += int64(len(data)) {
		data[0] = byte(off >> 20)
		if _, err := f.write(data, off); err != nil {
			t.Fatal(err)
		}
	}
	f.release()
	for name, op := range map[string]func() error{
		"copy": func() error {
			k, err := r.o.CopyRange(from, 0, to, 0, size)
			if k != size {
				t.Errorf("%d bytes copied", k)
			}
			return err
		},
		"allocate": func() error { return r.o.Fallocate(to, 0, 0, size) },
	} {
		t.Run(name, func(t *testing.T) {
			for range 50 {
				if _, err := r.o.SetAttr(Caller{}, to, SetAttr{Valid: SetSize}); err != nil {
					t.Fatal(err)
				}
				if r.between(t, to, size, op) {
					return
				}
			}
			t.Error("nobody got in between")
		})
	}
}

// nodeOf looks a path up, and keeps it until the test ends.
func (r *rig) nodeOf(path string) NodeID {
	r.t.Helper()
	e, err := r.find(path)
	if err != nil {
		r.t.Fatal(err)
	}
	return e.Node
}

// between runs op, and reports whether one who closed the gate meanwhile saw some of a file's blocks, but not all.
func (r *rig) between(t *testing.T, id NodeID, size uint64, op func() error) (some bool) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := op(); err != nil {
			t.Error(err)
		}
	}()
	for {
		select {
		case <-done:
			a, err := r.o.GetAttr(id)
			if err != nil || a.Size != size {
				t.Errorf("%d bytes in the end, %v", a.Size, err)
			}
			return some
		default:
		}
		r.o.Pause()
		var st unix.Stat_t
		err := unix.Stat(r.upper()+"/to", &st)
		r.o.Resume()
		if err != nil {
			t.Error(err)
		}
		some = some || st.Blocks > 0 && uint64(st.Blocks)*512 < size
	}
}
