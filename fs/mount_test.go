package fs_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/testmount"
)

// TestUnmountBusy checks that an open file keeps the mount, and that a lazy unmount lets it go on.
func TestUnmountBusy(t *testing.T) {
	fs := testmount.Start(t, testmount.Config{})
	f, err := os.Create(filepath.Join(fs.Dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // closed below, this is for failures
	if err := fs.Unmount(false); err == nil || !strings.Contains(err.Error(), unix.EBUSY.Error()) {
		t.Errorf("unmount: got %v, want busy", err)
	}
	if err := fs.Unmount(true); err != nil {
		t.Fatalf("lazy: %v", err)
	}
	if testmount.Mounted(fs.Dir) {
		t.Error("still mounted")
	}
	if _, err := f.WriteString("goes on"); err != nil {
		t.Errorf("write after a lazy unmount: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := fs.WaitDone(); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(filepath.Join(fs.Upper, "f")); err != nil || string(got) != "goes on" {
		t.Errorf("the upper has %q, %v", got, err)
	}
}

// TestNamespaceCopy checks that a copy of the mount in another mount namespace, as a container has it, neither hangs
// the unmount nor loses its file system, and that the end of the copy is the end of the connection.
func TestNamespaceCopy(t *testing.T) {
	for _, kind := range []string{"private", "slave"} {
		t.Run(kind, func(t *testing.T) {
			fs := testmount.Start(t, testmount.Config{})
			if err := os.WriteFile(filepath.Join(fs.Dir, "f"), []byte("seen"), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("unshare", "-m", "--propagation", kind, "sh", "-c", "echo ready; read x; cat f; read x")
			cmd.Dir = fs.Dir
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.WaitDelay = time.Second
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			read := func() string {
				buf := make([]byte, 64)
				n, err := out.Read(buf)
				if err != nil {
					t.Fatal(err)
				}
				return string(buf[:n])
			}
			read()
			if err := fs.Unmount(false); err != nil {
				t.Fatal(err)
			}
			if _, err := in.Write([]byte("\n")); err != nil {
				t.Fatal(err)
			}
			if got := read(); got != "seen" {
				t.Errorf("the copy reads %q", got)
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // killed
			if err := fs.WaitDone(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestKilledServer checks that a crash leaves a dead mount, not hanging programs, and that it can be cleared away.
func TestKilledServer(t *testing.T) {
	fs := testmount.Start(t, testmount.Config{})
	name := filepath.Join(fs.Dir, "f")
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(fs.Dir)
	if err != nil {
		t.Fatal(err)
	}
	fs.Kill()
	for since := time.Now(); ; {
		_, err := os.Stat(filepath.Join(fs.Dir, "g"))
		if errors.Is(err, unix.ENOTCONN) {
			break
		}
		// A request that the kernel was just handing to the dead server's ring comes back like this.
		if !errors.Is(err, unix.ECANCELED) && !errors.Is(err, unix.ECONNABORTED) || time.Since(since) > time.Minute {
			t.Fatalf("stat: got %v, want %v", err, unix.ENOTCONN)
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestAbortInUse checks that programs inside get an error at once.
func TestAbortInUse(t *testing.T) {
	fs := testmount.Start(t, testmount.Config{})
	f, err := os.Create(filepath.Join(fs.Dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	if err := fs.Abort(); err != nil {
		t.Fatal(err)
	}
	if err := fs.WaitDone(); err != nil {
		t.Error(err)
	}
	if _, err := f.WriteString("x"); err == nil {
		t.Error("write works")
	}
	_ = f.Close() // ENOTCONN is in order
}

// TestReadOnly checks both the mount flag and the flags of the table of mounts.
func TestReadOnly(t *testing.T) {
	lower := t.TempDir()
	if err := os.WriteFile(filepath.Join(lower, "f"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	fs := testmount.Start(t, testmount.Config{Sealed: []string{lower}, ReadOnly: true, NoExec: true})
	if err := os.WriteFile(filepath.Join(fs.Dir, "f"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
		t.Errorf("write: got %v, want %v", err, syscall.EROFS)
	}
	if got, err := os.ReadFile(filepath.Join(fs.Dir, "f")); err != nil || string(got) != "x" {
		t.Errorf("got %q, %v", got, err)
	}
	table, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if f[1] != fs.Dir {
			continue
		}
		if f[2] != "fuse.snapfs" || !strings.Contains(f[3], "ro,") || !strings.Contains(f[3], "noexec") {
			t.Errorf("mounted as %s", line)
		}
	}
}
