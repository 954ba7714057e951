package daemon_test

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/client"
	"snapfs/sandbox/daemon"
)

// BenchmarkFiles is the time that calls about small files take, in the process and over the socket, and the speed at
// which a large one goes through.
func BenchmarkFiles(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "home")
	home, err := sandbox.Open(b.Context(), dir, sandbox.Options{})
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan error, 1)
	l, err := daemon.Listen(home.Dir(), daemon.Access{})
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		served <- daemon.Serve(b.Context(), daemon.Options{Dir: dir, Version: testVersion, Home: home, Listener: l})
	}()
	c, err := client.Dial(b.Context(), dir)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { // after the context has ended
		if err := <-served; err != nil {
			b.Error(err)
		}
	})
	ctx := b.Context()
	if _, err := home.Create(ctx, sandbox.CreateRequest{Name: "w"}); err != nil {
		b.Fatal(err)
	}
	r := sandbox.MountRequest{Workspace: "w", Mountpoint: sandbox.ServiceMountpoint(home.Dir(), "w"), MakeMountpoint: true}
	if _, err := home.Mount(ctx, r); err != nil {
		b.Fatal(err)
	}
	at := func(path string) sandbox.WorkFileRequest { return sandbox.WorkFileRequest{Workspace: "w", Path: path} }
	put := func(a sandbox.API, path string, size int) error {
		_, err := a.PutFile(ctx, sandbox.PutFileRequest{WorkFileRequest: at(path), Size: int64(size)}, strings.NewReader(strings.Repeat("x", size)))
		return err
	}
	const large = 64 << 20
	if err := put(home, "large", large); err != nil {
		b.Fatal(err)
	}
	if err := put(home, "small", 4096); err != nil {
		b.Fatal(err)
	}
	get := func(a sandbox.API, path string) error {
		_, err := a.GetFile(ctx, sandbox.GetFileRequest{WorkFileRequest: at(path)}, io.Discard)
		return err
	}
	for _, way := range []struct {
		name string
		api  sandbox.API
	}{{"home", home}, {"socket", c}} {
		for _, call := range []struct {
			name string
			size int64
			run  func() error
		}{
			{"stat", 0, func() error { _, err := way.api.StatFile(ctx, at("small")); return err }},
			{"get", 4096, func() error { return get(way.api, "small") }},
			{"put", 4096, func() error { return put(way.api, "small", 4096) }},
			{"getlarge", large, func() error { return get(way.api, "large") }},
			{"putlarge", large, func() error { return put(way.api, "large", large) }},
		} {
			b.Run(way.name+"/"+call.name, func(b *testing.B) {
				b.SetBytes(call.size)
				for b.Loop() {
					if err := call.run(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
