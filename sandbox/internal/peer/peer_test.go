package peer

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

var nobody = &User{UID: 4321, GID: 4322, Groups: []uint32{4323}}

func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// TestOf: the user at the other end of a connection has the numbers and groups of who connected.
func TestOf(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nothing is written
	client, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // nothing is written
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing is written
	u, err := Of(conn)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if int(u.UID) != os.Geteuid() || int(u.GID) != os.Getegid() || len(u.Groups) != len(groups) {
		t.Errorf("%+v, want uid %d, gid %d, groups %v", u, os.Geteuid(), os.Getegid(), groups)
	}
	for _, g := range groups {
		if !u.In(uint32(g)) {
			t.Errorf("%+v is not in %d", u, g)
		}
	}
}

// TestDo: what is done for a user is done with its rights, by several threads at once; this process keeps its own.
func TestDo(t *testing.T) {
	asRoot(t)
	dir := t.TempDir()
	secret, open := filepath.Join(dir, "secret"), filepath.Join(dir, "open")
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755), os.WriteFile(secret, nil, 0o600),
		os.Mkdir(open, 0o700), os.Chown(open, int(nobody.UID), int(nobody.GID))); err != nil {
		t.Fatal(err)
	}
	threads := nobody.Threads()
	var all sync.WaitGroup
	for i := range 4 * maxIdle {
		all.Go(func() {
			err := threads.Do(func() error {
				if _, err := os.ReadFile(secret); !errors.Is(err, fs.ErrPermission) {
					t.Errorf("a file of root: %v", err)
				}
				groups, err := syscall.Getgroups()
				if err != nil || !slices.Equal(groups, []int{4323}) {
					t.Errorf("groups %v, %v", groups, err)
				}
				name := filepath.Join(open, string(rune('a'+i)))
				if err := unix.Mknod(name, unix.S_IFCHR|0o600, 0x501); !errors.Is(err, unix.EPERM) {
					t.Errorf("a device: %v", err)
				}
				if err := os.WriteFile(name, nil, 0o600); err != nil {
					return err
				}
				if err := unix.Setxattr(name, "trusted.x", nil, 0); !errors.Is(err, unix.EPERM) {
					t.Errorf("a trusted attribute: %v", err)
				}
				if err := unix.Chown(name, 0, 0); !errors.Is(err, unix.EPERM) {
					t.Errorf("giving a file away: %v", err)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			if _, err := os.ReadFile(secret); err != nil {
				t.Errorf("this process: %v", err)
			}
		})
	}
	all.Wait()
	threads.Close()
	fi, err := os.Stat(filepath.Join(open, "a"))
	if err != nil {
		t.Fatal(err)
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); !ok || st.Uid != nobody.UID || st.Gid != nobody.GID {
		t.Errorf("the file is of %+v, want %+v", st, nobody)
	}
	if err := (*User)(nil).Do(func() error { _, err := os.ReadFile(secret); return err }); err != nil {
		t.Errorf("no user: %v", err)
	}
}

// TestDoNew: programs that are started while threads have less rights have all rights of this process.
func TestDoNew(t *testing.T) {
	asRoot(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			_ = nobody.Do(func() error {
				done := make(chan uint32)
				go func() { // another thread, often a new one
					now, _ := unix.SetfsuidRetUid(-1)
					done <- uint32(now)
				}()
				if uid := <-done; uid != 0 {
					t.Errorf("a goroutine that fn starts has fsuid %d", uid)
				}
				return nil
			})
		})
	}
	all.Wait()
}
