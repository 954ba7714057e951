package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestComposeFile runs the example of the documentation.
func TestComposeFile(t *testing.T) {
	text, err := os.ReadFile("../../docs/containers.md")
	require.NoError(t, err)
	m := regexp.MustCompile("(?s)\n## Compose\n.*?\n```yaml\n(.*?)```\n").FindSubmatch(text)
	require.NotNil(t, m)
	h := newHome(t)
	d := newDocker(h)
	driver := d.serveVolumes()
	d.box()
	h.write("app/file", "of the base\n")
	h.ok("destroy", "app")
	h.ok("create", "app", "--from", h.path("app"))
	h.ok("snapshot", "app", "--name", "built")
	h.ok("branch", "app:built", "--name", "try-1")
	h.write("compose.yaml", strings.ReplaceAll(string(m[1]), "driver: snapfs\n", "driver: "+driver+"\n"))
	const alone = "network_mode: none, cgroup_parent: %, environment: [SNAPFS_E2E, SNAPFS_CI_MARK], stop_signal: SIGKILL"
	service := strings.ReplaceAll(alone, "%", "/"+d.cgroup)
	h.write("alone.yaml", "services:\n  agent: {"+service+"}\n  tests: {"+service+"}\n")
	compose := func(args ...string) string {
		t.Helper()
		r := process(t, soon, h.tmp, append(h.env, "DOCKER_HOST=unix://"+d.path("docker.sock"), "SNAPFS_CI_MARK="+os.Getenv("SNAPFS_CI_MARK")),
			append([]string{"docker-compose", "-p", filepath.Base(d.dir), "-f", h.path("compose.yaml"), "-f", h.path("alone.yaml")}, args...)...)
		require.Zero(t, r.code, "%q: %s%s", args, r.out, r.err)
		return r.out
	}
	compose("up", "-d")
	require.Contains(t, compose("logs", "--no-color", "tests"), "file")
	require.Equal(t, "of the base", d.in(strings.TrimSpace(compose("ps", "-q", "agent")), "cat /workspace/file"))
	require.Len(t, d.volumes(), 2)
	compose("down", "-v")
	require.ElementsMatch(t, []string{"app", "try-1"}, workspaceNames(h))
}
