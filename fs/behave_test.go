package fs_test

import (
	"context"
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

// behaviour is one promise of the file system. seed makes what it starts from, where the variant wants it: in the
// mount, in a sealed directory or in an image below it. check then runs in the mount.
type behaviour struct {
	seed  func(w *world)
	check func(w *world)
}

// world is the directory that belongs to one behaviour.
type world struct {
	*testing.T
	dir string
	fs  *testmount.FS // nil while seeding beneath a mount
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// want fails unless err is the errno, 0 being success.
func (w *world) want(what string, err error, errno syscall.Errno) {
	w.Helper()
	if errno == 0 && err == nil || errno != 0 && errors.Is(err, errno) {
		return
	}
	w.Errorf("%s: got %v, want %v", what, err, errno)
}

func (w *world) write(name, text string) {
	w.Helper()
	w.must(os.WriteFile(w.path(name), []byte(text), 0o644))
}

func (w *world) wantText(name, text string) {
	w.Helper()
	got, err := os.ReadFile(w.path(name))
	if err != nil || string(got) != text {
		w.Errorf("%s: got %.60q (%d bytes), %v; want %.60q (%d bytes)", name, got, len(got), err, text, len(text))
	}
}

// tick waits until the clock of file times is past a time.
func (w *world) tick(past syscall.Timespec) {
	for now := (unix.Timespec{}); now.Nano() <= past.Nano(); time.Sleep(time.Millisecond) {
		w.must(unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now))
	}
}

func (w *world) stat(name string) syscall.Stat_t {
	w.Helper()
	var st syscall.Stat_t
	w.must(syscall.Lstat(w.path(name), &st))
	return st
}

func (w *world) open(name string, flags int) *os.File {
	w.Helper()
	f, err := os.OpenFile(w.path(name), flags, 0o644)
	w.must(err)
	w.Cleanup(func() { _ = f.Close() }) // most tests have closed it
	return f
}

// sh runs a shell in the directory, as another user if uid is not 0, and gives its output.
func (w *world) sh(uid uint32, script string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Dir = w.dir
	cmd.WaitDelay = time.Second
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (w *world) mustSh(uid uint32, script string) string {
	w.Helper()
	out, err := w.sh(uid, script)
	if err != nil {
		w.Fatalf("%s: %v: %s", script, err, out)
	}
	return out
}

// TestBehaviour checks every promise on files of the upper, of a sealed directory, of an image, and of an upper that
// was sealed beneath the running mount.
func TestBehaviour(t *testing.T) {
	behaviours := map[string]behaviour{}
	for _, set := range []map[string]behaviour{
		fileBehaviours, nameBehaviours, linkBehaviours, dirBehaviours, metaBehaviours, blockBehaviours,
	} {
		for name, b := range set {
			behaviours[name] = b
		}
	}
	for _, variant := range []string{"upper", "sealed", "image", "live"} {
		t.Run(variant, func(t *testing.T) {
			base := openDir(t)
			lower := filepath.Join(base, "lower")
			if err := os.Mkdir(lower, 0o755); err != nil {
				t.Fatal(err)
			}
			seedAll := func(dir string, fs *testmount.FS) {
				syscall.Umask(0o022)
				for name, b := range behaviours {
					w := &world{T: t, dir: filepath.Join(dir, name), fs: fs}
					w.must(os.Mkdir(w.dir, 0o777))
					w.must(os.Chmod(w.dir, 0o777))
					if b.seed != nil {
						b.seed(w)
					}
				}
			}
			c := testmount.Config{Dir: filepath.Join(base, "ws"), Mount: filepath.Join(base, "mnt")}
			switch variant {
			case "sealed":
				seedAll(lower, nil)
				c.Sealed = []string{lower}
			case "image":
				seedAll(lower, nil)
				image := filepath.Join(base, "image.sqsh")
				run(t, "mksquashfs", lower, image, "-quiet", "-no-progress", "-xattrs", "-noI", "-noD", "-noF", "-noX")
				c.Images = []string{image}
			}
			fs := testmount.Start(t, c)
			if variant == "upper" || variant == "live" {
				seedAll(fs.Dir, fs)
			}
			if variant == "live" {
				fs.Seal("seeded")
			}
			for name, b := range behaviours {
				t.Run(name, func(t *testing.T) {
					b.check(&world{T: t, dir: filepath.Join(fs.Dir, name), fs: fs})
				})
			}
		})
	}
}

// openDir is a temporary directory that other users may enter.
func openDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// run runs a program that must succeed.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}
