package sandbox

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
)

// hostWait is for how long a call that changes something waits for the home's file system to take changes: most are
// frozen for a moment.
const hostWait = 10 * time.Second

// hostProbe finds out whether the file system of a home takes changes: not while it is frozen (fsfreeze, a snapshot of
// its volume) nor while its disk hangs. A thread that asks for a change then hangs with it, out of reach of signals and
// contexts, and holds its locks meanwhile. So a goroutine that holds nothing asks first.
type hostProbe struct {
	path string        // of a file that is not there; immutable
	most time.Duration // hostWait, but in tests
	work *sync.WaitGroup

	mu    lockorder.Mutex[lockorder.HostProbe]
	asked chan struct{} // guarded by mu: closed when the question under way is answered; nil if there is none
}

func newHostProbe(h *Home) *hostProbe {
	return &hostProbe{path: filepath.Join(h.dir, "#"), most: hostWait, work: &h.work}
}

// answer is closed when the file system has taken a change. There is one question under way at most, so that one thread
// hangs at most.
func (p *hostProbe) answer() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked == nil {
		asked := make(chan struct{})
		p.asked = asked
		p.work.Go(func() {
			_ = unix.Unlink(p.path) // changes nothing, but waits as a change does
			p.mu.Lock()
			p.asked = nil
			p.mu.Unlock()
			close(asked)
		})
	}
	return p.asked
}

// wait waits until the file system takes changes or ctx ends. A nil probe knows of nothing to wait for.
func (p *hostProbe) wait(ctx context.Context) error {
	if p == nil {
		return nil
	}
	select {
	case <-p.answer():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// beginChange is begin for a call that changes something: it is refused if the file system of the home takes no changes
// for hostWait.
func (h *Home) beginChange(ctx context.Context) (_ context.Context, end func(), err error) {
	ctx, end, err = h.begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	timer := time.NewTimer(h.host.most)
	defer timer.Stop()
	select {
	case <-h.host.answer():
		return ctx, end, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = fmt.Errorf("%w: the file system of the home %s takes no changes since %s or longer: "+
			"it is frozen (fsfreeze), or its disk does not answer; nothing was changed",
			ErrUnavailable, h.dir, h.host.most)
	}
	end()
	return nil, nil, err
}
