package fs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"snapfs/internal/testmount"
)

// TestSealUnderLoad seals again and again while programs write, append, create, rename and remove.
func TestSealUnderLoad(t *testing.T) {
	fs := testmount.Start(t, testmount.Config{})
	var stop atomic.Bool
	var wg sync.WaitGroup
	counts := make([]int, 3)
	for i := range counts {
		log, err := os.OpenFile(filepath.Join(fs.Dir, "log"+strconv.Itoa(i)), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer log.Close() //nolint:errcheck // its contents are checked
			for !stop.Load() {
				if _, err := fmt.Fprintf(log, "line %d\n", counts[i]); err != nil {
					t.Error(err)
					return
				}
				counts[i]++
				name := filepath.Join(fs.Dir, fmt.Sprintf("f%d-%d", i, counts[i]%7))
				if err := os.WriteFile(name, []byte(strconv.Itoa(counts[i])), 0o644); err != nil {
					t.Error(err)
				}
				if err := os.Rename(name, name+"x"); err != nil {
					t.Error(err)
				}
				if counts[i]%3 == 0 {
					if err := os.Remove(name + "x"); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for i := range 10 {
		fs.Seal("s" + strconv.Itoa(i))
	}
	stop.Store(true)
	wg.Wait()
	for i, n := range counts {
		got, err := os.ReadFile(filepath.Join(fs.Dir, "log"+strconv.Itoa(i)))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(string(got), "\n"), "\n")
		if len(lines) != n || n > 0 && lines[n-1] != fmt.Sprintf("line %d", n-1) {
			t.Errorf("log %d has %d lines, want %d", i, len(lines), n)
		}
	}
}
