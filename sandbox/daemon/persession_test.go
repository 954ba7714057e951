package daemon_test

import (
	"net/http"
	"testing"

	"snapfs/sandbox/daemon"
	"snapfs/sandbox/daemon/daemontest"
)

// TestLimitsAreOfSessions: a session with two tokens may ask no more than one with one, and another session does not notice.
func TestLimitsAreOfSessions(t *testing.T) {
	d := daemontest.Start(t, func(o *daemon.Options) {
		o.Limits = func() daemon.Limits { return daemon.Limits{Rate: 1e-9, Burst: 2} }
		o.Services = []daemon.Service{{Pattern: "/t/", Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}}
	})
	first, second, other := d.Token(t, "a").Secret, d.Token(t, "a").Secret, d.Token(t, "b").Secret
	for i, tc := range []struct {
		secret string
		status int
	}{{first, 200}, {second, 200}, {first, 429}, {second, 429}, {other, 200}} {
		if r := d.Do(t, http.MethodGet, "/t/", tc.secret, nil); r.Status != tc.status {
			t.Errorf("request %d: %d %s, want %d", i, r.Status, r.Body, tc.status)
		}
	}
}
