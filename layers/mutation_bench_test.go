package layers

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkParallelCreates has several creators make files, each in a directory of its own, on a host that takes a
// millisecond for each, as one with as many processors and a slow disk does.
func BenchmarkParallelCreates(b *testing.B) {
	for _, creators := range []int{1, 2, 4, 8, 16} {
		b.Run(fmt.Sprint(creators), func(b *testing.B) {
			o, err := New(b.TempDir(), b.TempDir(), nil, Options{InoBase: 1 << 48})
			if err != nil {
				b.Fatal(err)
			}
			defer func() {
				if err := o.Close(); err != nil {
					b.Error(err)
				}
			}()
			var dirs []NodeID
			for i := range creators {
				e, err := o.Mkdir(Caller{}, RootNode, fmt.Sprint(i), 0o755)
				if err != nil {
					b.Fatal(err)
				}
				dirs = append(dirs, e.Node)
			}
			steps = func(string) { time.Sleep(time.Millisecond) }
			defer func() { steps = nil }()
			b.ResetTimer()
			var wg sync.WaitGroup
			for _, dir := range dirs {
				wg.Go(func() {
					for i := range b.N {
						e, err := o.Mknod(Caller{}, dir, fmt.Sprint(i), unix.S_IFREG|0o644, 0)
						if err != nil {
							b.Error(err)
							return
						}
						o.Forget(e.Node, 1)
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N*creators)/b.Elapsed().Seconds(), "creates/s")
		})
	}
}
