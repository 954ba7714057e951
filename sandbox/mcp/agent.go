package mcp

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"snapfs/sandbox/api"
)

// agent is who calls tools. Safe for concurrent use.
type agent struct {
	Caller
	service Service
	home    string // directory of the home, where workspaces are mounted that are not mounted yet
	turns   *turns
	// reconnect starts the service again that is gone; nil: nobody can.
	reconnect func(context.Context) error
	mine      *memory // of an agent that lives as long as its process; nil: each call looks at the position
}

// memory is the workspace at hand of an agent that lives as long as its process: another agent with the same position
// does not move it.
type memory struct {
	workspace string // guarded by the agent's turn
}

// turns divides agents among channels: those of one position change their workspace at hand one after another.
type turns struct {
	seed  maphash.Seed
	slots [64]chan struct{} // full while one does
}

func newTurns() *turns {
	t := &turns{seed: maphash.MakeSeed()}
	for i := range t.slots {
		t.slots[i] = make(chan struct{}, 1)
	}
	return t
}

// take waits until nobody else of a position changes it.
func (t *turns) take(ctx context.Context, session, position string) (free func(), err error) {
	slot := t.slots[maphash.String(t.seed, session+"/"+position)%uint64(len(t.slots))]
	select {
	case slot <- struct{}{}:
		return func() { <-slot }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// here is the workspace at hand during a call.
type here struct {
	api.Workspace
	notice string // what the model must know before it reads the result
}

// here finds the workspace at hand, and makes it if it is gone.
func (a *agent) here(ctx context.Context) (here, error) {
	free, err := a.turns.take(ctx, a.Access.Session, a.Start.position())
	if err != nil {
		return here{}, err
	}
	defer free()
	name, moved, err := a.name(ctx)
	if errors.Is(err, api.ErrUnavailable) && a.reconnect != nil && a.reconnect(ctx) == nil {
		name, moved, err = a.name(ctx)
	}
	if err != nil {
		return here{}, err
	}
	notice := ""
	if a.mine != nil && a.mine.workspace == "" && moved && name != a.Start.Workspace {
		notice = "You go on in workspace " + name + ", where you were before."
	}
	if name != "" {
		r := api.RefRequest{Access: a.Access, Ref: name}
		o, err := a.service.Show(ctx, r)
		if errors.Is(err, api.ErrUnavailable) && a.reconnect != nil && a.reconnect(ctx) == nil {
			o, err = a.service.Show(ctx, r)
		}
		if err == nil && o.Workspace != nil {
			a.remember(name)
			return here{*o.Workspace, notice}, nil
		}
		if err != nil && !gone(err) {
			return here{}, err
		}
	}
	w, again, err := a.again(ctx, name, moved)
	if err != nil {
		return here{}, err
	}
	a.remember(w.ID)
	return here{w, again}, nil
}

// gone reports whether an error says that there is no such thing, as far as the session may know.
func gone(err error) bool { return errors.Is(err, api.ErrNotFound) || errors.Is(err, api.ErrRefused) }

func (a *agent) remember(name string) {
	if a.mine != nil {
		a.mine.workspace = name
	}
}

// name is that of the workspace at hand, "" if there is none yet; moved says that a restore or branch has led there. The
// caller has the agent's turn.
func (a *agent) name(ctx context.Context) (name string, moved bool, err error) {
	if a.mine != nil && a.mine.workspace != "" {
		return a.mine.workspace, true, nil
	}
	p, err := a.service.Position(ctx, api.PositionRequest{Access: a.Access, Name: a.Start.position()})
	switch {
	case err == nil:
		return p.Workspace, true, nil
	case !errors.Is(err, api.ErrNotFound):
		return "", false, err
	case a.Start.Workspace != "":
		return a.Start.Workspace, false, nil
	}
	page, err := a.service.Workspaces(ctx, api.ListRequest{Access: a.Access, Limit: 2})
	if err != nil || len(page.Workspaces) == 0 {
		return "", false, err
	}
	if len(page.Workspaces) > 1 {
		return "", false, fmt.Errorf("%w: the session has several workspaces, and none is chosen: add ?workspace=NAME to the "+
			"address of the server, or begin it with --workspace NAME", api.ErrInvalid)
	}
	return page.Workspaces[0].ID, false, nil
}

// again makes the workspace at hand again, or a first one, and says what it did.
func (a *agent) again(ctx context.Context, name string, moved bool) (w api.Workspace, notice string, err error) {
	if !slices.Contains(a.Scopes, api.ScopeWorkspaces) {
		return w, "", fmt.Errorf("%w: there is no workspace, and this client may not make one", api.ErrNotFound)
	}
	create := api.CreateRequest{Access: a.Access, Name: name}
	if name != "" {
		page, err := a.service.Snapshots(ctx, api.ListRequest{Access: a.Access, Workspace: name, Limit: 1})
		if err != nil && !gone(err) {
			return w, "", err
		}
		if len(page.Snapshots) > 0 {
			got, err := a.service.Up(ctx, api.UpRequest{CreateRequest: create})
			if err == nil && got.How == api.Restored {
				notice = fmt.Sprintf("Workspace %s was gone. It is restored from its newest snapshot; what was changed after that "+
					"snapshot is lost.", name)
			}
			if !gone(err) && !errors.Is(err, api.ErrConflict) {
				return got.Workspace, notice, err
			}
		}
	}
	switch {
	case name == "":
		create.Name = api.DerivedName("workspace", "fresh", 8)
	case moved:
		create.Name = api.DerivedName(name, "fresh", 8)
	}
	create.Source = a.Start.Source
	got, err := a.service.Up(ctx, api.UpRequest{CreateRequest: create})
	if !moved && name != "" && errors.Is(err, api.ErrRefused) { // the name is another session's
		create.Name = api.DerivedName(name, "fresh", 8)
		got, err = a.service.Up(ctx, api.UpRequest{CreateRequest: create})
	}
	if err != nil || got.How == api.Same {
		return got.Workspace, "", err
	}
	state := "empty"
	if create.Source != "" {
		state = "as its source"
	}
	if moved {
		notice = fmt.Sprintf("Workspace %s is gone, and has no snapshot: you are in a fresh one, %s, which is %s.", name,
			got.ID, state)
	} else {
		notice = fmt.Sprintf("Workspace %s is new, and %s.", got.ID, state)
	}
	if got.ID != name {
		err = a.record(ctx, got.ID)
	}
	return got.Workspace, notice, err
}

// record makes durable in which workspace the agent is.
func (a *agent) record(ctx context.Context, workspace string) error {
	_, err := a.service.SetPosition(ctx, api.SetPositionRequest{
		PositionRequest: api.PositionRequest{Access: a.Access, Name: a.Start.position()}, Workspace: workspace,
	})
	return err
}

// move makes a workspace the one at hand, from the next call on.
func (a *agent) move(ctx context.Context, workspace string) error {
	free, err := a.turns.take(ctx, a.Access.Session, a.Start.position())
	if err != nil {
		return err
	}
	defer free()
	if err := a.record(ctx, workspace); err != nil {
		return err
	}
	a.remember(workspace)
	return nil
}

// mounted gives the workspace at hand for a call about its files, and mounts it if it is not.
func (a *agent) mounted(ctx context.Context) (here, error) {
	at, err := a.here(ctx)
	if err != nil || at.State == api.Mounted {
		return at, err
	}
	w, err := a.service.Mount(ctx, api.MountRequest{
		Access: a.Access, Workspace: at.ID, Mountpoint: api.ServiceMountpoint(a.home, at.ID), MakeMountpoint: true,
		MountOptions: api.MountOptions{NoSUID: true, NoDev: true},
	})
	if errors.Is(err, api.ErrConflict) { // another call mounts it at the same time
		if o, e := a.service.Show(ctx, api.RefRequest{Access: a.Access, Ref: at.ID}); e == nil && o.Workspace.State == api.Mounted {
			w, err = *o.Workspace, nil
		}
	}
	at.Workspace = w
	return at, err
}

// ValidState says what is wrong with the name of a state; api.ErrInvalid.
func ValidState(name string) error {
	if strings.HasPrefix(name, "workspace") {
		return fmt.Errorf("%w: state %s: names that begin with \"workspace\" are taken", api.ErrInvalid, api.Quoted(name))
	}
	return api.ValidPositionName(name)
}
