package e2e

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/sandbox"
)

// TestEnginesRunSnapshot loads a snapshot into both engines as an image, of both formats, with all its layers and with one,
// and runs it: command, variables, working directory and user are those of the image that the workspace was made from.
func TestEnginesRunSnapshot(t *testing.T) {
	h := newHome(t)
	d := newDocker(h)
	p := newPodman(h, h.path("none.sock"))
	base, err := os.ReadFile(boxArchive(h))
	require.NoError(t, err)
	from := dockerArchive(t, h.path("image.tar"), testImage{
		tag: "localhost/base:one", layers: [][]byte{base, tarOf(t, directory("work"), file("work/a", "of the image\n"), file("work/gone", ""))},
		config: object{
			"Entrypoint": []string{"sh", "-ec"}, "Cmd": []string{`id -u; id -g; pwd; echo "$X"; echo *; cat a b; echo mine >~/mine; cat ~/mine`},
			"Env": []string{"PATH=/bin", "HOME=/home/somebody", "X=1 2"}, "WorkingDir": "/work", "User": "somebody", "Labels": object{"who": "test"},
		},
	})
	h.ok("up", "app", h.path("app"), "--from", "docker-archive:"+from)
	shell(t, soon, h.path("app"), `rm work/gone; echo one >work/b`)
	h.ok("snapshot", "app", "--name", "one")
	h.write("app/work/b", "two\n")
	h.ok("snapshot", "app", "--name", "two")
	const want = "1000\n1000\n/work\n1 2\na b\nof the image\ntwo\nmine"
	const layers = 4 // two of the image, and one for each snapshot
	type engine struct {
		name  string
		ok    func(args ...string) string
		start []string
	}
	docker, podman := engine{"docker", d.ok, d.container("run", "--rm")}, engine{"podman", p.ok, p.container("--rm")}
	for _, c := range []struct {
		format string
		flags  []string
		layers int
		by     []engine
	}{
		{"docker", nil, layers, []engine{docker, podman}},
		{"docker", []string{"--flatten", "--compression", "gzip"}, 1, []engine{docker}},
		{"oci", nil, layers, []engine{podman}}, // docker takes it since version 25
		{"oci", []string{"--flatten", "--compression", "zstd"}, 1, []engine{podman}},
	} {
		tag := "localhost/app:" + c.format + itoa(c.layers)
		h.ok(append([]string{"export", "app:two", h.path("out.tar"), "--format", c.format, "--tag", tag}, c.flags...)...)
		for _, e := range c.by {
			e.ok("load", "-i", h.path("out.tar"))
			require.Equal(t, itoa(c.layers)+" test", e.ok("image", "inspect", "--format", "{{len .RootFS.Layers}} {{.Config.Labels.who}}", tag), "%s, %s", tag, e.name)
			require.Equal(t, want, e.ok(append(e.start, tag)...), "%s, %s", tag, e.name)
		}
		require.NoError(t, os.Remove(h.path("out.tar")))
	}
	require.Len(t, decode[sandbox.WorkspacePage](h, "list").Workspaces, 1)
}
