package dockerplugin

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
)

// TestForgottenUse: a use that its engine never ended does not keep a volume for ever.
func TestForgottenUse(t *testing.T) {
	f := newFake(t)
	p := newPlugin(t, f)
	works(t, p, "VolumeDriver.Create", request{Name: "web"})
	works(t, p, "VolumeDriver.Mount", request{Name: "web", ID: "gone"})
	works(t, p, "VolumeDriver.Remove", request{Name: "web"})
	require.Empty(t, f.workspaces)
}

// TestEndedEngine: uses end with the engine that asked for them, unless their containers go on.
func TestEndedEngine(t *testing.T) {
	f := newFake(t)
	p := newPlugin(t, f)
	works(t, p, "VolumeDriver.Create", request{Name: "web"})
	engine := exec.CommandContext(t.Context(), "sleep", "1000")
	require.NoError(t, engine.Start())
	for _, id := range []string{"a", "b"} {
		_, err := p.mount(sandbox.WithProcess(t.Context(), engine.Process.Pid), "web", id)
		require.NoError(t, err)
	}
	end := func(id string, want int) {
		t.Helper()
		works(t, p, "VolumeDriver.Unmount", request{Name: "web", ID: id})
		require.Len(t, p.volumes["web"].rec.Load().Uses, want)
	}
	mounted := func(ctx context.Context, id string) {
		t.Helper()
		_, err := p.mount(ctx, "web", id)
		require.NoError(t, err)
	}
	next := sandbox.WithProcess(t.Context(), os.Getpid())
	mounted(next, "c")
	end("c", 2) // the engine lives
	require.NoError(t, engine.Process.Kill())
	_, _ = engine.Process.Wait()
	mounted(next, "d")
	f.busy = "a container that goes on"
	end("d", 2)
	f.busy = ""
	mounted(next, "e")
	mounted(next, "f")
	end("e", 3) // f is of an engine that lives
	end("f", 0)
	require.Equal(t, api.Unmounted, f.workspaces["web"].State)
}

// TestCopying: Docker mounts the volumes of a container that runs once more, as the same use, while it copies files.
func TestCopying(t *testing.T) {
	f := newFake(t)
	p := newPlugin(t, f)
	works(t, p, "VolumeDriver.Create", request{Name: "web"})
	begin := func(id string) { t.Helper(); works(t, p, "VolumeDriver.Mount", request{Name: "web", ID: id}) }
	end := func(id string, want api.WorkspaceState) {
		t.Helper()
		works(t, p, "VolumeDriver.Unmount", request{Name: "web", ID: id})
		require.Equal(t, want, f.workspaces["web"].State)
	}
	begin("a")
	begin("a")
	begin("a")
	end("a", api.Mounted)
	p = newPlugin(t, f)
	require.EqualValues(t, 1, works(t, p, "VolumeDriver.Get", request{Name: "web"}).Volume.Status["uses"])
	begin("a") // the daemon may have ended before it answered: this is the request before once more
	end("a", api.Mounted)
	end("a", api.Unmounted)

	begin("a")
	p = newPlugin(t, f)
	r := p.volumes["web"].rec.Load()
	r.Uses[0].Since = r.Uses[0].Since.Add(-2 * retries)
	begin("a") // it is not
	end("a", api.Mounted)
	end("a", api.Unmounted)
}

// TestSameUseOfNextEngine: Docker that has been restarted calls a use as before. What goes on of it keeps the mount.
func TestSameUseOfNextEngine(t *testing.T) {
	f := newFake(t)
	p := newPlugin(t, f)
	works(t, p, "VolumeDriver.Create", request{Name: "web"})
	engine := exec.CommandContext(t.Context(), "sleep", "1000")
	require.NoError(t, engine.Start())
	this := sandbox.WithProcess(t.Context(), os.Getpid())
	mounted := func(ctx context.Context, id string) {
		t.Helper()
		_, err := p.mount(ctx, "web", id)
		require.NoError(t, err)
	}
	end := func(id string, want api.WorkspaceState) {
		t.Helper()
		works(t, p, "VolumeDriver.Unmount", request{Name: "web", ID: id})
		require.Equal(t, want, f.workspaces["web"].State)
	}
	for _, id := range []string{"a", "b"} {
		mounted(sandbox.WithProcess(t.Context(), engine.Process.Pid), id)
	}
	require.NoError(t, engine.Process.Kill())
	_, _ = engine.Process.Wait()
	f.busy = "a container that goes on"
	mounted(this, "a") // while it copies files
	end("a", api.Mounted)
	p = newPlugin(t, f)
	mounted(this, "a")
	mounted(this, "b")
	end("b", api.Mounted)
	f.busy = ""
	end("a", api.Unmounted)
	require.Empty(t, p.volumes["web"].rec.Load().Uses)
}
