package daemon_test

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/api/wire"
)

// TestOtherCommands asks a daemon as commands of other versions do.
func TestOtherCommands(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	s := start(t, dir, false)
	for _, test := range []struct{ spoken, want string }{
		{"", `{"result":`}, // before versions were told
		{"1-9", `{"result":`},
		{"8-9", `the daemon is of version ` + testVersion + `, this command of version v9: they do not understand each other: ` +
			`stop the daemon with the command that was installed with it`},
	} {
		conn, err := net.Dial("unix", filepath.Join(dir, sandbox.SocketName))
		if err != nil {
			t.Fatal(err)
		}
		head := "POST " + wire.Route(wire.CallInfo) + " HTTP/1.1\r\nHost: snapfs\r\nConnection: close\r\nContent-Length: 2\r\n"
		if test.spoken != "" {
			head += wire.SpokenHeader + ": " + test.spoken + "\r\n" + wire.VersionHeader + ": v9\r\n"
		}
		if _, err := io.WriteString(conn, head+"\r\n{}"); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if !strings.Contains(string(answer), test.want) || !strings.Contains(string(answer), "HTTP/1.1 200") ||
			!strings.Contains(string(answer), http.CanonicalHeaderKey(wire.SpokenHeader)+": "+wire.Speaks.String()) {
			t.Errorf("to %q: %s", test.spoken, answer)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
