package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/sandbox"
)

// deadly makes the command, as TestMain does, but that a daemon panics when it is asked for the name "deadly", or
// "deadlier".
func deadly(t *testing.T, dir string) (command string) {
	t.Helper()
	const handler = "\tnode := h.NodeId\n\tn, st := s.next.HandleRequest(in, out)\n"
	file, err := filepath.Abs("../../fs/again.go")
	require.NoError(t, err)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 1, bytes.Count(text, []byte(handler)), "where requests are handled")
	changed := filepath.Join(dir, "again.go")
	require.NoError(t, os.WriteFile(changed, bytes.Replace(text, []byte(handler), []byte(`
	if names := namesIn(in[0]); len(names) > 0 && (names[0] == "deadly" || names[0] == "deadlier") {
		go panic("this request is " + names[0])
		select {}
	}`+"\n"+handler), 1), 0o600))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay"), overlay, 0o600))
	command = filepath.Join(dir, "snapfs")
	shell(t, 10*time.Minute, "../..", `CGO_ENABLED=0 go build -overlay "$1/overlay" -o "$1/snapfs-engine" ./cmd/snapfs; cp "$2" "$1/snapfs"`, dir, snapfs)
	return command
}

// TestDeadlyRequest: a request of which three daemons have died is answered with an error, and nothing else is. Events and
// the log tell which it was, and how the daemons have died.
func TestDeadlyRequest(t *testing.T) {
	h := newHome(t)
	h.command = deadly(t, h.makeDir("bin"))
	ws := h.path("ws")
	h.ok("up", "ws", ws, "--transport", "dev")
	h.ok("up", "other", h.path("other"), "--transport", "dev")
	asked := shell(t, soon, h.tmp, `exec 3> ws/open 4> other/open
		( for i in $(seq 2000); do echo $i; done >&4; while [ ! -e stop ]; do echo x >> ws/log; stat other/open > stat; done ) & busy=$!
		if stat ws/deadly 2>&1; then exit 1; fi
		if mkdir ws/deadlier 2>&1; then exit 1; fi
		touch stop; wait $busy; echo more >&3; cat ws/open; wc -l < other/open`)
	lines := strings.Split(strings.TrimSpace(asked), "\n")
	require.Len(t, lines, 4, asked)
	require.Contains(t, lines[0], "Input/output error")
	require.Contains(t, lines[1], "Input/output error")
	require.Equal(t, []string{"more", "2000"}, lines[2:])

	var crashed, refused []sandbox.Event
	require.Eventually(t, func() bool { // a daemon serves before it has noted the deaths
		crashed, refused = nil, nil
		for line := range strings.Lines(h.ok("--json", "events")) {
			var e sandbox.Event
			require.NoError(t, json.Unmarshal([]byte(line), &e))
			switch e.Kind {
			case sandbox.EventDaemonCrashed:
				crashed = append(crashed, e)
			case sandbox.EventRequestRefused:
				refused = append(refused, e)
			}
		}
		return len(crashed) >= 12
	}, soon, 20*time.Millisecond)
	require.Len(t, refused, 2)
	for i, name := range []string{"deadly", "deadlier"} {
		require.Equal(t, "ws", refused[i].Workspace)
		require.Contains(t, refused[i].Detail, `LOOKUP in node 1 of "`+name+`"`)
	}
	require.Len(t, crashed, 12, "six deaths, for two workspaces") // and none twice
	for _, e := range crashed {
		require.Contains(t, e.Detail, "exit status 2")
		require.Contains(t, e.Detail, "its mount went on")
	}
	require.Contains(t, crashed[len(crashed)-1].Detail, "panic: this request is deadlier")
	log := h.log()
	for _, line := range []string{`reason="exit status 2"`, `request=LOOKUP node=1 names=[deadlier]`, "panic: this request is deadly\n"} {
		require.Contains(t, log, line)
	}
}
