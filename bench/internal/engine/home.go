package engine

import (
	"context"
	"encoding/json"
	"fmt"

	"snapfs/bench/internal/program"
)

// Home is a home with one stored tree, used by the command line. Used by one goroutine.
type Home struct {
	Engine     Engine
	Dir        string
	Snapshot   string // of the tree; "" if it is not stored yet
	KeepMounts bool   // of the next daemon that a verb starts
	Transport  string // of the mounts of that daemon; "": what it chooses
}

// Run runs a verb on the home and decodes what it prints.
func (h *Home) Run(ctx context.Context, into any, args ...string) error {
	t := program.Setup{Env: []string{fmt.Sprintf("SNAPFS_KEEP_MOUNTS=%t", h.KeepMounts)}}
	if h.Transport != "" {
		t.Env = append(t.Env, "SNAPFS_TRANSPORT="+h.Transport)
	}
	out, err := t.Output(ctx, h.Engine.Binary, append([]string{"--home", h.Dir, "--json"}, args...)...)
	if err != nil || into == nil {
		return err
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("snapfs %s: %w", args[0], err)
	}
	return nil
}

// StoreTree puts a tree into the chunk store, once.
func (h *Home) StoreTree(ctx context.Context, tree string) error {
	if h.Snapshot != "" {
		return nil
	}
	if err := h.Run(ctx, nil, "create", "base", "--from", tree); err != nil {
		return err
	}
	var s struct {
		ID string `json:"id"`
	}
	if err := h.Run(ctx, &s, "snapshot", "base", "--wait", "stored"); err != nil {
		return err
	}
	h.Snapshot = s.ID
	return nil
}
