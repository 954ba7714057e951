package sandbox

import (
	"context"
	"fmt"
	"iter"

	"snapfs/internal/lockorder"
	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"

	"golang.org/x/sys/unix"
)

const (
	// maxStatFiles is of how many changed files of a turn lines are counted.
	maxStatFiles = 2000
	// maxStatWork is how many files one call compares.
	maxStatWork = 20_000
	// maxStats is of how many turns it is remembered what they changed.
	maxStats = 10_000
)

// Turns lists the turns of a workspace, the newest first: those of its line, or with All also those that were cut off.
func (h *Home) Turns(ctx context.Context, r TurnsRequest) (TurnPage, error) {
	page := TurnPage{Turns: []Turn{}}
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return page, err
	}
	defer end()
	session, err := r.SessionID()
	if err != nil {
		return page, err
	}
	limit, err := pageLimit(ListRequest{Limit: r.Limit})
	if err != nil {
		return page, err
	}
	if r.After != "" && !api.IsID(r.After) {
		return page, fmt.Errorf("%w: cursor %s is not the id of a snapshot", ErrInvalid, api.Quoted(r.After))
	}
	w, err := h.useWorkspace(ctx, r.Access, r.Workspace, "list turns")
	if err != nil {
		return page, err
	}
	var found []*catalog.Snapshot
	for s, place := range h.turnsOf(w, r.All) {
		if s.Turn == 0 || r.After != "" && s.ID >= r.After {
			continue
		}
		if page.More = len(found) == limit; page.More {
			break
		}
		found = append(found, s)
		page.Turns = append(page.Turns, Turn{
			Number: s.Turn, Snapshot: s.ID, Session: s.Session, Message: s.Description, CreatedAt: s.CreatedAt,
			ExpiresAt: s.ExpiresAt, Place: place,
		})
	}
	if !r.Stat {
		return page, nil
	}
	return page, h.countTurns(ctx, session, found, page.Turns)
}

// turnsOf gives the snapshots among which the turns of a workspace are, the newest first, and where each is. Without all
// these are those of its line.
func (h *Home) turnsOf(w *catalog.Workspace, all bool) iter.Seq2[*catalog.Snapshot, TurnPlace] {
	tip := h.catalog.Snapshot(w.Redo)
	if tip == nil {
		tip = h.catalog.Snapshot(w.Head)
	}
	if tip == nil || !w.Took(tip) {
		tip = h.lower(w, w.Base, "")
	}
	line := func(yield func(*catalog.Snapshot, TurnPlace) bool) {
		passed := w.Redo == ""
		for s := range h.lineFrom(w, tip) {
			place := TurnUndone
			switch {
			case s.Top == w.Base:
				place, passed = TurnCurrent, true
			case passed:
				place = TurnPast
			}
			if !w.Took(s) || !yield(s, place) {
				return
			}
		}
	}
	if !all {
		return line
	}
	return func(yield func(*catalog.Snapshot, TurnPlace) bool) {
		places := map[string]TurnPlace{}
		for s, place := range line {
			places[s.ID] = place
		}
		for s := range h.catalog.ListSnapshots(catalog.Query{Workspace: w.ID, Newest: true}) {
			place, in := places[s.ID]
			if !in {
				place = TurnCut
			}
			if !w.Took(s) || !yield(s, place) {
				return
			}
		}
	}
}

// statKey names what a turn is compared with: merging layers may change that.
type statKey struct{ snapshot, from string }

// turnStats remembers what turns changed. The zero value is ready.
type turnStats struct {
	mu  lockorder.Mutex[lockorder.TurnStats]
	all map[statKey]TurnStat // guarded by mu
}

func (t *turnStats) get(k statKey) (TurnStat, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.all[k]
	return s, ok
}

// put remembers one more. Of too many it forgets any.
func (t *turnStats) put(k statKey, s TurnStat) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[statKey]TurnStat{}
	}
	for old := range t.all {
		if len(t.all) < maxStats {
			break
		}
		delete(t.all, old)
	}
	t.all[k] = s
}

// countTurns fills in what turns changed, until they are too many for one call. What is found is remembered.
func (h *Home) countTurns(ctx context.Context, session string, found []*catalog.Snapshot, turns []Turn) error {
	leave := func() {}
	defer func() { leave() }()
	work, working := 0, false
	for i, s := range found {
		key := statKey{s.ID, s.ParentTop}
		stat, known := h.turnStats.get(key)
		if !known {
			if work >= maxStatWork {
				continue
			}
			if !working {
				var err error
				if leave, err = h.working.diffs.Enter(ctx, session, nil); err != nil {
					return err
				}
				working = true
			}
			var err error
			if stat, err = h.countTurn(ctx, s); err != nil {
				if h.catalog.Snapshot(s.ID) == nil {
					continue // deleted meanwhile
				}
				return fmt.Errorf("comparing turn %d: %w", s.Turn, err)
			}
			work += stat.Files
			h.turnStats.put(key, stat)
		}
		turns[i].Stat = &stat
	}
	return nil
}

// countTurn counts what a turn changed.
func (h *Home) countTurn(ctx context.Context, s *catalog.Snapshot) (stat TurnStat, err error) {
	if s, err = h.still(s); err != nil {
		return stat, err
	}
	from, to, done, err := h.openSides(ctx, subject{snapshot: s}, subject{})
	if err != nil {
		return stat, err
	}
	defer done()
	c, err := layers.Compare(from.lowers, to.lowers)
	if err != nil {
		return stat, classify(err)
	}
	defer c.Close()
	var all []layers.Change
	for change, err := range c.Changes(ctx) {
		if err != nil {
			return stat, classify(err)
		}
		if all = append(all, change); len(all) > maxStatFiles {
			stat.More = true
			break
		}
	}
	count := func(ch Change) error {
		if ch.Mode&unix.S_IFMT == unix.S_IFDIR {
			return nil
		}
		stat.Files++
		if ch.Stat != nil {
			stat.Additions += ch.Stat.Additions
			stat.Deletions += ch.Stat.Deletions
		}
		return nil
	}
	if stat.More {
		for _, ch := range all {
			_ = count(changeOf(ch)) // never fails
		}
		return stat, nil
	}
	d, err := newFileDiff(ctx, c, DiffRequest{Stat: true})
	if err == nil {
		err = d.run(all, count)
	}
	return stat, classify(err)
}
