package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func ioSystems() []ioSystem {
	return []ioSystem{
		{name: "ext4", programs: []string{"cp"}, open: openNative},
		{name: ratioTo, programs: []string{"mount", "umount"}, open: openOverlay("mount", "-t", "overlay", "overlay")},
		{name: alsoRatioTo, programs: []string{"fuse-overlayfs", "umount"}, open: openOverlay("fuse-overlayfs")},
		{name: "snapfs dev", programs: []string{"go"}, open: openSnapfs("dev")},
		{name: "snapfs uring", programs: []string{"go"}, open: openSnapfs("uring")},
	}
}

// binaries are the programs that a system consists of.
func (s ioSystem) binaries(f *fixture) []string {
	switch {
	case strings.HasPrefix(s.name, "snapfs"):
		return []string{f.binary}
	case s.name == alsoRatioTo:
		if p, err := exec.LookPath("fuse-overlayfs"); err == nil {
			return []string{p}
		}
	}
	return nil
}

// emptyCaches empties the kernel's caches of everything that is not dirty.
func emptyCaches() error {
	unix.Sync()
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0); err != nil {
		return fmt.Errorf("drop caches: %w", err)
	}
	return nil
}

// native is a copy of the tree on the disk itself.
type native struct{ path string }

func openNative(ctx context.Context, f *fixture, scratch string, parts []string) (ioMount, error) {
	n := &native{filepath.Join(scratch, "copy")}
	if err := os.Mkdir(n.path, 0o755); err != nil {
		return nil, fmt.Errorf("copy the tree: %w", err)
	}
	for _, p := range parts {
		if err := (tool{}).run(ctx, "cp", "-a", filepath.Join(f.lower, p), n.path); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (n *native) dir() string                                         { return n.path }
func (n *native) cold(context.Context) error                          { return emptyCaches() }
func (n *native) requests(context.Context) (map[string]uint64, error) { return nil, nil }
func (n *native) server(context.Context) (int, error)                 { return 0, nil }
func (n *native) close(context.Context) error                         { return nil }

// overlay is a mount of somebody else's overlay over the tree.
type overlay struct {
	mountpoint string
	command    []string // with everything but the mountpoint
	mounted    bool
}

func openOverlay(command ...string) func(context.Context, *fixture, string, []string) (ioMount, error) {
	return func(ctx context.Context, f *fixture, scratch string, _ []string) (ioMount, error) {
		o := &overlay{mountpoint: filepath.Join(scratch, "mnt")}
		upper, work := filepath.Join(scratch, "upper"), filepath.Join(scratch, "work")
		for _, dir := range []string{upper, work, o.mountpoint} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return nil, fmt.Errorf("prepare overlay: %w", err)
			}
		}
		o.command = append(slices.Clone(command), "-o", "lowerdir="+f.lower+",upperdir="+upper+",workdir="+work, o.mountpoint)
		return o, o.mount(ctx)
	}
}

func (o *overlay) mount(ctx context.Context) error {
	err := tool{}.run(ctx, o.command[0], o.command[1:]...)
	o.mounted = err == nil
	return err
}

func (o *overlay) dir() string                                         { return o.mountpoint }
func (o *overlay) requests(context.Context) (map[string]uint64, error) { return nil, nil }

func (o *overlay) cold(ctx context.Context) error {
	if err := o.close(ctx); err != nil {
		return err
	}
	if err := emptyCaches(); err != nil {
		return err
	}
	return o.mount(ctx)
}

// server finds the process that was started with the mountpoint as its last argument, unless the kernel serves.
func (o *overlay) server(context.Context) (int, error) {
	if o.command[0] == "mount" {
		return 0, nil
	}
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, fmt.Errorf("find server: %w", err)
	}
	for _, path := range all {
		line, err := os.ReadFile(path)
		if err != nil || !strings.HasSuffix(string(line), "\x00"+o.mountpoint+"\x00") {
			continue // it may have ended
		}
		return strconv.Atoi(filepath.Base(filepath.Dir(path)))
	}
	return 0, fmt.Errorf("no process serves %s", o.mountpoint)
}

func (o *overlay) close(context.Context) error {
	if !o.mounted {
		return nil
	}
	err := unmount(o.mountpoint)
	o.mounted = err != nil
	return err
}

// workspace is a workspace of a real daemon over a snapshot in its chunk store.
type workspace struct {
	f          *fixture
	transport  string
	id         string
	mountpoint string
}

func openSnapfs(transport string) func(context.Context, *fixture, string, []string) (ioMount, error) {
	return func(ctx context.Context, f *fixture, scratch string, _ []string) (ioMount, error) {
		if err := f.storeLower(ctx); err != nil {
			return nil, err
		}
		w := &workspace{f: f, transport: transport, mountpoint: filepath.Join(scratch, "mnt")}
		var made struct {
			ID string `json:"id"`
		}
		if err := f.snapfs(ctx, &made, "branch", f.Snapshot); err != nil {
			return nil, err
		}
		w.id = made.ID
		if err := w.mount(ctx); err != nil {
			clean := context.WithoutCancel(ctx)
			return nil, errors.Join(fmt.Errorf("%w: %w", errUnsupported, err), f.snapfs(clean, nil, "destroy", w.id))
		}
		return w, nil
	}
}

func (w *workspace) mount(ctx context.Context) error {
	var m struct {
		Transport string `json:"transport"`
	}
	if err := w.f.snapfs(ctx, &m, "mount", w.id, w.mountpoint, "--transport", w.transport); err != nil {
		return err
	}
	if m.Transport != w.transport {
		return fmt.Errorf("mounted with transport %s instead of %s", m.Transport, w.transport)
	}
	return nil
}

func (w *workspace) dir() string { return w.mountpoint }

// cold also ends the daemon, for what it has cached.
func (w *workspace) cold(ctx context.Context) error {
	if err := w.f.snapfs(ctx, nil, "stop"); err != nil {
		return err
	}
	if err := emptyCaches(); err != nil {
		return err
	}
	return w.mount(ctx)
}

func (w *workspace) requests(ctx context.Context) (map[string]uint64, error) {
	var o struct {
		Workspace struct {
			Requests map[string]uint64 `json:"requests"`
		} `json:"workspace"`
	}
	err := w.f.snapfs(ctx, &o, "show", w.id)
	return o.Workspace.Requests, err
}

func (w *workspace) server(ctx context.Context) (int, error) {
	var s struct {
		PID int `json:"pid"`
	}
	err := w.f.snapfs(ctx, &s, "status")
	return s.PID, err
}

func (w *workspace) close(ctx context.Context) error {
	// By force, or a mount namespace that somebody made meanwhile keeps a copy.
	if err := w.f.snapfs(ctx, nil, "umount", "--force", w.id); err != nil {
		return err
	}
	return w.f.snapfs(ctx, nil, "destroy", w.id)
}

// snapfs runs the command line on the fixture's home and decodes what it prints.
func (f *fixture) snapfs(ctx context.Context, into any, args ...string) error {
	out, err := tool{}.output(ctx, f.binary, append([]string{"--home", f.home, "--json"}, args...)...)
	if err != nil || into == nil {
		return err
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("snapfs %s: %w", args[0], err)
	}
	return nil
}

// storeLower puts the tree into the chunk store, once.
func (f *fixture) storeLower(ctx context.Context) error {
	if f.Snapshot != "" {
		return nil
	}
	if err := f.snapfs(ctx, nil, "create", "base", "--from", f.lower); err != nil {
		return err
	}
	var s struct {
		ID string `json:"id"`
	}
	if err := f.snapfs(ctx, &s, "snapshot", "base", "--wait", "stored"); err != nil {
		return err
	}
	f.Snapshot = s.ID
	return nil
}
