package dockerplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"snapfs/internal/lockorder"
	"snapfs/sandbox"
	"snapfs/sandbox/api"
)

// Bounds of what engines can make grow.
const (
	maxVolumes = 10_000
	maxUses    = 4096 // of one volume
)

// Service is what the plugin needs of the service; *sandbox.Home has it.
type Service interface {
	Create(ctx context.Context, r api.CreateRequest) (api.Workspace, error)
	Mount(ctx context.Context, r api.MountRequest) (api.Workspace, error)
	Unmount(ctx context.Context, r api.UnmountRequest) (api.Workspace, error)
	Show(ctx context.Context, r api.RefRequest) (api.Object, error)
	Destroy(ctx context.Context, r api.DestroyRequest) (api.DestroyResult, error)

	// UsedBy names what uses the mount of a workspace; "" if nothing does.
	UsedBy(ctx context.Context, workspace string) (string, error)
	// Dir is the directory of the home.
	Dir() string
	// Labelled gives the workspaces of all sessions that have a label, to the program itself.
	Labelled(key string) iter.Seq[sandbox.Labelled]
}

// LabelVolume is the label of workspaces that were made with a volume.
const LabelVolume = "docker.volume"

// Options are how a plugin works.
type Options struct {
	Log *slog.Logger // nil: nothing is logged
}

// Plugin answers the requests of container engines. Safe for concurrent use.
type Plugin struct {
	service Service
	store   store
	methods []method
	log     *slog.Logger

	mu      lockorder.Mutex[lockorder.DockerVolumes]
	volumes map[string]*volume // guarded by mu: those that there are, and those that a request is about
}

// volume is one volume, or a name that may become one.
type volume struct {
	users int // guarded by Plugin.mu: requests that hold it, or wait for that

	mu      lockorder.Mutex[lockorder.DockerVolume] // held by the request that changes it, while that calls the service
	rec     atomic.Pointer[record]                  // nil: there is none. Set under mu
	stale   bool                                    // guarded by mu: the file has uses that have ended
	problem error                                   // why the file is of no use; nil: it is. Immutable
}

// New makes the plugin of a home, with the volumes that the home has.
func New(service Service, o Options) (*Plugin, error) {
	p := &Plugin{service: service, methods: methods(), log: o.Log, volumes: map[string]*volume{}}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	boot, err := bootID()
	if err != nil {
		return nil, fmt.Errorf("%w: which boot of the machine this is: %w", api.ErrUnavailable, err)
	}
	p.store = store{dir: filepath.Join(service.Dir(), dirName), boot: boot}
	if err := p.store.make(service.Dir()); err != nil {
		return nil, fmt.Errorf("the volumes of %s: %w", service.Dir(), err)
	}
	found, err := p.store.load()
	if err != nil {
		return nil, fmt.Errorf("the volumes of %s: %w", service.Dir(), err)
	}
	for name, f := range found {
		v := &volume{problem: f.problem}
		if f.problem != nil {
			p.log.Error("a volume cannot be used", "volume", name, "error", f.problem)
		} else {
			v.rec.Store(f.record)
		}
		p.volumes[name] = v
	}
	return p, nil
}

// hold takes the lock of a volume, or of a name that is none yet, until done is called.
func (p *Plugin) hold(name string) (v *volume, done func(), err error) {
	if err := validName(name); err != nil {
		return nil, nil, err
	}
	p.mu.Lock()
	v = p.volumes[name]
	if v == nil {
		v = &volume{}
		p.volumes[name] = v
	}
	v.users++
	p.mu.Unlock()
	v.mu.Lock()
	done = func() {
		v.mu.Unlock()
		p.mu.Lock()
		defer p.mu.Unlock()
		if v.users--; v.users == 0 && v.rec.Load() == nil && v.problem == nil {
			delete(p.volumes, name)
		}
	}
	if v.problem != nil {
		done()
		return nil, nil, v.problem
	}
	return v, done, nil
}

// holdKnown is hold for a volume that there is.
func (p *Plugin) holdKnown(name string) (v *volume, done func(), err error) {
	if v, done, err = p.hold(name); err != nil {
		return nil, nil, err
	}
	if r := v.rec.Load(); r == nil || r.Making {
		done()
		return nil, nil, notFound(name)
	}
	return v, done, nil
}

func notFound(name string) error {
	return fmt.Errorf("%w: no such volume: %s", api.ErrNotFound, api.Quoted(name))
}

// put makes a record the one of a volume, also in the home. The caller holds the volume.
func (p *Plugin) put(v *volume, r *record) error {
	if err := p.store.put(r); err != nil {
		return fmt.Errorf("%w: volume %s cannot be recorded: %w", api.ErrUnavailable, r.Name, err)
	}
	v.rec.Store(r)
	v.stale = false
	return nil
}

// drop ends a volume, also in the home. The caller holds it.
func (p *Plugin) drop(v *volume, name string) error {
	if err := p.store.drop(name); err != nil {
		return fmt.Errorf("%w: volume %s cannot be removed: %w", api.ErrUnavailable, name, err)
	}
	v.rec.Store(nil)
	return nil
}

// known looks a volume up without waiting for who changes it.
func (p *Plugin) known(name string) (*record, error) {
	if err := validName(name); err != nil {
		return nil, err
	}
	p.mu.Lock()
	v := p.volumes[name]
	p.mu.Unlock()
	if v == nil {
		return nil, notFound(name)
	}
	if v.problem != nil {
		return nil, v.problem
	}
	r := v.rec.Load()
	if r == nil || r.Making {
		return nil, notFound(name)
	}
	return r, nil
}

// get describes a volume.
func (p *Plugin) get(ctx context.Context, name string) (volumeInfo, error) {
	r, err := p.known(name)
	if err != nil {
		return volumeInfo{}, err
	}
	info := volumeInfo{Name: r.Name, CreatedAt: r.CreatedAt, Status: map[string]any{
		"workspace": r.Workspace, "session": r.Session, "engine": api.EngineFUSE, "uses": len(r.Uses),
	}}
	w, err := p.workspace(ctx, r)
	if err != nil { // the engine is to know of it, if only to remove it
		info.Status["problem"] = err.Error()
		return info, nil
	}
	info.Status["workspace"], info.Status["session"], info.Status["state"] = w.ID, w.Session, w.State
	info.Status["engine"] = cmp.Or(w.Engine, api.EngineFUSE)
	if w.State == api.Mounted {
		info.Mountpoint = w.Mountpoint
	}
	if w.Problem != "" {
		info.Status["problem"] = w.Problem
	}
	if w.Quota != nil {
		info.Status["quota"] = w.Quota
	}
	return info, nil
}

// list names all volumes, in the order of names. Mountpoints are those of uses.
func (p *Plugin) list() []volumeInfo {
	all := []volumeInfo{}
	p.mu.Lock()
	for _, v := range p.volumes {
		if r := v.rec.Load(); r != nil && !r.Making {
			info := volumeInfo{Name: r.Name, CreatedAt: r.CreatedAt}
			if len(r.Uses) > 0 {
				info.Mountpoint = r.At
			}
			all = append(all, info)
		}
	}
	p.mu.Unlock()
	slices.SortFunc(all, func(a, b volumeInfo) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// workspace shows the workspace of a volume. One that was made with the volume is also found if it was renamed.
func (p *Plugin) workspace(ctx context.Context, r *record) (api.Workspace, error) {
	w, err := p.show(ctx, r.access(), r.Workspace)
	if !errors.Is(err, api.ErrNotFound) || r.Mark == "" {
		return w, err
	}
	for l := range p.service.Labelled(LabelVolume) {
		if l.Labels[LabelVolume] == r.Mark {
			return p.show(ctx, r.access(), l.Workspace)
		}
	}
	return w, err
}

// show describes a workspace by its name.
func (p *Plugin) show(ctx context.Context, a api.Access, name string) (api.Workspace, error) {
	o, err := p.service.Show(ctx, api.RefRequest{Access: a, Ref: name})
	switch {
	case err != nil:
		return api.Workspace{}, err
	case o.Workspace == nil:
		return api.Workspace{}, fmt.Errorf("%w: there is no workspace %s", api.ErrNotFound, api.Quoted(name))
	case o.Workspace.View:
		return api.Workspace{}, fmt.Errorf("%w: %s is a view of a snapshot", api.ErrConflict, api.Quoted(name))
	}
	return *o.Workspace, nil
}
