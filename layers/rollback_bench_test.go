package layers

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkRollbackHeld tells for how long a rollback holds changes back, by what is in memory and what it goes back
// over.
func BenchmarkRollbackHeld(b *testing.B) {
	for _, dirs := range []int{3, 30, 300} {
		low := filledDir(b, dirs)
		for _, change := range []string{"chmod of a file", "all directories renamed"} {
			b.Run(fmt.Sprintf("%d files, %s", dirs*1000, change), func(b *testing.B) {
				rollbackHeld(b, low, dirs, change == "chmod of a file")
			})
		}
	}
}

// filledDir makes a directory of so many directories, of 1,000 files each.
func filledDir(b *testing.B, dirs int) string {
	b.Helper()
	low := b.TempDir()
	for d := range dirs {
		dir := filepath.Join(low, fmt.Sprint("d", d))
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		for f := range 1000 {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("f", f)), nil, 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	return low
}

func rollbackHeld(b *testing.B, low string, dirs int, one bool) {
	l, err := OpenSealed("base", low, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	made := 0
	fresh := func() (up, work string) {
		made++
		up, work = filepath.Join(b.TempDir(), fmt.Sprint("u", made)), filepath.Join(b.TempDir(), fmt.Sprint("w", made))
		for _, d := range []string{up, work} {
			if err := os.Mkdir(d, 0o700); err != nil {
				b.Fatal(err)
			}
		}
		return up, work
	}
	var held time.Duration
	up, work := fresh()
	o, err := New(up, work, []*Lower{l}, Options{InoBase: 1 << 40, Held: func(d time.Duration) { held += d }})
	if err != nil {
		b.Fatal(err)
	}
	defer o.Close()
	for i := range b.N {
		b.StopTimer()
		for d := range dirs {
			if err := fillDir(o, d, one); err != nil {
				b.Fatal(err)
			}
		}
		up, work := fresh()
		b.StartTimer()
		if _, err := o.Rollback(b.Context(), []*Lower{l}, up, work, uint64(i+2)<<40, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(held.Microseconds())/1000/float64(b.N), "ms-held")
}

// fillDir looks up what a directory of rollbackHeld has, and changes it.
func fillDir(o *Overlay, d int, one bool) error {
	e, err := o.Lookup(RootNode, fmt.Sprint("d", d))
	if err != nil {
		return err
	}
	var f Entry
	for i := range 1000 {
		if f, err = o.Lookup(e.Node, fmt.Sprint("f", i)); err != nil {
			return err
		}
	}
	switch {
	case !one:
		return o.Rename(RootNode, fmt.Sprint("d", d), RootNode, fmt.Sprint("e", d), 0)
	case d == 0:
		_, err = o.SetAttr(Caller{}, f.Node, SetAttr{Valid: SetMode, Mode: 0o600})
	}
	return err
}
