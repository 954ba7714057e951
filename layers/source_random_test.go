package layers

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/testseed"
	"snapfs/squashfs"
)

// version is what a file has that somebody writes as a whole.
func version(file, turn, size int) string {
	head := fmt.Sprintf("%d/%d/%d:", file, turn, size)
	return head + strings.Repeat(fmt.Sprintf("%x.", turn), size)
}

// wholeVersion reports whether contents are one that version gives, and of which file.
func wholeVersion(data string) (file int, ok bool) {
	var turn, size int
	head, _, found := strings.Cut(data, ":")
	if _, err := fmt.Sscanf(head, "%d/%d/%d", &file, &turn, &size); err != nil || !found {
		return 0, false
	}
	return file, data == version(file, turn, size)
}

// hostileWriter changes a directory until stop is closed.
type hostileWriter struct {
	dir   string
	rng   *rand.Rand
	files int
	moved map[string]bool
	// targets are the names that something was moved to.
	targets map[string]bool
	stop    chan struct{}
	done    sync.WaitGroup
}

func (w *hostileWriter) some() string {
	return filepath.Join(w.dir, fmt.Sprintf("d%d/f%d", w.rng.IntN(8), w.rng.IntN(w.files)))
}

func (w *hostileWriter) run() {
	for turn := 1; ; turn++ {
		select {
		case <-w.stop:
			return
		default:
		}
		p := w.some()
		tmp := filepath.Join(w.dir, ".tmp")
		file := w.rng.IntN(1 << 30)
		data := version(file, turn, w.rng.IntN(20000))
		switch w.rng.IntN(8) {
		case 0: // in place, of the same size
			if old, err := os.ReadFile(p); err == nil {
				if f, err := os.OpenFile(p, os.O_WRONLY, 0); err == nil {
					head, body, _ := strings.Cut(string(old), ":")
					var id, was, size int
					_, _ = fmt.Sscanf(head, "%d/%d/%d", &id, &was, &size)
					now := version(id, was^1, size)
					if len(now) == len(head)+1+len(body) {
						_, _ = f.WriteAt([]byte(now), 0)
					}
					_ = f.Close()
				}
			}
		case 1:
			_ = os.Remove(p)
		case 2: // moved once, to where nothing is
			to := w.some()
			if _, err := os.Lstat(to); err != nil && !w.moved[p] {
				if os.Rename(p, to) == nil {
					w.moved[to], w.targets[to] = true, true
				}
			}
		default: // as an editor does
			if os.WriteFile(tmp, []byte(data), 0o644) == nil && os.Rename(tmp, p) == nil {
				delete(w.moved, p)
			}
		}
		if w.rng.IntN(4) == 0 {
			time.Sleep(time.Duration(w.rng.IntN(2000)) * time.Microsecond)
		}
	}
}

// TestSourceRandom reads a directory that somebody changes all the time while it is imported.
func TestSourceRandom(t *testing.T) {
	seed := testseed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	const files = 40
	s := newSourceScene(t, func(dir string) {
		for d := range 8 {
			for f := range files {
				if rng.IntN(3) > 0 {
					writeHost(t, filepath.Join(dir, fmt.Sprintf("d%d/f%d", d, f)), version(d*files+f, 0, rng.IntN(20000)))
				}
			}
			if err := os.MkdirAll(filepath.Join(dir, fmt.Sprintf("d%d", d)), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	})
	store := openStore(t)
	o := s.overlay()
	w := &hostileWriter{dir: s.dir, rng: rand.New(rand.NewPCG(seed, 2)), files: files, moved: map[string]bool{}, targets: map[string]bool{}, stop: make(chan struct{})}
	w.done.Go(w.run)
	var mu sync.Mutex
	read := map[string]string{} // by path
	var readers sync.WaitGroup
	end := make(chan struct{})
	for i := range 3 {
		r := rand.New(rand.NewPCG(seed, uint64(10+i)))
		readers.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				time.Sleep(time.Millisecond)
				dir, name := fmt.Sprintf("d%d", r.IntN(8)), fmt.Sprintf("f%d", r.IntN(files))
				if r.IntN(10) == 0 {
					listNames(t, o, dir)
					continue
				}
				data, ok := readPath(t, o, dir, name)
				if !ok {
					continue
				}
				if _, whole := wholeVersion(data); !whole {
					t.Errorf("%s/%s: read %.80q of %d bytes, which is no version", dir, name, data, len(data))
				}
				mu.Lock()
				if was, ok := read[dir+"/"+name]; ok && was != data {
					t.Errorf("%s/%s: read %.60q, then %.60q", dir, name, was, data)
				}
				read[dir+"/"+name] = data
				mu.Unlock()
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	im := s.image(store)
	lost, some := s.low.SourceLost()
	if lost < len(some) || lost > 0 && len(some) == 0 {
		t.Errorf("%d names were lost, such as %q", lost, some)
	}
	now := contentsOf(t, im)
	sameNames(t, "before the image comes", o, now)
	if err := o.Replace(im); err != nil {
		t.Error(err)
	}
	sameNames(t, "with the image", o, now)
	time.Sleep(20 * time.Millisecond)
	close(end)
	readers.Wait()
	close(w.stop)
	w.done.Wait()
	s.close()
	moved := map[string]bool{}
	for to := range w.targets {
		name, err := filepath.Rel(w.dir, to)
		if err != nil {
			t.Fatal(err)
		}
		moved[name] = true
	}
	ids := map[int]string{}
	for p, data := range now {
		file, whole := wholeVersion(data)
		if !whole {
			t.Errorf("%s: the image has %.80q of %d bytes, which is no version", p, data, len(data))
		}
		// A name that was listed and not looked at yet may get a file that was read elsewhere before it was moved.
		if other, ok := ids[file]; ok && !moved[p] && !moved[other] {
			t.Errorf("file %d is in the image as %s and as %s", file, other, p)
		}
		ids[file] = p
	}
	for p, data := range read {
		if now[p] != data {
			t.Errorf("%s: read %.60q, and the image has %.60q", p, data, now[p])
		}
	}
	t.Logf("%d files read, %d in the image, %d changes, %d names lost", len(read), len(now), s.low.SourceChanges(), lost)
}

// sameNames compares the names that a view shows with those of an image.
func sameNames(t *testing.T, when string, o *Overlay, image map[string]string) {
	t.Helper()
	var want, got []string
	for p := range image {
		want = append(want, p)
	}
	for d := range 8 {
		dir := fmt.Sprintf("d%d", d)
		for _, name := range listNames(t, o, dir) {
			got = append(got, path.Join(dir, name))
		}
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("%s the view has %d names, and the image %d: %q, want %q", when, len(got), len(want), got, want)
	}
}

func listNames(t *testing.T, o *Overlay, dir string) []string {
	e, err := o.Lookup(RootNode, dir)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer o.Forget(e.Node, 1)
	var names []string
	if err := o.ReadDir(e.Node, 0, func(d DirEntry) bool { names = append(names, d.Name); return true }); err != nil {
		t.Error(err)
	}
	names = names[2:]
	return slices.DeleteFunc(names, func(name string) bool { // those that are gone
		f, err := o.Lookup(e.Node, name)
		if err == nil {
			o.Forget(f.Node, 1)
		}
		return errors.Is(err, unix.ENOENT)
	})
}

// readPath reads a file as a program does: by a look-up, and a read up to the size that it has told.
func readPath(t *testing.T, o *Overlay, dir, name string) (string, bool) {
	d, err := o.Lookup(RootNode, dir)
	if err != nil {
		t.Error(err)
		return "", false
	}
	defer o.Forget(d.Node, 1)
	for range 20 {
		e, err := o.Lookup(d.Node, name)
		if errors.Is(err, unix.ENOENT) {
			return "", false
		}
		if errors.Is(err, unix.ESTALE) {
			continue
		}
		if err != nil {
			t.Errorf("%s/%s: %v", dir, name, err)
			return "", false
		}
		buf := make([]byte, e.Attr.Size+1)
		n, err := o.Read(e.Node, buf, 0)
		again, againErr := o.Lookup(d.Node, name)
		if againErr == nil {
			o.Forget(again.Node, 1)
		}
		o.Forget(e.Node, 1)
		if againErr == nil && again.Node == e.Node && again.Gen != e.Gen {
			continue // another reader was told of a newer version in between: the kernel has no inode of this one any more
		}
		if errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ENOENT) {
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil {
			t.Errorf("%s/%s: %v", dir, name, err)
			return "", false
		}
		if uint64(n) != e.Attr.Size {
			t.Errorf("%s/%s: %d bytes of a file of %d", dir, name, n, e.Attr.Size)
		}
		return string(buf[:n]), true
	}
	return "", false
}

// contentsOf reads all files of a layer.
func contentsOf(t *testing.T, l *Lower) map[string]string {
	t.Helper()
	src, err := Merged([]*Lower{l})
	if err != nil {
		t.Fatal(err)
	}
	defer src.(io.Closer).Close()
	all := map[string]string{}
	root, err := src.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var walk func(dir *squashfs.Entry, at string)
	walk = func(dir *squashfs.Entry, at string) {
		names, err := src.Names(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			e, err := src.Entry(t.Context(), dir, name)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case isDir(e.Attr.Mode):
				walk(e, path.Join(at, name))
			case isReg(e.Attr.Mode) && name != ".tmp":
				f, err := src.Open(t.Context(), e)
				if err != nil {
					t.Fatal(err)
				}
				data, err := io.ReadAll(io.NewSectionReader(f, 0, e.Attr.Size))
				if err != nil {
					t.Fatal(err)
				}
				all[path.Join(at, name)] = string(data)
				_ = f.Close()
			}
		}
	}
	walk(root, "")
	return all
}
