package sandbox

import (
	"context"
	"fmt"
	"strings"

	"snapfs/sandbox/api"
)

// Locate tells which workspace a path leads into. A Device is known whatever the path is called where the caller is, as
// in a container; without one the path is as this process sees it. A directory on which an unmounted workspace was
// mounted last names that, if the caller sees the same mounts as this process. ErrNotFound if no workspace is there,
// ErrConflict if several unmounted ones were.
func (h *Home) Locate(ctx context.Context, r LocateRequest) (Workspace, error) {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return Workspace{}, err
	}
	defer end()
	who, err := newAsker(ctx, r.Access)
	if err != nil {
		return Workspace{}, err
	}
	name, err := h.workspaceAt(who, r)
	if err != nil {
		return Workspace{}, err
	}
	w, err := h.locatedWorkspace(who, name, r.Path)
	if err != nil {
		return Workspace{}, err
	}
	if err := h.audit(ctx, who.session, w.Session, w.ID, "", "locate"); err != nil {
		return Workspace{}, err
	}
	return h.describe(w)
}

// workspaceAt is Locate without a look at who owns what it finds.
func (h *Home) workspaceAt(who asker, r LocateRequest) (string, error) {
	if r.Device == "" {
		return h.workspaceHere(who, r.Path)
	}
	h.mu.Lock()
	for name, l := range h.live {
		if l.device == r.Device {
			h.mu.Unlock()
			return name, nil
		}
	}
	h.mu.Unlock()
	return h.lastMountedAt(who, r.Path, fmt.Sprintf("mnt:[%d]", r.Namespace))
}

// workspaceHere is workspaceAt for a path as this process sees it.
func (h *Home) workspaceHere(who asker, path string) (string, error) {
	if who.other {
		return "", fmt.Errorf("%w: this user may not name paths of the host", ErrRefused)
	}
	mounts, err := readMounts()
	if err != nil {
		return "", err
	}
	at, err := h.locate(path, mounts)
	switch {
	case err != nil:
		return "", err
	case at.inside != "":
		return at.inside, nil
	}
	return h.lastMountedAt(who, at.path, h.ns)
}

// lastMountedAt finds the unmounted workspace that was mounted last at a path without symbolic links, in a mount
// namespace.
func (h *Home) lastMountedAt(who asker, path, ns string) (string, error) {
	var own, others []string
	for _, w := range h.catalog.Workspaces() {
		m := w.Mount
		if m == nil || m.Mountpoint != path || m.Apart && !strings.HasPrefix(m.Namespace+" ", h.boot+" "+ns+" ") || !m.Apart && ns != h.ns {
			continue
		}
		switch {
		case h.liveOf(w.ID) != nil:
		case who.may(w.Session):
			own = append(own, w.ID)
		default:
			others = append(others, w.ID)
		}
	}
	switch {
	case len(own) == 1:
		return own[0], nil
	case len(own) > 1:
		return "", fmt.Errorf("%w: several workspaces were mounted at %s: %s: name one",
			ErrConflict, path, strings.Join(own[:min(len(own), suggestMost)], ", "))
	case len(others) > 0:
		return others[0], nil // it is refused
	}
	return "", h.nowhere(path)
}

// nowhere says that a path is not that of a workspace.
func (h *Home) nowhere(path string) error {
	return fmt.Errorf("%w: %s is in no workspace of the home %s", ErrNotFound, api.Quoted(path), h.dir)
}
