package layers

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBlockConcurrent writes pages of one file from several goroutines, each its own, while it is sealed, completed
// and read.
func TestBlockConcurrent(t *testing.T) {
	const writers, writes, page = 4, 120, 4096
	r, want := bigLower(t, 6<<20)
	r.o.opts.BlockCopyUp = 1
	e, err := r.find("f")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { r.o.Forget(e.Node, 1) }()
	var wg, readers sync.WaitGroup
	stop := make(chan struct{})
	for g := range writers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 8))
			for range writes {
				at := (rnd.Int64N(6<<20/page/writers)*writers + int64(g)) * page
				p := randomData(rnd, page)
				if rnd.IntN(4) == 0 {
					clear(p)
					err := r.o.Fallocate(e.Node, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, page)
					if err != nil {
						t.Error(err)
					}
				} else if _, err := r.o.Write(e.Node, p, at, nil); err != nil {
					t.Error(err)
				}
				copy(want[at:], p) // nobody else writes there
				got := make([]byte, page)
				if _, err := r.o.Read(e.Node, got, at); err != nil || !bytes.Equal(got, p) {
					t.Errorf("page at %d is not what was written, %v", at, err)
				}
			}
		})
	}
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			_, err := r.o.GetAttr(e.Node)
			if _, serr := r.o.Seek(e.Node, 0, unix.SEEK_DATA); errors.Join(err, serr) != nil {
				t.Error(err, serr)
				return
			}
		}
	})
	for range 6 {
		if err := r.o.Complete(t.Context()); err != nil {
			t.Error(err)
		}
		r.seal()
	}
	wg.Wait()
	close(stop)
	readers.Wait()
	r.wantContents("f", want)
	r.reopen()
	if e, err = r.find("f"); err != nil {
		t.Fatal(err)
	}
	r.wantContents("f", want)
}
