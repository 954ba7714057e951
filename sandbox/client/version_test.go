package client

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
)

// TestOtherVersions talks to daemons of other versions.
func TestOtherVersions(t *testing.T) {
	answers := func(version, speaks, line string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if speaks != "" {
				w.Header().Set(wire.SpokenHeader, speaks)
				w.Header().Set(wire.VersionHeader, version)
			}
			switch {
			case r.URL.Path == wire.Route(wire.CallInfo):
				_, _ = w.Write([]byte(`{"result":{"pid":1,"version":"` + version + `"}}` + "\n")) // the client notices
			case line == "":
				http.NotFound(w, r)
			default:
				_, _ = w.Write([]byte(line + "\n")) // as above
			}
		}
	}
	for _, test := range []struct {
		name, version, speaks, line string
		want                        string // of the error of Dial, or else of Up
	}{
		{"only later", "v9", "8-9", "", "the daemon is of version v9, this command of version v1: they do not understand " +
			"each other: use the command that was installed with the daemon"},
		{"without the call", "v0", "", "", "it does not know the call up: 'snapfs upgrade' of the newer version replaces"},
		{
			"without a field", "v0", "1-1", `{"error":{"class":"invalid","message":"invalid: request: json: unknown field \"new\""}}`,
			`the daemon is of version v0, this command of version v1: it does not know "new" of the call up: 'snapfs upgrade'`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			serve(t, dir, answers(test.version, test.speaks, test.line))
			c, err := DialAs(t.Context(), dir, "v1")
			if err == nil {
				_, err = c.Up(t.Context(), api.UpRequest{})
				if c.DaemonVersion() != test.version {
					t.Errorf("version %q", c.DaemonVersion())
				}
				if e := c.StopWith(t.Context(), wire.StopRequest{UnlessBusy: true}, nil); !errors.As(e, new(*wire.VersionError)) {
					t.Errorf("a daemon that does not know conditions is stopped: %v", e)
				}
				c.conn.closeIdle()
			}
			if !errors.As(err, new(*wire.VersionError)) || !errors.Is(err, api.ErrUnavailable) ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}

// TestOldStop: daemons of the first version take no other request to stop than this.
func TestOldStop(t *testing.T) {
	if text, err := json.Marshal(wire.StopRequest{}); err != nil || string(text) != "{}" {
		t.Errorf("%s, %v", text, err)
	}
}
