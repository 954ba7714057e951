package daemon

import (
	"context"
	"log/slog"
	"time"

	"snapfs/internal/lockorder"
	"snapfs/sandbox"
)

// Bounds of the audit, which nobody can flood: of refusals that are alike, one is recorded at once, and how many followed
// at most once in auditEvery. So many kinds are told apart, and so many of one token or of all who have none.
const (
	auditEvery = time.Minute
	maxKinds   = 256
	maxKindsOf = 32
)

// kind is by what refusals are alike.
type kind struct {
	owner  string // token, user of this machine, or "" for all who have neither
	remote string // of those
	call   string // of the others
	status int
}

// auditor records refusals. Its goroutine run writes them.
type auditor struct {
	home *sandbox.Home
	log  *slog.Logger
	wake chan struct{} // of capacity 1

	mu    lockorder.Mutex[lockorder.DaemonAudit]
	kinds map[kind]*sandbox.Refusal // guarded by mu: what came since it was written; Times 0 for nothing
	of    map[string]int            // guarded by mu: kinds by owner
	fresh []sandbox.Refusal         // guarded by mu: to be written at once, at most one of each kind
}

func newAuditor(home *sandbox.Home, log *slog.Logger) *auditor {
	return &auditor{
		home: home, log: log, wake: make(chan struct{}, 1), kinds: map[kind]*sandbox.Refusal{}, of: map[string]int{},
	}
}

// note takes a refusal; it never waits.
func (a *auditor) note(status int, r sandbox.Refusal) {
	k := kind{owner: r.Token, call: r.Call, status: status}
	if r.Token == "" && r.Session == "" {
		k.remote, k.call = r.Remote, ""
	} else if r.Token == "" {
		k.owner = r.Remote
	}
	r.Times = 1
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.kinds[k] == nil && (len(a.kinds) >= maxKinds || a.of[k.owner] >= maxKindsOf) {
		k = kind{owner: k.owner, remote: "others", call: "others"}
		if len(a.kinds) >= maxKinds {
			k.owner = "others"
		}
		r.Call, r.Remote = "calls of many kinds", "many"
	}
	if since := a.kinds[k]; since != nil {
		since.Times++
		times := since.Times
		*since = r
		since.Times = times
		return
	}
	a.of[k.owner]++
	a.kinds[k] = &sandbox.Refusal{}
	a.fresh = append(a.fresh, r)
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// run writes refusals until ctx ends, and what is left then.
func (a *auditor) run(ctx context.Context) {
	tick := time.NewTicker(auditEvery)
	defer tick.Stop()
	for {
		select {
		case <-a.wake:
			a.write(ctx, a.takeFresh())
		case <-tick.C:
			a.write(ctx, a.takeRepeated())
		case <-ctx.Done():
			a.write(context.WithoutCancel(ctx), append(a.takeFresh(), a.takeRepeated()...))
			return
		}
	}
}

// takeFresh takes those of which nothing is written yet.
func (a *auditor) takeFresh() []sandbox.Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	fresh := a.fresh
	a.fresh = nil
	return fresh
}

// takeRepeated takes those that came since they were written, and forgets kinds of which none came.
func (a *auditor) takeRepeated() []sandbox.Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	var repeated []sandbox.Refusal
	for k, r := range a.kinds {
		if r.Times > 0 {
			repeated = append(repeated, *r)
			r.Times = 0
			continue
		}
		delete(a.kinds, k)
		if a.of[k.owner]--; a.of[k.owner] == 0 {
			delete(a.of, k.owner)
		}
	}
	return repeated
}

func (a *auditor) write(ctx context.Context, all []sandbox.Refusal) {
	if len(all) == 0 {
		return
	}
	for _, r := range all {
		a.log.WarnContext(ctx, "call refused", "call", r.Call, "session", r.Session, "token", r.Token, "remote", r.Remote,
			"request", r.Request, "why", r.Why, "times", r.Times)
	}
	if err := a.home.RecordRefusals(ctx, all...); err != nil {
		a.log.WarnContext(ctx, "refused calls are in no event", "error", err)
	}
}
