//go:build !race || !amd64

package lockorder

import (
	"sync"
	"testing"
	"unsafe"
)

// TestCostsNothing holds that without the check the locks are those of package sync, and a token is nothing.
func TestCostsNothing(t *testing.T) {
	var m *Mutex[OverlayNames] = new(sync.Mutex) // compiles: the same type
	var rw *RWMutex[OverlayNames] = new(sync.RWMutex)
	m.Lock()
	rw.RLock()
	if size := unsafe.Sizeof(Token[HomeOps]{}); size != 0 {
		t.Errorf("a token takes %d bytes", size)
	}
	rw.RUnlock()
	m.Unlock()
}
