package sandbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"snapfs/internal/lockorder"
	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// What a workspace with limits takes is counted in its account: by its overlay what the present upper has, and by the
// home, here, what else goes with the workspace and its snapshots, whenever records have changed.

// Pauses of tallyQuotas, besides a multiple of the time that it took: before it looks again, and before it counts an upper
// again that was changed while it was counted.
const (
	quotaPause = 20 * time.Millisecond
	quotaShare = 10
	quotaAgain = 5 * time.Second
)

// accounts are those of workspaces that were opened since the home was.
type accounts struct {
	wake  chan struct{} // of capacity 1: what somebody keeps may have changed
	since time.Time     // when the home was opened last, before it was now; set while the home is opened

	mu  lockorder.Mutex[lockorder.Accounts]
	all map[string]*layers.Account // by workspace; guarded by mu
}

func newAccounts() *accounts {
	return &accounts{wake: make(chan struct{}, 1), all: map[string]*layers.Account{}}
}

// changed has what is kept measured again. It does not wait.
func (a *accounts) changed() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// of gives the account of a workspace.
func (a *accounts) of(w *catalog.Workspace, work string) *layers.Account {
	a.mu.Lock()
	defer a.mu.Unlock()
	acct := a.lookLocked(w, work)
	a.all[w.ID] = acct
	return acct
}

// look is of for who only wants to know: the workspace may be gone by now, and another one have its name later.
func (a *accounts) look(w *catalog.Workspace, work string) *layers.Account {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lookLocked(w, work)
}

// lookLocked is look with mu.
func (a *accounts) lookLocked(w *catalog.Workspace, work string) *layers.Account {
	acct := a.all[w.ID]
	if acct == nil {
		acct = &layers.Account{}
		acct.Trust(a.since) // it may have been opened by a version that keeps no notes
		if w.Quota != nil {
			acct.SetLimit(limitOf(*w.Quota))
			acct.Recall(work)
		}
	}
	return acct
}

// limited lists the accounts that have limits.
func (a *accounts) limited() map[string]*layers.Account {
	a.mu.Lock()
	defer a.mu.Unlock()
	some := map[string]*layers.Account{}
	for name, acct := range a.all {
		if acct.Limit() != (layers.Usage{}) {
			some[name] = acct
		}
	}
	return some
}

// named reports whether an account is still that of the workspace of a name.
func (a *accounts) named(name string, acct *layers.Account) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[name] == acct
}

// setKept is layers.Account.SetKept with what was measured by a name, if that is still the account's.
func (a *accounts) setKept(name string, acct *layers.Account, kept layers.Usage, seals uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[name] != acct || acct.SetKept(kept, seals)
}

func (a *accounts) drop(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.all, name)
}

func (a *accounts) rename(old, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if acct := a.all[old]; acct != nil {
		delete(a.all, old)
		a.all[name] = acct
	}
}

func limitOf(q api.Quota) layers.Usage { return layers.Usage{Bytes: q.Size, Inodes: q.Inodes} }

// roomOf gives an account for something new that a workspace is to keep, limited by what it may still take; nil if it has no
// limits, or there is no workspace.
func (h *Home) roomOf(w *catalog.Workspace) *layers.Account {
	if w == nil || w.Quota == nil {
		return nil
	}
	used, _ := h.accounts.look(w, h.uppers.Work(w.Upper)).Used()
	return accountFor(limitOf(*w.Quota), used)
}

// accountFor gives an account that is limited by what is left of limits; nil if there are none.
func accountFor(limit, used layers.Usage) *layers.Account {
	if limit == (layers.Usage{}) {
		return nil
	}
	rest := func(limit, used int64) int64 {
		if limit == 0 {
			return 0
		}
		return max(1, limit-used) // 0 would be no limit, and 1 lets nothing grow
	}
	acct := &layers.Account{}
	acct.SetLimit(layers.Usage{Bytes: rest(limit.Bytes, used.Bytes), Inodes: rest(limit.Inodes, used.Inodes)})
	return acct
}

// quotaOf is what a record has of limits.
func quotaOf(q api.Quota) *api.Quota {
	if q.None() {
		return nil
	}
	return &q
}

// quotaLike is what a workspace has that is made of another with limits: those that are asked for, else those of the
// other. Who is bound to a session gets no more than the other has: else a copy would be a way around its limits.
func quotaLike(ctx context.Context, asked api.Quota, of *api.Quota) *api.Quota {
	if of == nil || !asked.None() && byOwner(ctx) {
		return quotaOf(asked)
	}
	least := func(a, b int64) int64 {
		if a == 0 || b == 0 {
			return max(a, b)
		}
		return min(a, b)
	}
	return &api.Quota{Size: least(asked.Size, of.Size), Inodes: least(asked.Inodes, of.Inodes)}
}

// quotaFrom is quotaLike for one that is made of a snapshot, whose workspace may be gone.
func (h *Home) quotaFrom(ctx context.Context, asked api.Quota, s *catalog.Snapshot) *api.Quota {
	if w := h.catalog.Workspace(s.Workspace); w != nil {
		return quotaLike(ctx, asked, w.Quota)
	}
	return quotaOf(asked)
}

// describeQuota tells what a workspace takes of its limits.
func (h *Home) describeQuota(w *catalog.Workspace) *api.QuotaState {
	if w.Quota == nil {
		return nil
	}
	used, known := h.accounts.look(w, h.uppers.Work(w.Upper)).Used()
	return &api.QuotaState{
		Quota: *w.Quota, Used: max(0, used.Bytes), UsedInodes: max(0, used.Inodes), Counting: !known && h.liveOf(w.ID) != nil,
	}
}

// mayLimit is ErrRefused for who is bound to a session: the limits of what is there already are not for it to change.
func mayLimit(ctx context.Context) error {
	if byOwner(ctx) {
		return nil
	}
	return fmt.Errorf("%w: the limits of a workspace that is there are changed by who runs the daemon", ErrRefused)
}

// SetQuota changes the limits of a workspace, mounted or not.
func (h *Home) SetQuota(ctx context.Context, r QuotaRequest) (Workspace, error) {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return Workspace{}, err
	}
	defer end()
	if err := mayLimit(ctx); err != nil {
		return Workspace{}, err
	}
	session, err := r.SessionID()
	if err != nil {
		return Workspace{}, err
	}
	w, err := h.useChangeable(ctx, r.Access, r.Workspace, "quota")
	if err != nil {
		return Workspace{}, err
	}
	w, unlock, err := h.lockWorkspace(ctx, w.ID)
	if err != nil {
		return Workspace{}, err
	}
	defer unlock()
	var q api.Quota
	if w.Quota != nil {
		q = *w.Quota
	}
	if r.Size != nil {
		q.Size = *r.Size
	}
	if r.Inodes != nil {
		q.Inodes = *r.Inodes
	}
	if err := h.setQuotaLocked(ctx, w, session, q); err != nil {
		return Workspace{}, err
	}
	return h.describe(h.catalog.Workspace(w.ID))
}

// setQuotaLocked is SetQuota with the workspace's lock.
func (h *Home) setQuotaLocked(ctx context.Context, w *catalog.Workspace, session string, q api.Quota) error {
	if err := q.Valid(); err != nil {
		return err
	}
	if h.liveOf(w.ID).kernel() != nil && !q.None() {
		return fmt.Errorf("%w: workspace %s is mounted by the kernel's overlayfs, which does not count: mount it with "+
			"--engine fuse to limit it", ErrConflict, w.ID)
	}
	err := h.catalog.Put(ctx, true, func(ch *catalog.Change) error {
		next := *h.catalog.Workspace(w.ID)
		next.Quota = quotaOf(q)
		ch.PutWorkspaces = append(ch.PutWorkspaces, &next)
		ch.Events = append(ch.Events, h.event(EventQuota, w.ID, session, "", quotaText(q)))
		return nil
	})
	if err != nil {
		return err
	}
	acct := h.accounts.of(w, h.uppers.Work(w.Upper))
	acct.SetLimit(limitOf(q))
	if q.None() {
		return nil
	}
	if _, known := acct.Used(); !known {
		if _, err := h.recountLocked(ctx, w.ID, acct); err != nil {
			return err
		}
	}
	h.accounts.changed()
	return h.tallyKept(ctx, w.ID, acct, map[uint64]layers.Usage{})
}

// quotaText has limits for the log.
func quotaText(q api.Quota) string {
	text := "size unlimited"
	if q.Size > 0 {
		text = fmt.Sprintf("size %s (%d bytes)", humanize.IBytes(uint64(q.Size)), q.Size)
	}
	if q.Inodes > 0 {
		return fmt.Sprintf("%s, %d inodes", text, q.Inodes)
	}
	return text + ", inodes unlimited"
}

// recount is recountLocked for what has no lock. Of a workspace that is not mounted and is being used, nothing is counted.
func (h *Home) recount(ctx context.Context, name string, acct *layers.Account) (exact bool, err error) {
	if h.liveOf(name) == nil {
		unlock, ok := h.ops.TryLock(name)
		if !ok {
			return true, nil
		}
		defer unlock()
		if !h.accounts.named(name, acct) {
			return true, nil
		}
	}
	return h.recountLocked(ctx, name, acct)
}

// recountLocked counts what the upper of a workspace takes. exact is as layers.Overlay.Recount says. The workspace is
// mounted, or its lock is held.
func (h *Home) recountLocked(ctx context.Context, name string, acct *layers.Account) (exact bool, err error) {
	l := h.liveOf(name)
	if l == nil {
		w := h.catalog.Workspace(name)
		if w == nil {
			return true, nil
		}
		used, err := layers.Measure(ctx, h.uppers.Path(w.Upper))
		if err == nil {
			acct.Remember(used)
		}
		return true, err
	}
	done, ok := l.use()
	if !ok {
		return true, nil
	}
	defer done()
	exact, err = l.overlay.Recount(ctx)
	return exact, classify(err)
}

// recountNew counts what the upper takes that a workspace has got while it is not mounted. Its lock is held.
func (h *Home) recountNew(ctx context.Context, w *catalog.Workspace) {
	if w == nil || w.Quota == nil {
		return
	}
	if _, err := h.recountLocked(ctx, w.ID, h.accounts.of(w, h.uppers.Work(w.Upper))); err != nil {
		h.log.Warn("what a workspace takes is known when it is mounted", "workspace", w.ID, "error", err)
	}
}

// recallQuotas makes the accounts of workspaces that have limits.
func (h *Home) recallQuotas() {
	for _, w := range h.catalog.Workspaces() {
		if w.Quota != nil {
			h.accounts.of(w, h.uppers.Work(w.Upper))
		}
	}
}

// tallyQuotas keeps accounts true until the home is closed.
func (h *Home) tallyQuotas() {
	sealed := map[uint64]layers.Usage{} // what sealed uppers take, which do not change
	again := map[string]bool{}          // those of which the upper was changed while it was counted
	h.recallQuotas()
	h.accounts.changed()
	for {
		var later <-chan time.Time
		if len(again) > 0 {
			later = time.After(quotaAgain)
		}
		select {
		case <-h.ctx.Done():
			return
		case <-h.accounts.wake:
		case <-later:
		}
		begun := time.Now()
		found := map[uint64]layers.Usage{}
		for name, acct := range h.accounts.limited() {
			err := h.tally(name, acct, again, sealed, found)
			if err != nil && h.ctx.Err() == nil {
				h.log.Warn("what a workspace takes is not known exactly", "workspace", name, "error", err)
			}
		}
		sealed = found
		select {
		case <-h.ctx.Done():
			return
		case <-time.After(quotaPause + quotaShare*time.Since(begun)):
		}
	}
}

// tally keeps one account true.
func (h *Home) tally(name string, acct *layers.Account, again map[string]bool, known, found map[uint64]layers.Usage) error {
	if _, counted := acct.Used(); !counted || again[name] {
		exact, err := h.recount(h.ctx, name, acct)
		if err != nil {
			return err
		}
		delete(again, name)
		if !exact {
			again[name] = true
		}
	}
	sizes := map[uint64]layers.Usage{}
	for n, u := range known {
		sizes[n] = u
	}
	err := h.tallyKept(h.ctx, name, acct, sizes)
	for n, u := range sizes {
		found[n] = u
	}
	return err
}

// keptTries is how often what a workspace keeps is measured again, if its upper is sealed meanwhile.
const keptTries = 3

// tallyKept measures what goes with a workspace and its snapshots beside its upper. sizes are those of sealed uppers that
// are known; when it returns, of those that were needed.
func (h *Home) tallyKept(ctx context.Context, name string, acct *layers.Account, sizes map[uint64]layers.Usage) error {
	for range keptTries {
		seals := acct.Seals()
		if h.catalog.IsStaged(name) { // the account has a layer that nobody sees yet
			break
		}
		kept, known, err := h.keptBy(ctx, name, sizes)
		if err != nil || !known {
			return err
		}
		if h.accounts.setKept(name, acct, kept, seals) {
			return nil
		}
	}
	h.accounts.changed()
	return nil
}

// keptBy measures what goes with a workspace and its snapshots beside its upper. known is false if the workspace is not
// there, at least not by this name any more, or the records have changed meanwhile.
func (h *Home) keptBy(
	ctx context.Context, name string, sizes map[uint64]layers.Usage,
) (kept layers.Usage, known bool, err error) {
	held, known := h.catalog.HoldingOf(name)
	if !known {
		return kept, false, nil
	}
	own := held.Own
	needed := map[uint64]layers.Usage{}
	for _, l := range own {
		if l.State == Stored {
			n, err := h.inodesOf(ctx, l)
			if err != nil {
				return kept, false, err
			}
			kept.Inodes += n
			continue
		}
		u, ok := sizes[l.Upper]
		if !ok || l.Source != nil {
			if u, err = layers.Measure(ctx, h.uppers.Path(l.Upper)); err != nil {
				return kept, false, err
			}
		}
		needed[l.Upper] = u
		kept.Bytes += u.Bytes
		kept.Inodes += u.Inodes
	}
	clear(sizes)
	for n, u := range needed {
		sizes[n] = u
	}
	if ids := catalog.ImagesOf(own, true); len(ids) > 0 {
		u, err := h.store.Usage(ctx, ids...)
		if errors.Is(err, ErrNotFound) { // one that has just gone: the records have changed
			h.accounts.changed()
			return kept, false, nil
		}
		if err != nil {
			return kept, false, classify(err)
		}
		kept.Bytes += u.Unique
	}
	return kept, true, nil
}

// inodesOf reads from the image of a layer how many inodes it has.
func (h *Home) inodesOf(ctx context.Context, l *catalog.Layer) (int64, error) {
	r, err := h.store.OpenManifest(ctx, l.Manifest)
	if err != nil {
		return 0, classify(err)
	}
	var b [4]byte
	_, err = r.ReadAt(b[:], imageInodes)
	if err = errors.Join(err, r.Close()); err != nil {
		return 0, classify(err)
	}
	return int64(binary.LittleEndian.Uint32(b[:])), nil
}

// imageInodes is where the superblock of an image has the number of its inodes.
const imageInodes = 4
