package statehttp_test

import (
	"net/http"
	"strings"
	"testing"

	"snapfs/sandbox/statehttp"
)

// TestOperations: each call that is described is there, takes the parameters that are told, and no others.
func TestOperations(t *testing.T) {
	u := newUser(t, start(t), "a")
	for _, o := range statehttp.Operations() {
		path := strings.NewReplacer("{agent}", "x", "{kind}", "agent", "{scope}", "y", "{id}", "latest").Replace(o.Path)
		url := strings.TrimSuffix(u.url, "/api/v1") + path
		for _, p := range append(o.Query, append(statehttp.CommonQuery(), statehttp.Parameter{Name: "none"})...) {
			value := map[string]string{"session": "a", "owner": "a", "allowCrossSession": "true", "limit": "1"}[p.Name]
			resp, body := u.ask(o.Method, url+"?"+p.Name+"="+value, map[bool]string{true: "{}"}[o.Body != nil])
			unknown := strings.Contains(body, "is not known here")
			if unknown != (p.Name == "none") || resp.StatusCode == http.StatusMethodNotAllowed {
				t.Errorf("%s %s with %s: %d %s", o.Method, o.Path, p.Name, resp.StatusCode, body)
			}
		}
	}
}
