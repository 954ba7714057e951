package transport_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/fs/internal/transport"
	"snapfs/internal/testmount"
)

// TestAbortEnded: to abort a connection that has just ended by itself does not end that of another mount which has got
// its number.
func TestAbortEnded(t *testing.T) {
	fs := testmount.Start(t, testmount.Config{})
	var st unix.Stat_t
	if err := unix.Stat(fs.Dir, &st); err != nil {
		t.Fatal(err)
	}
	if err := transport.AbortConnection(st.Dev, func() bool { return true }); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(fs.Dir, "f"), []byte("still there"), 0o600); err != nil {
		t.Error(err)
	}
	if err := fs.Unmount(true); err != nil {
		t.Error(err)
	}
	if err := transport.AbortConnection(st.Dev, func() bool { return true }); err != nil {
		t.Errorf("a connection that is gone: %v", err)
	}
}
