package daemon

import (
	"math"
	"time"

	"golang.org/x/time/rate"

	"snapfs/internal/lockorder"
	"snapfs/sandbox/api/wire"
)

// Limits bound what the tokens of one session may ask, all together. The zero value of a field is its default.
type Limits struct {
	Rate   float64 // requests per second in the long run
	Burst  int     // requests at once beyond that
	Calls  int     // requests under way
	Upload int64   // bytes of one body that is not JSON
}

// Defaults of Limits.
const (
	DefaultRate   = 5000
	DefaultBurst  = 10_000
	DefaultCalls  = 256
	DefaultUpload = 16 << 30
)

// orDefaults are the limits with their defaults filled in.
func (l Limits) orDefaults() Limits {
	if l.Rate <= 0 {
		l.Rate = DefaultRate
	}
	if l.Burst <= 0 {
		l.Burst = DefaultBurst
	}
	if l.Calls <= 0 {
		l.Calls = DefaultCalls
	}
	if l.Upload <= 0 {
		l.Upload = DefaultUpload
	}
	return l
}

// Limits of those who have no token that counts: how often an address is answered why, and how many addresses are told
// apart. The others share one limit.
const (
	strangerRate  = 5
	strangerBurst = 20
	maxAddresses  = 4096
)

// maxIdleUsage is how many sessions that ask nothing are remembered before they are looked for to forget them.
const maxIdleUsage = 1024

// tooManyError is for who has asked too much: in a time, or at a time.
type tooManyError struct {
	error
	after time.Duration // when to ask again
}

func (e tooManyError) Unwrap() error { return e.error }

// tooMany makes a tooManyError.
func tooMany(after time.Duration, format string, args ...any) error {
	return tooManyError{wire.Busy(wire.Unavailable(format, args...)), after}
}

// seconds is how the header Retry-After tells it.
func (e tooManyError) seconds() int { return max(1, int(math.Ceil(e.after.Seconds()))) }

// meters measure what sessions with tokens ask, and what strangers do.
type meters struct {
	mu        lockorder.Mutex[lockorder.DaemonMeters]
	sessions  map[string]*usage        // guarded by mu
	addresses map[string]*rate.Limiter // guarded by mu
	others    *rate.Limiter            // of addresses that are too many to tell apart
	swept     time.Time                // guarded by mu: when addresses were forgotten last
}

// usage is what the tokens of a session have used.
type usage struct {
	requests *rate.Limiter
	calls    int
}

func newMeters() *meters {
	return &meters{
		sessions: map[string]*usage{}, addresses: map[string]*rate.Limiter{},
		others: rate.NewLimiter(strangerRate, strangerBurst),
	}
}

// enter counts a request with a token of a session until leave is called, or refuses it with a tooManyError.
func (m *meters) enter(session string, l Limits) (leave func(), err error) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.sessions[session]
	if u == nil {
		m.forgetLocked(now)
		u = &usage{requests: rate.NewLimiter(rate.Limit(l.Rate), l.Burst)}
		m.sessions[session] = u
	}
	if u.requests.Limit() != rate.Limit(l.Rate) || u.requests.Burst() != l.Burst {
		u.requests.SetLimitAt(now, rate.Limit(l.Rate))
		u.requests.SetBurstAt(now, l.Burst)
	}
	if u.calls >= l.Calls {
		return nil, tooMany(time.Second, "the session has %d requests under way, and may have %d", u.calls, l.Calls)
	}
	if !u.requests.AllowN(now, 1) {
		after := time.Duration((1 - u.requests.TokensAt(now)) / l.Rate * float64(time.Second))
		return nil, tooMany(after, "the session has made more than %g requests per second", l.Rate)
	}
	u.calls++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		u.calls--
	}, nil
}

// forgetLocked makes room in the table of sessions, which has those that ask something. The caller holds mu.
func (m *meters) forgetLocked(now time.Time) {
	if len(m.sessions) < maxIdleUsage {
		return
	}
	for id, u := range m.sessions {
		if u.calls == 0 && u.requests.TokensAt(now) >= float64(u.requests.Burst()) {
			delete(m.sessions, id)
		}
	}
}

// stranger counts a request without a token that counts; a tooManyError if there were many from the address.
func (m *meters) stranger(address string) error {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.addresses[address]
	if l == nil {
		if len(m.addresses) >= maxAddresses && now.Sub(m.swept) >= time.Second {
			m.swept = now
			for a, l := range m.addresses {
				if l.TokensAt(now) >= strangerBurst {
					delete(m.addresses, a)
				}
			}
		}
		if l = m.others; len(m.addresses) < maxAddresses {
			l = rate.NewLimiter(strangerRate, strangerBurst)
			m.addresses[address] = l
		}
	}
	if l.AllowN(now, 1) {
		return nil
	}
	return tooMany(time.Second, "too many requests without a token that is known")
}
