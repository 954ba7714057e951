package livestate_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
)

// again opens a state by another descriptor, as a successor does.
func again(t *testing.T, s *livestate.State) *livestate.State {
	t.Helper()
	fd, err := unix.FcntlInt(s.File().Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	next, err := livestate.Open(os.NewFile(uintptr(fd), "copy"))
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func TestSuccessor(t *testing.T) {
	s, err := livestate.Create("w")
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.Nodes(4096)
	if err != nil {
		t.Fatal(err)
	}
	all, err := s.Nodes(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	first[7], all[1<<20-1], s.Connection()[0], s.Intents()[livestate.IntentsSize-1] = 1, 2, 3, 4
	if err := s.Unmap(first); err != nil {
		t.Fatal(err)
	}
	next := again(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	nodes, err := next.Nodes(1)
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes) != 1<<20 || nodes[7] != 1 || nodes[1<<20-1] != 2 || next.Connection()[0] != 3 ||
		next.Intents()[livestate.IntentsSize-1] != 4 {
		t.Error("the successor does not see what was written")
	}
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestNoState(t *testing.T) {
	plain, err := os.Create(filepath.Join(t.TempDir(), "plain"))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	memory := os.NewFile(uintptr(fd), "memory")
	for _, f := range []*os.File{plain, memory} {
		if err := f.Truncate(1 << 20); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := livestate.Open(plain); !errors.Is(err, livestate.ErrFormat) {
		t.Error("a file of a disk:", err)
	}
	if _, err := livestate.Open(memory); !errors.Is(err, livestate.ErrFormat) {
		t.Error("memory that may shrink:", err)
	}
	if _, err := unix.FcntlInt(memory.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		t.Fatal(err)
	}
	if _, err := livestate.Open(memory); !errors.Is(err, livestate.ErrFormat) {
		t.Error("memory without a header:", err)
	}
	for _, f := range []*os.File{plain, memory} {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
