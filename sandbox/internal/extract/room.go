package extract

import (
	"context"
	"math/bits"
	"runtime"
	"sync"

	"snapfs/internal/fairshare"
)

// What the calls of a process share, and what each has of its own besides.
const (
	ownBytes  = bufferSize  // in buffers
	ownNames  = firstWindow // that wait to be made
	poolNames = 2 * maxWindow
	ownDirs   = 32 // descriptors of directories that nobody uses at the moment
	poolDirs  = 512
	// poolBuffers is how many buffers calls share on any machine; with fewer processors it is two for each.
	poolBuffers = 16
)

// shares are the pools of a process.
type shares struct{ bytes, names, dirs *fairshare.Pool }

var pools = sync.OnceValue(func() shares {
	buffers := min(2*max(2, runtime.GOMAXPROCS(0)), poolBuffers)
	return shares{
		bytes: fairshare.New(int64(buffers) * bufferSize), names: fairshare.New(poolNames), dirs: fairshare.New(poolDirs),
	}
})

// room is what one call has of the pools.
type room struct{ bytes, names, dirs *fairshare.Member }

func newRoom() room {
	p := pools()
	return room{p.bytes.Join(ownBytes), p.names.Join(ownNames), p.dirs.Join(ownDirs)}
}

// leave gives everything back.
func (r room) leave() {
	r.bytes.Leave()
	r.names.Leave()
	r.dirs.Leave()
}

// Buffers have sizes of powers of two.
const (
	leastBuffer = 12 // 4 KiB
	mostBuffer  = 22
	bufferSize  = 1 << mostBuffer
)

// freeBuffers are those that nobody uses, by size.
var freeBuffers [mostBuffer + 1]sync.Pool // of *[]byte

// sizeClass is the power of two of a buffer for n bytes, or for as many of them as the largest buffer holds.
func sizeClass(n int64) int { return min(max(bits.Len64(uint64(n-1)), leastBuffer), mostBuffer) }

// buffer takes a buffer for n bytes, or for as many of them as the largest buffer holds. It waits for others to give
// some back.
func (r room) buffer(ctx context.Context, n int64) (*[]byte, error) {
	class := sizeClass(n)
	if err := r.bytes.Take(ctx, 1<<class); err != nil {
		return nil, err
	}
	return newBuffer(class), nil
}

func newBuffer(class int) *[]byte {
	if b, _ := freeBuffers[class].Get().(*[]byte); b != nil {
		return b
	}
	b := make([]byte, 1<<class)
	return &b
}

// giveBuffer gives a buffer back.
func (r room) giveBuffer(b *[]byte) {
	freeBuffers[sizeClass(int64(len(*b)))].Put(b)
	r.bytes.Give(int64(len(*b)))
}
