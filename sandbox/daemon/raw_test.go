package daemon_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/daemon/daemontest"
)

// TestRawFiles: contents of files come as they are to who asks for that, with the result in a trailer, and in lines to others.
// What fails before there are contents is a line for both.
func TestRawFiles(t *testing.T) {
	d := daemontest.Start(t, nil)
	ctx := t.Context()
	if _, err := d.Home.Create(ctx, sandbox.CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	at := sandbox.ServiceMountpoint(d.Dir, "w")
	if _, err := d.Home.Mount(ctx, sandbox.MountRequest{Workspace: "w", Mountpoint: at, MakeMountpoint: true}); err != nil {
		t.Fatal(err)
	}
	const lines = "application/x-ndjson"
	const name = "große \U0001f4c4"
	want := make([]byte, 1<<20)
	for i := range want {
		want[i] = byte(rand.Uint32())
	}
	in := func(path string) sandbox.WorkFileRequest { return sandbox.WorkFileRequest{Workspace: "w", Path: path} }
	for path, contents := range map[string][]byte{name: want, "empty": nil} {
		r := sandbox.PutFileRequest{WorkFileRequest: in(path), Size: -1}
		if _, err := d.Client.PutFile(ctx, r, bytes.NewReader(contents)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := d.Home.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w"})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(call string, r any, accept string) (h http.Header, body []byte, trailer string) {
		t.Helper()
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://snapfs"+wire.Route(call), bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		resp, err := overSocket(d).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err = io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		return resp.Header, body, resp.Trailer.Get(wire.ResultHeader)
	}
	calls := map[string]func(path string) any{
		wire.CallGetFile: func(path string) any { return sandbox.GetFileRequest{WorkFileRequest: in(path)} },
		wire.CallRead:    func(path string) any { return sandbox.FilesRequest{Ref: s.ID, Path: path} },
	}
	for call, request := range calls {
		h, body, trailer := ask(call, request(name), wire.RawType)
		var last struct{ Result sandbox.File }
		if err := json.Unmarshal([]byte(trailer), &last); err != nil || last.Result.Size != int64(len(want)) {
			t.Errorf("%s: the trailer is %q, %v", call, trailer, err)
		}
		if h.Get("Content-Type") != wire.RawType || !bytes.Equal(body, want) {
			t.Errorf("%s: %d bytes of %s", call, len(body), h.Get("Content-Type"))
		}
		h, body, _ = ask(call, request(name), "*/*")
		if h.Get("Content-Type") != lines || !bytes.HasPrefix(body, []byte(`{"data":"`)) {
			t.Errorf("%s: to others %.30q of %s", call, body, h.Get("Content-Type"))
		}
		for path, word := range map[string]string{"none": `{"error":`, "empty": `{"result":`} {
			h, body, _ := ask(call, request(path), wire.RawType)
			if h.Get("Content-Type") != lines || !strings.HasPrefix(string(body), word) {
				t.Errorf("%s of %s: %.30q of %s", call, path, body, h.Get("Content-Type"))
			}
		}
	}
	for range 3 { // the connection is used again
		var got bytes.Buffer
		f, err := d.Client.GetFile(ctx, sandbox.GetFileRequest{WorkFileRequest: in(name)}, &got)
		if err != nil || f.Size != int64(len(want)) || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("the client has %d bytes, %+v, %v", got.Len(), f, err)
		}
	}
	own := errors.New("own")
	_, err = d.Client.GetFile(ctx, sandbox.GetFileRequest{WorkFileRequest: in(name)}, failingWriter{own})
	if !errors.Is(err, own) {
		t.Errorf("an error of who takes it: %v", err)
	}
	gone, cancel := context.WithCancel(ctx)
	_, err = d.Client.GetFile(gone, sandbox.GetFileRequest{WorkFileRequest: in(name)}, cancelling(cancel))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// failingWriter is a writer that has an error only.
type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// cancelling is a writer that ends the call.
type cancelling func()

func (c cancelling) Write(p []byte) (int, error) {
	c()
	return len(p), nil
}
