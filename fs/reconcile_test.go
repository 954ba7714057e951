package fs_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/testmount"
)

// TestReconciled: references that a server which was killed has counted, and the kernel does not have, as after a FORGET
// that it has read and not noted, are given back. What programs have stays.
func TestReconciled(t *testing.T) {
	m := testmount.Start(t, testmount.Config{Live: true, Reconcile: 100 * time.Millisecond})
	for _, name := range []string{"held", "lost"} {
		if err := os.WriteFile(filepath.Join(m.Dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		m.Refer(name)
	}
	held, err := os.OpenFile(filepath.Join(m.Dir, "held"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	for _, name := range []string{"held", "lost"} {
		if err := os.Remove(filepath.Join(m.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	m.Replace()
	wait := func(nodes int64) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			got := m.Records()
			if got == nodes {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d nodes are recorded, want %d", got, nodes)
			}
		}
	}
	wait(1)
	if _, err := held.WriteString("more"); err != nil {
		t.Error(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(held.Fd()), &st); err != nil || st.Nlink != 0 || st.Size != 4 {
		t.Errorf("got %d links, %d bytes, %v", st.Nlink, st.Size, err)
	}
	if err := held.Close(); err != nil {
		t.Error(err)
	}
	wait(0)
}
