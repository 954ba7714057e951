package httpapi_test

import (
	"errors"
	"net/http"
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/caller"
	"snapfs/sandbox/httpapi"
)

// TestMountsAtItsPlace: a workspace that was mounted at a place of the host is not mounted there again over the network,
// where its setuid programs and devices could have effect, but in the home. One that is mounted there is used there.
func TestMountsAtItsPlace(t *testing.T) {
	r := open(t, httpapi.Options{})
	who := api.Access{Session: "main"}
	if _, err := r.home.Create(t.Context(), api.CreateRequest{Access: who, Name: "w"}); err != nil {
		t.Fatal(err)
	}
	at := t.TempDir()
	if _, err := r.home.Mount(t.Context(), api.MountRequest{Access: who, Workspace: "w", Mountpoint: at}); err != nil {
		t.Fatal(err)
	}
	listed := func(want string, closed bool) {
		t.Helper()
		get[httpapi.FileList](r, http.MethodGet, root+"/w/files/list?path=/", nil)
		o, err := r.home.Show(t.Context(), api.RefRequest{Access: who, Ref: "w"})
		if err != nil || o.Workspace.Mountpoint != want || o.Workspace.NoSUID != closed || o.Workspace.NoDev != closed {
			t.Errorf("%+v, %v; want %s", o.Workspace, err, want)
		}
		if _, err := r.home.Unmount(t.Context(), api.UnmountRequest{Access: who, Workspace: "w"}); err != nil {
			t.Fatal(err)
		}
	}
	listed(at, false)
	listed(sandbox.ServiceMountpoint(r.home.Dir(), "w"), true)
	remotely := caller.With(t.Context(), &caller.Caller{Token: "t"})
	if _, err := r.home.Mount(remotely, api.MountRequest{Access: who, Workspace: "w"}); !errors.Is(err, api.ErrRefused) {
		t.Errorf("where it was: %v", err)
	}
}
