package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"snapfs/sandbox"
)

// listing maps the paths below dir to what tells whether they were touched.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err == nil {
			all[path] = fmt.Sprint(fi.Mode(), fi.Size(), fi.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// wantRefused opens a directory that must be refused and left as it is.
func wantRefused(t *testing.T, dir string, class error, says string) {
	t.Helper()
	before := listing(t, dir)
	h, err := sandbox.Open(t.Context(), dir, sandbox.Options{})
	if err == nil {
		t.Errorf("%s was opened", dir)
		_ = h.Close() // it should not be open
		return
	}
	if !errors.Is(err, class) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got error %q, want class %v saying %q on one line", err, class, says)
	}
	if after := listing(t, dir); !maps.Equal(before, after) {
		t.Errorf("the directory was touched:\n%v\n%v", before, after)
	}
}

// makeHome makes a home with a workspace in it.
func makeHome(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "home")
	h := openHome(t, dir, sandbox.Options{})
	if _, err := h.Create(t.Context(), sandbox.CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestOpenRefusesForeign(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "photo.jpg"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, dir, sandbox.ErrInvalid, "photo.jpg")

	file := filepath.Join(dir, "photo.jpg")
	if _, err := sandbox.Open(t.Context(), file, sandbox.Options{}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a file as home: got %v", err)
	}
}

func TestOpenRefusesMarker(t *testing.T) {
	dir := makeHome(t)
	marker := filepath.Join(dir, "snapfs-home")
	good, err := os.ReadFile(marker)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct {
		name, contents string
		class          error
		says           string
	}{
		{"foreign", "something else\n", sandbox.ErrCorrupt, "marker"},
		{"empty", "", sandbox.ErrCorrupt, "marker"},
		{"truncated", string(good[:len(good)-4]), sandbox.ErrCorrupt, "truncated"},
		{"other version", "snapfs home\n{\"version\":2}\n", sandbox.ErrInvalid, "version 2"},
		{"damaged version", strings.Replace(string(good), `"version":1`, `"version":2`, 1), sandbox.ErrCorrupt, "damaged"},
		{"no identity", "snapfs home\n{\"version\":1}\n", sandbox.ErrCorrupt, "identity"},
	} {
		t.Run(bad.name, func(t *testing.T) {
			if err := os.WriteFile(marker, []byte(bad.contents), 0o600); err != nil {
				t.Fatal(err)
			}
			wantRefused(t, dir, bad.class, bad.says)
		})
	}
	if err := os.Remove(marker); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, dir, sandbox.ErrCorrupt, "snapfs-home")
	if err := os.WriteFile(marker, good, 0o600); err != nil {
		t.Fatal(err)
	}
	h := openHome(t, dir, sandbox.Options{MustExist: true})
	if _, err := h.Show(t.Context(), sandbox.RefRequest{Ref: "w"}); err != nil {
		t.Error(err)
	}
}

func TestOpenRefusesMissingStore(t *testing.T) {
	for _, lost := range []string{"store", "store/FORMAT", "store/index", "uppers"} {
		t.Run(lost, func(t *testing.T) {
			dir := makeHome(t)
			aside := filepath.Join(t.TempDir(), "aside")
			if err := os.Rename(filepath.Join(dir, lost), aside); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				h, err := sandbox.Open(t.Context(), dir, sandbox.Options{})
				if err == nil {
					_ = h.Close() // it should not be open
				}
				if !errors.Is(err, sandbox.ErrCorrupt) {
					t.Fatalf("got %v, want corrupt", err)
				}
			}
			if err := os.RemoveAll(filepath.Join(dir, lost)); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(aside, filepath.Join(dir, lost)); err != nil {
				t.Fatal(err)
			}
			h := openHome(t, dir, sandbox.Options{})
			if _, err := h.Show(t.Context(), sandbox.RefRequest{Ref: "w"}); err != nil {
				t.Errorf("after the way back: %v", err)
			}
		})
	}
}

func TestOpenLocked(t *testing.T) {
	dir := makeHome(t)
	openHome(t, dir, sandbox.Options{})
	_, err := sandbox.Open(t.Context(), dir, sandbox.Options{})
	if !errors.Is(err, sandbox.ErrConflict) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("got %v, want a conflict that names process %d", err, os.Getpid())
	}
	// Neither does it help to remove the files that name the process.
	for _, name := range []string{"lock", "store/LOCK"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := sandbox.Open(t.Context(), dir, sandbox.Options{}); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("without lock files: got %v, want a conflict", err)
	}
}

func TestOpenMustExist(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	_, err := sandbox.Open(t.Context(), dir, sandbox.Options{MustExist: true})
	if !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("got %v, want not found", err)
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Error("the home was made")
	}
}

func TestOpenHalfMade(t *testing.T) {
	// What a kill leaves of a first Open.
	dir := filepath.Join(t.TempDir(), "home")
	if err := os.MkdirAll(filepath.Join(dir, "store/index"), 0o700); err != nil {
		t.Fatal(err)
	}
	const half = "snapfs home\n{\"version\":1,\"id\":\"6f1c4a4e-6f0b-4b62-b0d5-0d7f4f0c8a11\",\"state\":\"new\"}\n"
	for name, data := range map[string]string{"snapfs-home": half, "store/index/junk": "junk", "lock": "1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := openHome(t, dir, sandbox.Options{})
	if _, err := h.Create(t.Context(), sandbox.CreateRequest{Name: "w"}); err != nil {
		t.Error(err)
	}
}

func TestOpenSetsAside(t *testing.T) {
	dir := makeHome(t)
	for _, sub := range []string{"77/upper/dir", "78/upper", "78/work", "notes"} {
		if err := os.MkdirAll(filepath.Join(dir, "uppers", sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	h := openHome(t, dir, sandbox.Options{})
	found, err := filepath.Glob(filepath.Join(dir, "lost+found", "77-*", "upper", "dir"))
	if err != nil || len(found) != 1 {
		t.Errorf("in lost+found: %v, %v", found, err)
	}
	left, err := os.ReadDir(filepath.Join(dir, "uppers"))
	if err != nil || len(left) != 1 {
		t.Errorf("in uppers: %v, %v", left, err)
	}
	if _, err := h.Show(t.Context(), sandbox.RefRequest{Ref: "w"}); err != nil {
		t.Error(err)
	}
}

func TestClosed(t *testing.T) {
	h := openHome(t, makeHome(t), sandbox.Options{})
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Show(t.Context(), sandbox.RefRequest{Ref: "w"}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("got %v, want unavailable", err)
	}
}

// TestOpenPrivilege opens homes as nobody, and on a read-only file system, each in a child process.
func TestOpenPrivilege(t *testing.T) {
	dir, err := os.MkdirTemp("", "snapfs-privilege-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := func(text string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "sh", "-c", text, "sh", exe, dir)
		cmd.WaitDelay = time.Second
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	open := `SNAPFS_TEST_OPEN=`
	got := script(`set -e; chmod 777 "$2"; cp "$1" "$2/test"; ` + open + `"$2/home" setpriv --reuid 65534 --regid 65534 --clear-groups "$2/test"; rm "$2/test"; ls -A "$2"`)
	if got != "<nil>\nhome" { // a home of that user
		t.Errorf("as nobody: got %q", got)
	}
	got = script(`set -e; mkdir "$2/ro"; mount -t tmpfs -o ro none "$2/ro"; trap 'umount "$2/ro"' EXIT; ` + open + `"$2/ro/a/home" "$1"`)
	if !strings.HasPrefix(got, "unavailable: ") || !strings.Contains(got, "read-only") || strings.Contains(got, "\n") {
		t.Errorf("on a read-only file system: got %q", got)
	}
}
