package layers

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// heapInUse is what lives on the heap.
func heapInUse() int64 {
	var ms runtime.MemStats
	runtime.GC()
	runtime.GC() // the first one leaves what finalizers and pools held
	runtime.ReadMemStats(&ms)
	return int64(ms.HeapAlloc)
}

// TestMemoryPerNode: what the kernel refers to takes about 250 bytes, and all of it comes back.
func TestMemoryPerNode(t *testing.T) {
	dirs, files := 20, 1000
	if os.Getenv("SNAPFS_LONG") != "" {
		dirs = 1000
	}
	base := t.TempDir()
	for d := range dirs {
		dir := filepath.Join(base, fmt.Sprintf("dir%d", d))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for f := range files {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("file-%06d.txt", f)), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := newRig(t, base)
	held := make([]NodeID, 0, dirs*(files+1))
	forget := func() {
		for _, n := range held {
			r.o.Forget(n, 1)
		}
		held = held[:0]
	}
	walk := func() {
		for d := range dirs {
			e, err := r.find(fmt.Sprintf("dir%d", d))
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, e.Node)
			err = r.o.ReadDirPlus(e.Node, 0, func(_ DirEntry, c Entry) bool {
				if c.Node != 0 {
					held = append(held, c.Node)
				}
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	walk() // what caches of the process keep is there from now on
	forget()
	before := heapInUse()
	walk()
	n := int64(len(held))
	if n != int64(dirs*(files+1)) {
		t.Fatalf("%d nodes, want %d", n, dirs*(files+1))
	}
	r.o.listings.close() // bounded on its own
	per := (heapInUse() - before) / n
	forget()
	left := heapInUse() - before
	t.Logf("%d nodes of %d bytes; %d bytes stay", n, per, left)
	if per > 300 {
		t.Errorf("%d bytes per node, want about 250", per)
	}
	if left > 2*n+256<<10 { // the runtime's own needs come and go
		t.Errorf("%d bytes stay when %d nodes are forgotten", left, n)
	}
	r.wantNodes(1)
}
