package httpapi_test

import (
	"net/http"
	"testing"

	"snapfs/sandbox/api"
	"snapfs/sandbox/httpapi"
)

// TestMountsAgainAsItWas: a sandbox that is mounted again at a place of the host has the options that it had there.
func TestMountsAgainAsItWas(t *testing.T) {
	r := open(t, httpapi.Options{})
	who := api.Access{Session: "main"}
	if _, err := r.home.Create(t.Context(), api.CreateRequest{Access: who, Name: "w"}); err != nil {
		t.Fatal(err)
	}
	at := t.TempDir()
	if _, err := r.home.Mount(t.Context(), api.MountRequest{
		Access: who, Workspace: "w", Mountpoint: at, MountOptions: api.MountOptions{ReadOnly: true, NoSUID: true, NoDev: true},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.home.Unmount(t.Context(), api.UnmountRequest{Access: who, Workspace: "w"}); err != nil {
		t.Fatal(err)
	}
	get[httpapi.FileList](r, http.MethodGet, root+"/w/files/list?path=/", nil)
	o, err := r.home.Show(t.Context(), api.RefRequest{Access: who, Ref: "w"})
	if err != nil || o.Workspace.Mountpoint != at || !o.Workspace.NoSUID || !o.Workspace.NoDev || !o.Workspace.ReadOnly {
		t.Errorf("%+v, %v", o.Workspace, err)
	}
	if _, err := r.home.Unmount(t.Context(), api.UnmountRequest{Access: who, Workspace: "w"}); err != nil {
		t.Error(err)
	}
}
