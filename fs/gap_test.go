package fs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/testmount"
)

// program starts a program, and gives what tells how it ended.
func program(t *testing.T, name string, args ...string) (*exec.Cmd, <-chan error) {
	t.Helper()
	cmd := exec.Command(name, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return cmd, ended
}

// TestGap checks what becomes of programs that wait when a server is killed, and of those that come before there is
// another one: they go on, or can be killed.
func TestGap(t *testing.T) {
	m := testmount.Start(t, testmount.Config{Live: true})
	defer m.Abandon()
	// Each in a directory of its own: a program holds its lock while it waits.
	path := func(name string) string { return filepath.Join(m.Dir, "in "+name, name) }
	for _, name := range []string{"before", "doomed", "during", "gone"} {
		if err := os.Mkdir(filepath.Dir(path(name)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Pause(); err != nil {
		t.Fatal(err)
	}
	waits := func(what string, ended <-chan error) {
		t.Helper()
		select {
		case err := <-ended:
			t.Errorf("%s: ended with %v", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	ends := func(what string, ended <-chan error, well bool) {
		t.Helper()
		select {
		case err := <-ended:
			if (err == nil) != well {
				t.Errorf("%s: ended with %v", what, err)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: still waits", what)
		}
	}
	_, before := program(t, "mkdir", path("before"))
	doomed, doomedEnd := program(t, "mkdir", path("doomed"))
	waits("before the kill", before)
	waits("before the kill, to be killed", doomedEnd)
	m.Crash()
	_, during := program(t, "mkdir", path("during"))
	gone, goneEnd := program(t, "mkdir", path("gone"))
	waits("before the kill", before)
	waits("after the kill", during)
	waits("after the kill, to be killed", goneEnd)
	for _, cmd := range []*exec.Cmd{doomed, gone} {
		if err := cmd.Process.Signal(unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	ends("killed before anybody has read its request", goneEnd, false)
	m.Adopt()
	ends("before the kill", before, true)
	ends("after the kill", during, true)
	ends("killed while a server had its request", doomedEnd, false)
	for _, name := range []string{"before", "during"} {
		if fi, err := os.Stat(path(name)); err != nil || !fi.IsDir() {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(path("gone")); !os.IsNotExist(err) {
		t.Errorf("what nobody was asked for is there: %v", err)
	}
}
