package sandbox

import (
	"context"
	"fmt"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
)

// pinned tells who keeps space that nothing names any more, and how much in all.
func (h *Home) pinned(ctx context.Context) ([]api.Pinned, int64, error) {
	held := h.cache.Held()
	if len(held) == 0 {
		return nil, 0, nil
	}
	sets := make([][]chunkstore.ID, len(held))
	for i, x := range held {
		sets[i] = x.Images
	}
	each, all, err := h.store.Held(ctx, sets...)
	if err != nil {
		return nil, 0, classify(fmt.Errorf("accounting for what is kept: %w", err))
	}
	var list []api.Pinned
	for i, x := range held {
		if each[i] == 0 {
			continue
		}
		p := api.Pinned{Why: api.PinCall, Workspace: x.Workspace, Bytes: each[i]}
		if x.Workspace != "" {
			p.Why = api.PinMount
		}
		if x.Deleted {
			p.Why = api.PinDeleted
		}
		if l := h.liveOf(x.Workspace); l != nil {
			l.explain(&p)
		}
		list = append(list, p)
	}
	return list, all, nil
}

// explain adds what is known of a mount that keeps space.
func (l *live) explain(p *api.Pinned) {
	done, ok := l.use()
	if !ok {
		return
	}
	defer done()
	p.Mountpoint = l.at().path
	if p.Why == api.PinDeleted {
		p.Files = l.overlay.Detached()
		return
	}
	defer l.lockStack()()
	if l.behind != nil {
		p.Detail = l.behind.Error()
	}
}
