package layers

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestCaptureLive captures while programs write: each file is one of the versions that were written, or the capture says
// that it is not, and a directory that moves is in one place.
func TestCaptureLive(t *testing.T) {
	t.Parallel()
	lower := t.TempDir()
	for d := range 6 {
		dir := filepath.Join(lower, fmt.Sprint("home", d%2), fmt.Sprint("moves", d))
		if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "sub/file"), []byte("lower"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	k := newKernelUpper(t, lower)
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	must(os.Mkdir(filepath.Join(k.at, "new"), 0o755))
	const size, long = 900_000, captureWhole + 500_000
	var done atomic.Bool
	var all sync.WaitGroup
	loop := func(pause time.Duration, step func(n int)) {
		all.Go(func() {
			for n := 0; !done.Load(); n++ {
				step(n)
				time.Sleep(pause)
			}
		})
	}
	version := func(n, size int) []byte { return bytes.Repeat([]byte{byte('a' + n%26)}, size) }
	inPlace := func(name string, size int) func(n int) {
		f, err := os.Create(filepath.Join(k.at, name))
		must(err)
		t.Cleanup(func() { _ = f.Close() })
		return func(n int) {
			_, err := f.WriteAt(version(n, size), 0)
			must(err)
		}
	}
	loop(time.Millisecond, inPlace("inplace", size))
	loop(3*time.Millisecond, inPlace("long", long))
	loop(time.Millisecond, func(n int) { // replaced, as editors do
		must(os.WriteFile(filepath.Join(k.at, "new/tmp"), version(n, size), 0o600))
		must(os.Rename(filepath.Join(k.at, "new/tmp"), filepath.Join(k.at, "new/replaced")))
	})
	loop(time.Millisecond, func(n int) { // becomes shorter, and goes
		p := filepath.Join(k.at, "new", fmt.Sprint("gone", n%5))
		must(os.WriteFile(p, version(n, long), 0o600))
		must(os.Truncate(p, 10))
		must(os.Remove(p))
	})
	loop(2*time.Millisecond, func(n int) {
		d := fmt.Sprint("moves", n%6)
		for _, from := range []int{0, 1} {
			old := filepath.Join(k.at, fmt.Sprint("home", from), d)
			if err := os.Rename(old, filepath.Join(k.at, fmt.Sprint("home", 1-from), d)); err == nil {
				return
			} else if !os.IsNotExist(err) {
				t.Error(err)
			}
		}
	})
	check := func(changes bool) Captured {
		var told Captured
		var stack []*Lower
		if changes {
			_, told = k.captureChanges()
			stack = k.stack
		} else {
			var image *Lower
			image, _, told = k.capture()
			stack = []*Lower{image, k.base}
		}
		if len(told.Torn) != told.TornFiles {
			t.Errorf("%+v", told)
		}
		places := map[string]int{}
		for _, line := range shownBy(t, stack) {
			path, _, _ := strings.Cut(line, " ")
			name := strings.TrimPrefix(path, "/")
			if i := strings.Index(name, "/moves"); i >= 0 {
				places[name[i:]]++
				continue
			}
			data := line[strings.LastIndex(line, " \"")+2 : len(line)-1]
			whole := data == "" || strings.Trim(data, data[:1]) == ""
			if !whole && !slices.Contains(told.Torn, name) {
				t.Errorf("%s is torn, and the capture does not say so: %d bytes", name, len(data))
			}
		}
		for d := range 6 {
			for _, rest := range []string{"", "/sub", "/sub/file"} {
				name := fmt.Sprint("/moves", d, rest)
				if n := places[name]; n > 1 || n == 0 && told.Quiet {
					t.Errorf("%s is in %d places; quiet: %v", name, n, told.Quiet)
				}
			}
		}
		return told
	}
	quiet, torn := 0, 0
	for i := range 15 {
		told := check(i%2 == 0)
		if torn += told.TornFiles; told.Quiet {
			quiet++
		}
	}
	t.Logf("%d of 15 captures were quiet, %d files torn", quiet, torn)
	done.Store(true)
	all.Wait()
	check(true)
	if told := check(true); !told.Same || !told.Quiet || told.TornFiles > 0 {
		t.Errorf("nobody writes any more: %+v", told)
	}
}
