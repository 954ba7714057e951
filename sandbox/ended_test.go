package sandbox_test

import (
	"path/filepath"
	"testing"
	"time"

	"snapfs/sandbox"
)

// TestEndedIsUnmounted has umount(8) end a mount and holds up who notices: a workspace without a connection is not
// detached, and can be mounted again and destroyed.
func TestEndedIsUnmounted(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "m")
	late, come := make(chan struct{}), make(chan struct{}, 10)
	h := openHome(t, filepath.Join(dir, "home"), sandbox.WithPoints(sandbox.Options{}, func(point string) {
		if point == "unmounted" {
			wait := late
			come <- struct{}{}
			<-wait
		}
	}))
	if _, err := h.Create(t.Context(), sandbox.CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	w := sandbox.RefRequest{Ref: "w"}
	for name, call := range map[string]func() error{
		"show": func() error {
			o, err := h.Show(t.Context(), w)
			if err == nil && (o.Workspace.State != sandbox.Unmounted || o.Workspace.Mountpoint != "") {
				t.Errorf("shown as %s at %q", o.Workspace.State, o.Workspace.Mountpoint)
			}
			return err
		},
		"mount": func() error {
			if _, err := h.Mount(t.Context(), sandbox.MountRequest{Workspace: "w", Mountpoint: at}); err != nil {
				return err
			}
			_, err := h.Unmount(t.Context(), sandbox.UnmountRequest{Workspace: "w"})
			<-come
			return err
		},
		"destroy": func() error {
			if _, err := h.Destroy(t.Context(), sandbox.DestroyRequest{Ref: "w"}); err != nil {
				return err
			}
			_, err := h.Create(t.Context(), sandbox.CreateRequest{Name: "w"})
			return err
		},
	} {
		late = make(chan struct{})
		if _, err := h.Mount(t.Context(), sandbox.MountRequest{Workspace: "w", Mountpoint: at, MakeMountpoint: true}); err != nil {
			t.Fatal(err)
		}
		if err := shell(t.Context(), `umount "$1"`, at); err != nil {
			t.Fatal(err)
		}
		<-come
		now := late
		time.AfterFunc(200*time.Millisecond, func() { close(now) }) // sooner or later: what acts on the workspace waits for it, show does not
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
