//go:build !race || !amd64

package lockorder

import (
	"sync"
	"testing"
	"unsafe"
)

// TestCostsNothing holds that without the check the locks are those of package sync, and a token is nothing.
func TestCostsNothing(t *testing.T) {
	var m sync.Mutex
	var rw sync.RWMutex
	func(*Mutex[OverlayNames], *RWMutex[OverlayNames]) {}(&m, &rw) // compiles: the same types
	m.Lock()
	rw.RLock()
	if size := unsafe.Sizeof(Token[HomeOps]{}); size != 0 {
		t.Errorf("a token takes %d bytes", size)
	}
	rw.RUnlock()
	m.Unlock()
}
