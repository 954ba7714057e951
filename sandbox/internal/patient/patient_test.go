package patient

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
)

var errSlow = errors.New("too slow")

// hanging is a file that can hang: in what is named.
type hanging struct {
	*bytes.Reader
	in     string
	resume chan struct{}
	closed atomic.Int32
}

func (h *hanging) hang(in string) {
	if h.in == in {
		<-h.resume
	}
}

func (h *hanging) Stat() (fs.FileInfo, error) {
	h.hang("stat")
	return nil, nil //nolint:nilnil // nobody asks it
}

func (h *hanging) ReadAt(p []byte, off int64) (int, error) {
	h.hang("read")
	return h.Reader.ReadAt(p, off)
}

func (h *hanging) Close() error {
	h.hang("close")
	h.closed.Add(1)
	return nil
}

// impatient gives up what hangs; done is sent to when such a thing has ended.
func impatient(hung *atomic.Bool, done chan struct{}) Wait {
	return func(fn func() error, late func()) error {
		ended := make(chan error, 1)
		go func() { ended <- fn() }()
		if !hung.Load() {
			return <-ended
		}
		go func() {
			if err := <-ended; err == nil && late != nil {
				late()
			}
			done <- struct{}{}
		}()
		return errSlow
	}
}

// TestHangs: whatever hangs is given up, is not waited for again, and is closed when it goes on.
func TestHangs(t *testing.T) {
	for _, in := range []string{"open", "stat", "read", "close"} {
		h := &hanging{Reader: bytes.NewReader(make([]byte, 3*piece)), in: in, resume: make(chan struct{})}
		var hung atomic.Bool
		done := make(chan struct{}, 1)
		hung.Store(in == "open" || in == "stat")
		f, err := newFile(impatient(&hung, done), func() (source, error) { h.hang("open"); return h, nil })
		if hung.Load() != errors.Is(err, errSlow) {
			t.Fatalf("%s: opened with %v", in, err)
		}
		hung.Store(true)
		if in == "read" {
			for range 2 {
				if _, err := f.ReadAt(make([]byte, 10), 0); !errors.Is(err, errSlow) {
					t.Errorf("%s: %v", in, err)
				}
			}
		}
		if in == "close" {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
		close(h.resume)
		<-done
		if in == "read" {
			hung.Store(false)
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
		if n := h.closed.Load(); n != 1 {
			t.Errorf("%s: closed %d times", in, n)
		}
	}
}

// TestReads: what is read is what is there, below a directory, too, and no link and nothing outside.
func TestReads(t *testing.T) {
	dir := t.TempDir()
	text := bytes.Repeat([]byte("0123456789"), piece/4)
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "f"), text, 0o644), os.Symlink("f", filepath.Join(dir, "l"))); err != nil {
		t.Fatal(err)
	}
	d, err := Open(Forever, func() (*os.File, error) { return os.Open(dir) })
	if err != nil {
		t.Fatal(err)
	}
	plain := func(fn func() error) error { return fn() }
	f, err := d.OpenBelow("f", plain)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size()+10)); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for _, name := range []string{"l", "../" + filepath.Base(dir) + "/f", "none"} {
		if _, err := d.OpenBelow(name, plain); err == nil {
			t.Errorf("%s is opened", name)
		}
	}
	if err := errors.Join(f.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}
