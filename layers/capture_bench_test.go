package layers

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/internal/statcache"
)

// benchUpper makes an upper of 50,000 files in 5,000 merged directories, as a kernel overlayfs leaves it.
func benchUpper(b *testing.B) (upper *Lower, base *Lower, dir string, capture func() Captured, changes func() Captured) {
	const dirs, files = 5000, 10
	tmp := b.TempDir()
	lower, dir := filepath.Join(tmp, "l"), filepath.Join(tmp, "u")
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	name := func(d int) string { return fmt.Sprintf("%02d/%02d/%02d", d%20, d/20%20, d/400) }
	for d := range dirs {
		must(os.MkdirAll(filepath.Join(lower, name(d), "sub"), 0o755))
		must(os.MkdirAll(filepath.Join(dir, name(d)), 0o755))
		must(unix.Lsetxattr(filepath.Join(dir, name(d)), xattrOrigin, make([]byte, 30), 0))
		for f := range files {
			must(os.WriteFile(filepath.Join(dir, name(d), fmt.Sprint(f)), fmt.Appendf(nil, "contents %d %d", d, f), 0o644))
		}
	}
	t, err := chunkstore.Open(b.TempDir(), chunkstore.Options{})
	must(err)
	b.Cleanup(func() { must(t.Close()) })
	m, err := StoreTree(b.Context(), t, lower, StoreOptions{}, nil)
	must(err)
	r, err := t.OpenManifest(b.Context(), m.ID)
	must(err)
	base, err = OpenImage("base", r, m.ID)
	must(err)
	b.Cleanup(func() { must(base.Close()) })
	upper, err = OpenSealed("upper", dir, upperBase)
	must(err)
	b.Cleanup(func() { must(upper.Close()) })
	notes := b.TempDir()
	capture = func() Captured {
		k := &kernelUpper{}
		var err error
		if k.from, err = statcache.Open(notes, statcache.Key{}); err != nil {
			b.Fatal(err)
		}
		k.to, err = statcache.Create(notes, statcache.Key{})
		must(err)
		_, told, err := Capture(b.Context(), t, upper, []*Lower{base}, StoreOptions{NoSync: true, Seen: func(_, _ uint64) Seen { return k }}, nil)
		must(err)
		must(k.to.Commit())
		return told
	}
	// What has changed, not as a layer over the last: all of them lie over the base.
	var state *CaptureState
	changes = func() Captured {
		seen := func(_, _ uint64) Seen { return notesNothing{} }
		opts := StoreOptions{NoSync: true, Seen: seen, SeenSince: seen, Since: state, Last: []*Lower{base}}
		_, told, err := Capture(b.Context(), t, upper, []*Lower{base}, opts, nil)
		must(err)
		state = told.State
		return told
	}
	return upper, base, dir, capture, changes
}

type notesNothing struct{}

func (notesNothing) Len() int                           { return 0 }
func (notesNothing) Find(statcache.File) ([]byte, bool) { return nil, false }
func (notesNothing) Note(statcache.File, []byte)        {}
func (notesNothing) Keep(statcache.File, []byte)        {}

// BenchmarkCaptureChanges captures what has changed in an upper of 50,000 files after one was edited.
func BenchmarkCaptureChanges(b *testing.B) {
	_, _, dir, _, changes := benchUpper(b)
	time.Sleep(3 * time.Second)
	changes()
	b.ResetTimer()
	n := 0
	for b.Loop() {
		n++
		if err := os.WriteFile(filepath.Join(dir, "00/00/00/1"), fmt.Appendf(nil, "edit %d", n), 0o644); err != nil {
			b.Fatal(err)
		}
		if told := changes(); told.State.Names() < 50_000 {
			b.Fatalf("%+v", told)
		}
	}
}

// BenchmarkCapture captures an upper of 50,000 files after one was edited.
func BenchmarkCapture(b *testing.B) {
	_, _, dir, capture, _ := benchUpper(b)
	time.Sleep(3 * time.Second)
	start := time.Now()
	capture()
	b.ReportMetric(float64(time.Since(start).Milliseconds()), "first-ms")
	b.ResetTimer()
	n := 0
	for b.Loop() {
		n++
		if err := os.WriteFile(filepath.Join(dir, "00/00/00/1"), fmt.Appendf(nil, "edit %d", n), 0o644); err != nil {
			b.Fatal(err)
		}
		if told := capture(); told.Unread < 49_000 {
			b.Fatalf("%+v", told)
		}
	}
}

// BenchmarkFinishUpper finishes an upper of 5,000 merged directories.
func BenchmarkFinishUpper(b *testing.B) {
	upper, base, _, _, _ := benchUpper(b)
	b.ResetTimer()
	first := true
	for b.Loop() {
		start := time.Now()
		if err := FinishUpper(b.Context(), upper, []*Lower{base}); err != nil {
			b.Fatal(err)
		}
		if first {
			b.ReportMetric(float64(time.Since(start).Milliseconds()), "first-ms")
			first = false
		}
	}
}
