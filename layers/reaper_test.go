package layers

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openFDs counts the descriptors of the process.
func openFDs(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// TestReaper: what was removed and forgotten is closed soon, all of it, and nothing is left when the overlay is.
func TestReaper(t *testing.T) {
	const n = 300
	r := newRig(t)
	before, pinned := openFDs(t), pins.Load()
	var gone []Forgotten
	for i := range n {
		name := fmt.Sprintf("f%d", i)
		r.create(name, "text")
		e, err := r.find(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.unlink(name); err != nil {
			t.Fatal(err)
		}
		gone = append(gone, Forgotten{e.Node, 1 << 20}, Forgotten{e.Node, 1}) // more than there are; not known
	}
	if got := pins.Load() - pinned; got != n {
		t.Errorf("%d files are held, want %d", got, n)
	}
	r.o.ForgetAll(append(gone, Forgotten{RootNode, 1}))
	r.o.reaper.drain()
	if got := pins.Load() - pinned; got != 0 {
		t.Errorf("%d files are held that nobody knows", got)
	}
	if got := openFDs(t); got > before {
		t.Errorf("%d descriptors, %d before", got, before)
	}
	r.wantNodes(1)
}

// TestReaperFull: beyond its bound who brings a descriptor closes it himself.
func TestReaperFull(t *testing.T) {
	r := &reaper{queue: make([]reaped, maxReaped), busy: reapers}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close() //nolint:errcheck // read only
	fd, err := unix.Dup(int(write.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	r.take(reaped{fd: fd})
	if len(r.queue) != maxReaped {
		t.Errorf("%d wait", len(r.queue))
	}
	if err := read.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if n, err := read.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("it is still open: %d, %v", n, err)
	}
}
