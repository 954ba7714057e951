package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"snapfs/sandbox/internal/catalog"
	"snapfs/squashfs"
)

// A layer that cannot be stored must not keep the others from being stored, and must not end the daemon at every start. What lies
// on it waits, the rest goes on. After an error it is tried again, less and less often. When its storing has ended the daemon
// parkAfter times, or squashfs cannot hold it, it is parked: it stays a sealed directory, which serves everything, until
// somebody waits for it to be stored.

// parkAfter is how often the daemon may end while it stores a layer before that is parked.
const parkAfter = 3

// trouble is why a layer is not stored.
type trouble struct {
	attempts int       // that ended in an error
	until    time.Time // not before; zero: parked
	why      string
}

// resume queues a layer that the records call sealed when the home is opened.
func (p *packer) resume(ctx context.Context, layer string) error {
	r, err := p.home.catalog.Attempts(ctx, layer)
	if err != nil {
		return err
	}
	why := r.Parked
	if why == "" && r.Begun >= parkAfter {
		why = fmt.Sprintf("the daemon ended %d times while it was storing it", r.Begun)
	}
	if why != "" {
		p.home.log.Warn("a layer is not stored; it stays sealed until somebody waits for it", "layer", layer, "why", why)
		p.mu.Lock()
		p.troubles[layer] = &trouble{why: why}
		p.mu.Unlock()
	}
	p.add(layer)
	return nil
}

// begin notes that a layer is about to be stored.
func (p *packer) begin(ctx context.Context, layer string) error {
	r, err := p.home.catalog.Attempts(ctx, layer)
	if err != nil {
		return err
	}
	if r.Parked != "" || r.Begun >= parkAfter {
		r = catalog.Attempts{} // somebody has asked for it
	}
	r.Begun++
	return p.home.catalog.PutAttempts(ctx, layer, r)
}

// interrupted takes back what begin noted: the home is being closed.
func (p *packer) interrupted(layer string) {
	if p.home.catalog.Layer(layer) == nil {
		return
	}
	if err := p.home.catalog.PutAttempts(context.Background(), layer, catalog.Attempts{}); err != nil {
		p.home.log.Warn("an attempt to store a layer counts as failed", "layer", layer, "error", err)
	}
}

// again puts a layer back after an error.
func (p *packer) again(ctx context.Context, layer string, cause error) {
	var r catalog.Attempts
	parked := errors.Is(cause, squashfs.ErrLimit)
	if parked {
		r.Parked = cause.Error()
	}
	if err := p.home.catalog.PutAttempts(ctx, layer, r); err != nil {
		p.home.log.Warn("an attempt to store a layer counts as failed", "layer", layer, "error", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.troubles[layer]
	if t == nil {
		t = &trouble{}
		p.troubles[layer] = t
	}
	t.why = cause.Error()
	if t.until = (time.Time{}); !parked {
		t.until = time.Now().Add(min(firstRetry<<min(t.attempts, 16), lastRetry))
	}
	t.attempts++
	p.queue = append(p.queue, layer)
}

// next takes the oldest layer that nothing keeps from being stored.
func (p *packer) next() (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(p.queue) // ids grow
	now := time.Now()
	for i, layer := range p.queue {
		if !p.waitsLocked(layer, now) {
			p.queue = slices.Delete(p.queue, i, i+1)
			return layer, true
		}
	}
	return "", false
}

// waitsLocked tells whether a layer, or one that it lies on, is not to be tried yet.
func (p *packer) waitsLocked(layer string, now time.Time) bool {
	if len(p.troubles) == 0 {
		return false
	}
	stack, err := p.home.catalog.Stack(layer)
	if err != nil {
		return false // deleted meanwhile, or for pack to tell
	}
	return slices.ContainsFunc(stack, func(r *catalog.Layer) bool {
		t := p.troubles[r.ID]
		return t != nil && r.State == Sealed && (t.until.IsZero() || now.Before(t.until))
	})
}

// pause is how long to wait until a layer is tried again; false if none is to be.
func (p *packer) pause() (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var first time.Time
	for layer, t := range p.troubles {
		if p.home.catalog.Layer(layer) == nil {
			delete(p.troubles, layer)
		} else if !t.until.IsZero() && (first.IsZero() || t.until.Before(first)) {
			first = t.until
		}
	}
	return max(time.Until(first), time.Millisecond), !first.IsZero()
}

// problemOf is problem of the topmost layer of a stack that has one, or "".
func (p *packer) problemOf(stack []*catalog.Layer) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.troubles) == 0 {
		return ""
	}
	for _, l := range stack {
		if why := p.problemLocked(l.ID); l.State == Sealed && why != "" {
			return why
		}
	}
	return ""
}

// problem is why a sealed layer is not going to be stored, or "".
func (p *packer) problem(layer string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.problemLocked(layer)
}

func (p *packer) problemLocked(layer string) string {
	if t := p.troubles[layer]; t != nil && t.until.IsZero() {
		return t.why
	}
	return ""
}
