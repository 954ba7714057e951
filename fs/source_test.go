package fs_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/testmount"
	"snapfs/internal/testseed"
)

// sourceVersion is what a file of a source has: each version of another length, which its first bytes tell.
func sourceVersion(turn, size int) string {
	return fmt.Sprintf("%d/%d:", turn, size) + strings.Repeat(string(rune('a'+turn%26)), size)
}

func isSourceVersion(data string) bool {
	var turn, size int
	head, _, _ := strings.Cut(data, ":")
	_, err := fmt.Sscanf(head, "%d/%d", &turn, &size)
	return err == nil && data == sourceVersion(turn, size)
}

// TestSource reads a directory through the kernel while somebody changes it and it is imported: the kernel keeps sizes,
// which a file must not change under it.
func TestSource(t *testing.T) {
	seed := testseed.Of(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	src := t.TempDir()
	name := func(i int) string { return fmt.Sprintf("d%d/f%d", i%5, i) }
	const files = 100
	for i := range files {
		p := filepath.Join(src, name(i))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(sourceVersion(0, rng.IntN(9000))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fs := testmount.Start(t, testmount.Config{Source: src, Writeback: true})
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w := rand.New(rand.NewPCG(seed, 1))
		for turn := 1; ; turn++ {
			select {
			case <-stop:
				return
			default:
			}
			p, tmp := filepath.Join(src, name(w.IntN(files))), filepath.Join(src, ".tmp")
			if os.WriteFile(tmp, []byte(sourceVersion(turn, w.IntN(9000))), 0o644) == nil {
				_ = os.Rename(tmp, p) // the test reads what comes of it
			}
			time.Sleep(time.Duration(w.IntN(500)) * time.Microsecond)
		}
	}()
	read := map[string]string{}
	look := func(turns int) {
		for range turns {
			n := name(rng.IntN(files))
			p := filepath.Join(fs.Dir, n)
			if rng.IntN(3) == 0 {
				_, _ = os.Lstat(p) // the kernel knows its size from then on
				continue
			}
			data, err := os.ReadFile(p)
			if errors.Is(err, unix.ESTALE) || errors.Is(err, unix.EIO) {
				continue // it changed between open and read
			}
			if err != nil {
				t.Errorf("%s: %v", n, err)
				continue
			}
			if !isSourceVersion(string(data)) {
				t.Errorf("%s: read %.40q of %d bytes, which is no version", n, data, len(data))
			}
			if was, ok := read[n]; ok && was != string(data) {
				t.Errorf("%s: read %.40q, then %.40q", n, was, data)
			}
			read[n] = string(data)
		}
	}
	look(300)
	done := make(chan error, 1)
	go func() { done <- fs.Import() }()
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
			look(10)
		}
	}
	look(300)
	close(stop)
	<-ended
	for i := range files {
		p := filepath.Join(fs.Dir, name(i))
		fi, err := os.Stat(p)
		if err != nil {
			t.Error(err)
			continue
		}
		data, err := os.ReadFile(p)
		if err != nil || int64(len(data)) != fi.Size() || !isSourceVersion(string(data)) {
			t.Errorf("%s: %d bytes, read %.40q of %d, %v", name(i), fi.Size(), data, len(data), err)
		}
		if was, ok := read[name(i)]; ok && was != string(data) {
			t.Errorf("%s: read %.40q, and the image has %.40q", name(i), was, data)
		}
	}
	t.Logf("%d files read while they were the source's", len(read))
}
