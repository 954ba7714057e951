package fairshare

import (
	"context"
	"slices"

	"snapfs/internal/lockorder"
)

// Pool is an amount that members share. Safe for concurrent use.
type Pool struct {
	size int64 // immutable

	mu   lockorder.Mutex[lockorder.Share]
	used int64      // guarded by mu: by all members, beyond their reserves
	line []*waiting // guarded by mu: in the order in which they came
}

// Member takes from a pool. Safe for concurrent use.
type Member struct {
	pool    *Pool
	reserve int64 // immutable
	held    int64 // guarded by pool.mu
}

// waiting is a call of Take that waits.
type waiting struct {
	m     *Member
	n     int64
	given chan struct{} // closed when it has what it wants
}

// New makes a pool of an amount.
func New(size int64) *Pool { return &Pool{size: size} }

// Join makes a member with a reserve.
func (p *Pool) Join(reserve int64) *Member { return &Member{pool: p, reserve: reserve} }

// beyond is what of an amount is not of the reserve.
func (m *Member) beyond(n int64) int64 { return max(0, n-m.reserve) }

// tryLocked takes n if m may have it.
func (m *Member) tryLocked(n int64) bool {
	p := m.pool
	before, after := m.beyond(m.held), m.beyond(m.held+n)
	used := p.used + after - before
	if after > 0 && after > p.size-used {
		return false
	}
	p.used = used
	m.held += n
	return true
}

// Try takes n, or nothing if that is more than m may have at the moment.
func (m *Member) Try(n int64) bool {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	return m.tryLocked(n)
}

// Take takes n, which is at most the reserve. It waits until m may have it; the end of ctx ends that.
func (m *Member) Take(ctx context.Context, n int64) error {
	p := m.pool
	p.mu.Lock()
	if m.tryLocked(n) {
		p.mu.Unlock()
		return nil
	}
	w := &waiting{m, n, make(chan struct{})}
	p.line = append(p.line, w)
	p.mu.Unlock()
	select {
	case <-w.given:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	i := slices.Index(p.line, w)
	if i >= 0 {
		p.line = slices.Delete(p.line, i, i+1)
	}
	p.mu.Unlock()
	if i < 0 { // it was given meanwhile
		m.Give(n)
	}
	return ctx.Err()
}

// Give gives n back.
func (m *Member) Give(n int64) {
	p := m.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= m.beyond(m.held) - m.beyond(m.held-n)
	m.held -= n
	for p.serveLocked() {
	}
}

// serveLocked gives to one who waits: to the member that has least, then to the call that came first.
func (p *Pool) serveLocked() bool {
	if len(p.line) == 0 {
		return false
	}
	order := slices.Clone(p.line)
	slices.SortStableFunc(order, func(a, b *waiting) int { return int(min(max(a.m.held-b.m.held, -1), 1)) })
	for _, w := range order {
		if w.m.tryLocked(w.n) {
			i := slices.Index(p.line, w)
			p.line = slices.Delete(p.line, i, i+1)
			close(w.given)
			return true
		}
	}
	return false
}

// Held is what m has.
func (m *Member) Held() int64 {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	return m.held
}

// Leave gives back all that m has. Nobody takes for it any more.
func (m *Member) Leave() { m.Give(m.Held()) }
