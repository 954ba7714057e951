package iouring

import (
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// open makes a ring, where the kernel lets us.
func open(t *testing.T, n uint32) *Ring {
	t.Helper()
	r, err := New(n, time.Millisecond)
	if err != nil {
		t.Logf("the kernel gives no ring, nothing is tested: %v", err)
		t.SkipNow()
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// uninterrupted is a call again after each signal: the Go runtime sends some.
func uninterrupted(enter func(n uint32) unix.Errno) unix.Errno {
	for {
		if errno := enter(0); errno != unix.EINTR {
			return errno
		}
	}
}

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"submission", unsafe.Sizeof(SQE{}), 128},
		{"arguments", unsafe.Offsetof(SQE{}.Cmd), 48},
		{"completion", unsafe.Sizeof(CQE{}), 16},
		{"params", unsafe.Sizeof(params{}), 120},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, c.got, c.want)
		}
	}
}

// TestRound checks that many rounds of full queues come back in order, none lost.
func TestRound(t *testing.T) {
	const n = 8
	r := open(t, n)
	want := uint64(0)
	sent := uint64(0)
	for range 100 {
		for s := r.Next(); s != nil; s = r.Next() {
			s.Opcode, s.UserData = OpNop, sent
			sent++
		}
		r.Publish()
		if q := r.Queued(); q != n {
			t.Fatalf("%d queued, want %d", q, n)
		}
		if errno := r.Enter(n); errno != 0 {
			t.Fatal(errno)
		}
		if !r.More() {
			t.Fatal("nothing waits")
		}
		seen := want
		r.Waiting(func(c CQE) bool { seen++; return true })
		for c, ok := r.Pop(); ok; c, ok = r.Pop() {
			if c.UserData != want || c.Res != 0 {
				t.Fatalf("got %d with %d, want %d", c.UserData, c.Res, want)
			}
			want++
		}
		if seen != want || want != sent {
			t.Fatalf("sent %d, seen %d, got %d", sent, seen, want)
		}
	}
}

// TestRead checks a command that has to wait.
func TestRead(t *testing.T) {
	r := open(t, 4)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing is written that could fail late
	word := new([8]byte)
	s := r.Next()
	s.Opcode, s.FD, s.Off, s.Len, s.UserData = OpRead, int32(fd), ^uint64(0), 8, 7
	s.Addr = uint64(uintptr(unsafe.Pointer(word)))
	r.Publish()
	if errno := r.Submit(1); errno != 0 {
		t.Fatal(errno)
	}
	if r.More() {
		t.Error("it does not wait")
	}
	if errno := uninterrupted(r.EnterFor); errno != unix.ETIME || r.More() {
		t.Errorf("got %v, want %v", errno, unix.ETIME)
	}
	if _, err := unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	if errno := uninterrupted(r.Enter); errno != 0 {
		t.Fatal(errno)
	}
	if c, ok := r.Pop(); !ok || c.UserData != 7 || c.Res != 8 || word[0] != 1 {
		t.Errorf("got %+v, %v, %v", c, ok, word)
	}
}
