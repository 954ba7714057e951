package daemon_test

import (
	"io"
	"strings"
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/daemon"
	"snapfs/sandbox/daemon/daemontest"
)

// TestTokenSendsSoMuch: a file of more than a token may send is refused, also if its size is not told, and nothing is
// made.
func TestTokenSendsSoMuch(t *testing.T) {
	const most = 2 << 20
	d := daemontest.Start(t, func(o *daemon.Options) {
		o.Limits = func() daemon.Limits { return daemon.Limits{Upload: most} }
	})
	a := sandbox.Access{Session: "a"}
	if _, err := d.Create(t.Context(), sandbox.CreateRequest{Access: a, Name: "w"}); err != nil {
		t.Fatal(err)
	}
	at := sandbox.MountRequest{
		Access: a, Workspace: "w", Mountpoint: sandbox.ServiceMountpoint(d.Dir, "w"), MakeMountpoint: true,
	}
	if _, err := d.Mount(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	secret := d.Token(t, "a").Secret
	for _, tc := range []struct {
		path string
		size int
		ok   bool
	}{{"small", most, true}, {"large", most + 1, false}} {
		body := io.MultiReader(strings.NewReader(strings.Repeat("x", tc.size))) // of a length that is not known
		r := d.Do(t, "POST", wire.Route(wire.CallPutFile), secret, body,
			wire.RequestHeader, `{"workspace":"w","path":"`+tc.path+`","size":-1}`)
		if tc.ok && r.Status != 200 || !tc.ok && (r.Status != 400 || !strings.Contains(r.Error(t).Message, "may send")) {
			t.Errorf("%s: %d %s", tc.path, r.Status, r.Body)
		}
		_, err := d.StatFile(t.Context(), sandbox.WorkFileRequest{Access: a, Workspace: "w", Path: tc.path})
		if tc.ok != (err == nil) {
			t.Errorf("%s: %v", tc.path, err)
		}
	}
}
