package daemon_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/daemon/daemontest"
)

func TestEventStream(t *testing.T) {
	d := daemontest.Start(t, nil)
	a, b, writes := d.Token(t, "a"), d.Token(t, "b"), d.Token(t, "a", sandbox.ScopeWrite)
	who := sandbox.Access{Session: "a"}
	if _, err := d.Create(t.Context(), sandbox.CreateRequest{Access: who, Name: "w"}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Snapshot(t.Context(), sandbox.SnapshotRequest{Access: who, Workspace: "w", Name: "first"}); err != nil {
		t.Fatal(err)
	}
	r := d.Do(t, http.MethodGet, "/v1/events?workspace=w", a.Secret, nil, "Accept", "text/event-stream")
	if r.Status != 200 || r.Header.Get("Content-Type") != "text/event-stream" || !strings.Contains(string(r.Body), "event: snapshotted\ndata: {") {
		t.Fatalf("%d %v %s", r.Status, r.Header, r.Body)
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(string(r.Body), "id: "), "\n")
	for _, headers := range [][]string{{"Last-Event-ID", first}, nil} {
		path := "/v1/events?workspace=w"
		if headers == nil {
			path += "&after=" + first
		}
		if r := d.Do(t, http.MethodGet, path, a.Secret, nil, headers...); strings.Contains(string(r.Body), "event: created") ||
			!strings.Contains(string(r.Body), "event: snapshotted") {
			t.Errorf("%s %v: %s", path, headers, r.Body)
		}
	}
	for _, tc := range []struct {
		query, secret, accept string
		status                int
	}{
		{"workspace=none", a.Secret, "", 404},
		{"workspace=w", b.Secret, "", 404},
		{"workspace=w", writes.Secret, "", 403},
		{"workspace=w", "", "", 401},
		{"after=x", a.Secret, "", 400},
		{"since=x", a.Secret, "", 400},
		{"", a.Secret, "application/json", 400},
	} {
		if r := d.Do(t, http.MethodGet, "/v1/events?"+tc.query, tc.secret, nil, "Accept", tc.accept); r.Status != tc.status || r.Error(t) == nil {
			t.Errorf("%+v: %d %s", tc, r.Status, r.Body)
		}
	}
}

func TestEventStreamFollows(t *testing.T) {
	d := daemontest.Start(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.URL+"/v1/events?follow=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-Key", d.Token(t, "a").Secret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is read to where the test wants
	lines := bufio.NewScanner(resp.Body)
	if _, err := d.Create(t.Context(), sandbox.CreateRequest{Access: sandbox.Access{Session: "a"}, Name: "w"}); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		if lines.Text() == "event: created" {
			return
		}
	}
	t.Errorf("the stream ended: %v", lines.Err())
}
