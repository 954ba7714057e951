package livestate_test

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
)

// TestClaim checks that one process serves at a time, and that one that was killed does not count, even while it is a
// zombie.
func TestClaim(t *testing.T) {
	s, err := livestate.Create("claimed")
	if err != nil {
		t.Fatal(err)
	}
	next := again(t, s)
	defer s.Close()
	defer next.Close()
	if err := s.Claim(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*livestate.State{s, next} {
		if err := c.Claim(); !errors.Is(err, livestate.ErrClaimed) {
			t.Errorf("claimed: got %v, want %v", err, livestate.ErrClaimed)
		}
	}
	s.Release()
	if err := next.Claim(); err != nil {
		t.Errorf("released: %v", err)
	}
	next.Release()

	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	// The claim of another process, as it would have written it.
	claimOf(t, s, cmd.Process.Pid)
	if err := next.Claim(); !errors.Is(err, livestate.ErrClaimed) {
		t.Errorf("claimed by a child: got %v, want %v", err, livestate.ErrClaimed)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // it is a zombie soon, until Wait
		if err = next.Claim(); err == nil || time.Now().After(end) {
			break
		}
	}
	if err != nil {
		t.Errorf("after the death of the other one: %v", err)
	}
}

// claimOf puts the claim of this process into the state, and then the number of another process in its place.
func claimOf(t *testing.T, s *livestate.State, pid int) {
	t.Helper()
	if err := s.Claim(); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(int(s.File().Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem) //nolint:errcheck // cannot fail for what Mmap gave
	const at = 16
	if got := binary.NativeEndian.Uint64(mem[at:]) >> 32; got != uint64(os.Getpid()) {
		t.Fatalf("the claim is of process %d, want %d", got, os.Getpid())
	}
	binary.NativeEndian.PutUint64(mem[at:], uint64(pid)<<32|uint64(livestate.Began(pid)))
}
