package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
)

// FuzzRequest: whatever a token's client sends is refused as invalid or as not for it, or is a request of its session that
// can be written and read again.
func FuzzRequest(f *testing.F) {
	f.Add("create", []byte(`{"name":"w","source":"/etc"}`))
	f.Add("snapshot", []byte(`{"workspace":"w","ttl":5,"session":"b"}`))
	f.Add("fork", []byte(`{"workspace":"w","mountpoint":"/mnt"}{`))
	requests := map[string]func() any{
		wire.CallCreate:   func() any { return &sandbox.CreateRequest{} },
		wire.CallSnapshot: func() any { return &sandbox.SnapshotRequest{} },
		wire.CallFork:     func() any { return &sandbox.ForkRequest{} },
		wire.CallApply:    func() any { return &sandbox.ApplyRequest{} },
		wire.CallExport:   func() any { return &sandbox.ExportRequest{} },
		wire.CallFiles:    func() any { return &sandbox.FilesRequest{} },
	}
	who := &asker{network: true, token: &api.Token{ID: "t", Scopes: api.AllScopes()}, sessions: []string{"a"}}
	f.Fuzz(func(t *testing.T, call string, body []byte) {
		blank := requests[call]
		if blank == nil {
			return
		}
		request := blank()
		if err := decode(bytes.NewReader(body), maxRequest, request); err != nil {
			if !errors.Is(err, sandbox.ErrInvalid) {
				t.Errorf("%s %q: %v", call, body, err)
			}
			return
		}
		if err := who.admit(wire.Route(call), request); err != nil {
			if !errors.Is(err, sandbox.ErrRefused) {
				t.Errorf("%s %q: %v", call, body, err)
			}
			return
		}
		if a := request.(interface{ Asker() *api.Access }).Asker(); a.Session != "a" || a.AllowCrossSession {
			t.Errorf("%s %q: %+v", call, body, a)
		}
		text, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		again := blank()
		if err := decode(bytes.NewReader(text), maxRequest, again); err != nil {
			t.Errorf("%s %q: written as %q: %v", call, body, text, err)
		}
	})
}

// FuzzHeader: an id that is taken from a request may be written anywhere, and a query is read or refused as invalid.
func FuzzHeader(f *testing.F) {
	f.Add("abc", "workspace=w&follow=1", "http://evil.example")
	f.Add("a\nb", "since=%zz", "null")
	s := &server{Options: Options{Network: &Network{}}}
	f.Fuzz(func(t *testing.T, id, query, origin string) {
		r := &http.Request{URL: &url.URL{Path: "/v1/events", RawQuery: query}, Host: "localhost", Header: http.Header{
			RequestIDHeader: {id}, "Origin": {origin}, "Last-Event-Id": {id},
		}}
		got := requestID(r)
		if got == "" || len(got) > maxRequestID || strings.ContainsAny(got, "\r\n\"\\ ") {
			t.Errorf("%q becomes %q", id, got)
		}
		if _, err := eventsRequest(r); err != nil && !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("query %q: %v", query, err)
		}
		if err := s.sameSite(r.WithContext(httptest.NewRequest(http.MethodGet, "/", nil).Context())); err == nil && origin != "" {
			if u, err := url.Parse(origin); err != nil || !strings.EqualFold(u.Host, "localhost") {
				t.Errorf("origin %q may ask", origin)
			}
		}
	})
}
