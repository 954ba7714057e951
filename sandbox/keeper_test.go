package sandbox

import (
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// fakeKeeper keeps copies of descriptors in this process.
type fakeKeeper struct {
	t    *testing.T
	mu   sync.Mutex
	kept map[string]Kept // guarded by mu
}

func newFakeKeeper(t *testing.T) *fakeKeeper {
	k := &fakeKeeper{t: t, kept: map[string]Kept{}}
	t.Cleanup(func() {
		for name := range maps.Clone(k.kept) {
			_ = k.Forget(name)
		}
	})
	return k
}

func (k *fakeKeeper) copies(files []*os.File) (copies []*os.File) {
	for _, f := range files {
		fd := -1
		raw, err := f.SyscallConn() // as the holder's client does it: the owner may close the file meanwhile
		if err == nil {
			control := raw.Control(func(of uintptr) { fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) })
			err = errors.Join(control, err)
		}
		if err != nil {
			k.t.Error(err)
			continue
		}
		copies = append(copies, os.NewFile(uintptr(fd), f.Name()))
	}
	return copies
}

func (k *fakeKeeper) Keep(name string, data []byte, files ...*os.File) error {
	kept := Kept{Name: name, Data: slices.Clone(data), Files: k.copies(files)}
	k.mu.Lock()
	defer k.mu.Unlock()
	closeKept(k.kept[name].Files)
	k.kept[name] = kept
	return nil
}

func (k *fakeKeeper) Forget(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	closeKept(k.kept[name].Files)
	delete(k.kept, name)
	return nil
}

func (k *fakeKeeper) Get(name string) (Kept, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	kept := k.kept[name]
	kept.Files = k.copies(kept.Files)
	return kept, nil
}

func (k *fakeKeeper) Kept() (all []Kept, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(k.kept)) {
		kept := k.kept[name]
		kept.Files = k.copies(kept.Files)
		all = append(all, kept)
	}
	return all, nil
}

// TestKeptLock: the lock of a home passes to the next process without a moment in which somebody else can take it, and
// is free when nobody keeps it any more.
func TestKeptLock(t *testing.T) {
	dir, k := t.TempDir(), newFakeKeeper(t)
	refused := func(when string) {
		t.Helper()
		if l, err := lockHome(dir, nil); !errors.Is(err, ErrConflict) {
			t.Errorf("%s: got %v, %v, want a conflict", when, l, err)
		}
	}
	for range 3 {
		kept, err := takeKept(k)
		if err != nil {
			t.Fatal(err)
		}
		l, err := lockHome(dir, kept)
		if err != nil {
			t.Fatal(err)
		}
		refused("locked")
		l.keep(&Home{keeper: k})
		if err := l.Close(); err != nil { // as a process does that is killed
			t.Fatal(err)
		}
		refused("kept")
	}
	kept, err := takeKept(k)
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	l, err := lockHome(other, kept) // descriptors of another home are no lock of this one
	if err != nil {
		t.Fatal(err)
	}
	refused("kept")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := k.Forget(keptLockName); err != nil {
		t.Fatal(err)
	}
	if l, err = lockHome(dir, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
