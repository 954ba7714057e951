package sandbox

import (
	"slices"
	"time"
)

// The kernel tells nobody when an overlay ends. Calls that unmount one look at once; for mounts that others take away,
// the tables of mounts are looked at now and then, which is cheap as long as nothing has changed in them.
const (
	kernelLook  = 500 * time.Millisecond
	kernelProbe = 10 * time.Second // between probes of an overlay that is in no table, and that programs still use
)

// watchKernels has the ends of kernel mounts be noticed until the home is closed.
func (h *Home) watchKernels() { h.kernelWatch.Do(func() { h.work.Go(h.lookAtKernels) }) }

func (h *Home) lookAtKernels() {
	tick := time.NewTicker(kernelLook)
	defer tick.Stop()
	probed, abandoned := map[*kernelMount]time.Time{}, map[uint64]time.Time{}
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-tick.C:
		}
		h.lookAtAbandoned(h.ctx, abandoned)
		mounts, err := h.mounts.read()
		if err != nil {
			continue
		}
		seen := map[*kernelMount]time.Time{}
		for _, l := range h.allLive() {
			m := l.kernel()
			if m == nil || m.view.own() && slices.ContainsFunc(mounts, m.is) {
				continue
			}
			seen[m] = probed[m]
			if time.Since(seen[m]) >= kernelProbe {
				m.check(h.ctx)
				seen[m] = time.Now()
			}
		}
		probed = seen
	}
}
