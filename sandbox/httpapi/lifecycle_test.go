package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/httpapi"
)

const root = "/api/v1/sandboxes"

func TestLifecycle(t *testing.T) {
	r := open(t, httpapi.Options{})
	id, at := r.claim(httpapi.ClaimRequest{Template: "default"})
	s := get[httpapi.Sandbox](r, http.MethodGet, at, nil)
	if s.ID != id || s.Status != httpapi.Running || s.Paused || !s.AutoResume || s.TemplateID != "default" ||
		s.RuntimeGeneration != 1 || !s.ExpiresAt.IsZero() || !s.HardExpiresAt.IsZero() || s.Mountpoint == "" {
		t.Errorf("claimed: %+v", s)
	}
	status := get[httpapi.SandboxStatus](r, http.MethodGet, at+"/status", nil)
	if status.SandboxID != id || status.Status != httpapi.Running || status.ExpiresAt != "" {
		t.Errorf("status: %+v", status)
	}
	// It has to be paused.
	none := "0199aaaa-0000-7000-8000-000000000000"
	r.fails(409, http.MethodPost, at+"/rootfs/restore", httpapi.RestoreRootfsRequest{SnapshotID: none})

	for range 2 { // a second time it is paused already
		if p := get[httpapi.PauseResult](r, http.MethodPost, at+"/pause", nil); !p.Paused || p.Status != httpapi.Paused {
			t.Errorf("pause: %+v", p)
		}
	}
	r.fails(404, http.MethodPost, at+"/rootfs/restore", httpapi.RestoreRootfsRequest{SnapshotID: none})
	snapshot := get[httpapi.RootfsSnapshot](r, http.MethodPost, at+"/snapshots",
		httpapi.RootfsSnapshotRequest{Name: "base", Description: "as it began"})
	if snapshot.SandboxID != id || snapshot.Name != "base" || snapshot.Description != "as it began" || snapshot.ExpiresAt != nil {
		t.Errorf("snapshot: %+v", snapshot)
	}
	restored := get[httpapi.RestoredRootfs](r, http.MethodPost, at+"/rootfs/restore",
		httpapi.RestoreRootfsRequest{SnapshotID: snapshot.ID})
	if restored.Status != httpapi.Paused || get[httpapi.Sandbox](r, http.MethodGet, at, nil).Status != httpapi.Paused {
		t.Errorf("restored: %+v", restored)
	}
	for range 2 {
		if p := get[httpapi.ResumeResult](r, http.MethodPost, at+"/resume", nil); !p.Resumed {
			t.Errorf("resume: %+v", p)
		}
	}
	if s := get[httpapi.Sandbox](r, http.MethodGet, at, nil); s.Status != httpapi.Running || s.RuntimeGeneration != 2 {
		t.Errorf("resumed: %+v", s)
	}
	fork := get[httpapi.Forked](r, http.MethodPost, at+"/fork", nil)
	if fork.SourceSandboxID != id || fork.Sandbox.Status != httpapi.Paused || fork.Sandbox.ID == id {
		t.Errorf("fork: %+v", fork)
	}
	get[httpapi.ResumeResult](r, http.MethodPost, root+"/"+fork.Sandbox.ID+"/resume", nil)
	if s := get[httpapi.Sandbox](r, http.MethodGet, root+"/"+fork.Sandbox.ID, nil); s.Status != httpapi.Running {
		t.Errorf("resumed fork: %+v", s)
	}

	list := get[httpapi.RootfsSnapshotList](r, http.MethodGet, at+"/snapshots", nil)
	if list.Count != 1 || list.Snapshots[0].ID != snapshot.ID {
		t.Errorf("snapshots: %+v", list)
	}
	made, _ := r.claim(httpapi.ClaimRequest{SnapshotID: snapshot.ID})
	other, _ := r.claim(httpapi.ClaimRequest{Template: "base"})
	third, _ := r.claim(httpapi.ClaimRequest{Template: id + ":base"})

	get[httpapi.Message](r, http.MethodDelete, at, nil)
	r.fails(404, http.MethodDelete, at, nil)
	r.fails(404, http.MethodGet, at, nil)
	// A snapshot outlives its sandbox, and sandboxes outlive the snapshot that they were made of.
	get[httpapi.RootfsSnapshot](r, http.MethodGet, "/api/v1/sandbox-rootfs-snapshots/"+snapshot.ID, nil)
	get[httpapi.Deleted](r, http.MethodDelete, "/api/v1/sandbox-rootfs-snapshots/"+snapshot.ID, nil)
	r.fails(404, http.MethodDelete, "/api/v1/sandbox-rootfs-snapshots/"+snapshot.ID, nil)
	r.fails(404, http.MethodPost, root, httpapi.ClaimRequest{SnapshotID: snapshot.ID})
	for _, id := range []string{made, other, third} {
		if s := get[httpapi.Sandbox](r, http.MethodGet, root+"/"+id, nil); s.Status != httpapi.Running {
			t.Errorf("made of the snapshot: %+v", s)
		}
	}
	all := get[httpapi.SandboxList](r, http.MethodGet, root+"?status=running&limit=2", nil)
	if all.Count != 4 || len(all.Sandboxes) != 2 || !all.HasMore {
		t.Errorf("list: %+v", all)
	}
	rest := get[httpapi.SandboxList](r, http.MethodGet, root+"?limit=3&offset=2", nil)
	if rest.Count != 4 || len(rest.Sandboxes) != 2 || rest.HasMore {
		t.Errorf("rest of the list: %+v", rest)
	}
	if l := get[httpapi.SandboxList](r, http.MethodGet, root+"?paused=true", nil); l.Count != 0 || l.Sandboxes == nil {
		t.Errorf("paused: %+v", l)
	}
	if l := get[httpapi.SandboxList](r, http.MethodGet, root+"?template_id=base", nil); l.Count != 1 {
		t.Errorf("of a template: %+v", l)
	}
}

// TestRefuses: what is wrong has its status, and leaves nothing behind.
func TestRefuses(t *testing.T) {
	r := open(t, httpapi.Options{})
	id, at := r.claim(nil)
	_, err := r.home.Create(t.Context(), api.CreateRequest{Access: api.Access{Session: "else"}, Name: "foreign"})
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := r.home.Snapshot(t.Context(), api.SnapshotRequest{
		Access: api.Access{Session: "else"}, Workspace: "foreign", Name: "theirs",
	})
	if err != nil {
		t.Fatal(err)
	}
	before := r.names()
	long := strings.Repeat("x", 10_000)
	past := time.Now().Add(-time.Hour)
	for _, test := range []struct {
		status       int
		method, path string
		body         any
	}{
		{404, http.MethodGet, "/api/v1/none", nil},
		{405, http.MethodPatch, at, nil},
		{405, http.MethodDelete, root, nil},
		{404, http.MethodGet, root + "/none", nil},
		{404, http.MethodGet, root + "/None", nil},
		{400, http.MethodGet, root + "/" + long, nil},
		{400, http.MethodGet, root + "/%2Fetc%2Fpasswd", nil},
		{400, http.MethodGet, root + "/%00", nil},
		{403, http.MethodGet, root + "/foreign", nil},
		{403, http.MethodDelete, root + "/foreign", nil},
		{403, http.MethodPost, root + "/foreign/pause", nil},
		{403, http.MethodGet, root + "/foreign/snapshots", nil},
		{403, http.MethodGet, "/api/v1/sandbox-rootfs-snapshots/" + foreign.ID, nil},
		{403, http.MethodPost, root, httpapi.ClaimRequest{SnapshotID: foreign.ID}},
		{404, http.MethodGet, "/api/v1/sandbox-rootfs-snapshots/none", nil},
		{404, http.MethodPost, root, httpapi.ClaimRequest{Template: "none"}},
		{404, http.MethodPost, root, httpapi.ClaimRequest{Template: "theirs"}},
		{404, http.MethodPost, root, httpapi.ClaimRequest{Template: id}},
		{400, http.MethodPost, root, httpapi.ClaimRequest{Template: "/etc"}},
		{400, http.MethodPost, root, httpapi.ClaimRequest{Template: "/etc:x"}},
		{400, http.MethodPost, root, httpapi.ClaimRequest{Template: "."}},
		{400, http.MethodPost, root, httpapi.ClaimRequest{Template: long}},
		{404, http.MethodPost, root, httpapi.ClaimRequest{SnapshotID: "none"}},
		{400, http.MethodPost, root, httpapi.ClaimRequest{SnapshotID: "../x"}},
		{501, http.MethodPost, root, httpapi.ClaimRequest{Mounts: []any{map[string]any{"sandboxvolume_id": "x"}}}},
		{501, http.MethodPost, root, httpapi.ClaimRequest{Config: &httpapi.Config{Network: map[string]any{"mode": "x"}}}},
		{400, http.MethodPost, root, map[string]any{"unknown": 1}},
		{400, http.MethodPost, root, map[string]any{"template": 1}},
		{400, http.MethodPost, root, map[string]any{"config": map[string]any{"ttl": -1}}},
		{400, http.MethodPost, root, map[string]any{"config": map[string]any{"hard_ttl": "soon"}}},
		{400, http.MethodPost, root, map[string]any{"config": map[string]any{"hard_ttl": 1e18}}},
		{400, http.MethodPost, at + "/snapshots", httpapi.RootfsSnapshotRequest{ExpiresAt: &past}},
		{400, http.MethodPost, at + "/snapshots", map[string]any{"expires_at": "tomorrow"}},
		{400, http.MethodPost, at + "/snapshots", httpapi.RootfsSnapshotRequest{Name: "a/b"}},
		{400, http.MethodPost, at + "/snapshots", httpapi.RootfsSnapshotRequest{Name: long}},
		{400, http.MethodPost, at + "/rootfs/restore", map[string]any{}},
		{400, http.MethodGet, root + "?limit=-1", nil},
		{400, http.MethodGet, root + "?paused=perhaps", nil},
		{501, http.MethodGet, at + "/network", nil},
		{501, http.MethodPost, at + "/contexts", map[string]any{"type": "cmd"}},
		{501, http.MethodGet, at + "/sessions/x/events/stream", nil},
		{501, http.MethodGet, "/teams", nil},
		{501, http.MethodGet, "/api/v1/quotas/memory", nil},
	} {
		r.fails(test.status, test.method, test.path, test.body)
	}
	for _, body := range []string{"{", "[]", `"x"`, "{}{}", "\xff", strings.Repeat("[", 100_000), `{"config":null}x`} {
		a := r.send(http.MethodPost, root, "application/json", strings.NewReader(body))
		if a.status != 400 {
			t.Errorf("%.20q: %d %s", body, a.status, a.body)
		}
	}
	big := `{"template":"` + strings.Repeat("x", 2<<20) + `"}`
	if a := r.send(http.MethodPost, root, "application/json", strings.NewReader(big)); a.status != 413 {
		t.Errorf("2 MiB of JSON: %d %s", a.status, a.body)
	}
	if a := r.send(http.MethodPost, root, "text/xml", strings.NewReader("<x/>")); a.status != 415 && a.status != 400 {
		t.Errorf("XML: %d %s", a.status, a.body)
	}
	if after := r.names(); strings.Join(before, " ") != strings.Join(after, " ") {
		t.Errorf("there is something left: %v, before %v", after, before)
	}
}

// TestEnds: sandboxes are paused and destroyed when their time has come, also by a service that started later.
func TestEnds(t *testing.T) {
	clock := newClock()
	r := open(t, httpapi.Options{Now: clock.now})
	seconds := func(n int64) *int64 { return &n }
	_, softAt := r.claim(httpapi.ClaimRequest{Config: &httpapi.Config{TTL: seconds(60), HardTTL: seconds(3600)}})
	_, hardAt := r.claim(httpapi.ClaimRequest{Config: &httpapi.Config{HardTTL: seconds(60)}})
	_, stays := r.claim(nil)
	s := get[httpapi.Sandbox](r, http.MethodGet, softAt, nil)
	if got := s.ExpiresAt.Sub(clock.now()); got != time.Minute {
		t.Errorf("it is paused in %s", got)
	}
	clock.add(59 * time.Second)
	done := r.run()
	if s := get[httpapi.Sandbox](r, http.MethodGet, softAt, nil); s.Paused {
		t.Error("it is paused too early")
	}
	get[httpapi.Refreshed](r, http.MethodPost, softAt+"/refresh", nil)
	done()
	clock.add(2 * time.Second)
	done = r.run()
	r.eventually("destroyed", func() bool { return r.do(http.MethodGet, hardAt, nil).status == 404 })
	if s := get[httpapi.Sandbox](r, http.MethodGet, softAt, nil); s.Paused {
		t.Error("it was refreshed, and is paused")
	}
	done()
	clock.add(time.Minute)
	done = r.run()
	r.eventually("paused", func() bool { return get[httpapi.Sandbox](r, http.MethodGet, softAt, nil).Paused })
	get[httpapi.ResumeResult](r, http.MethodPost, softAt+"/resume", nil)
	if s := get[httpapi.Sandbox](r, http.MethodGet, softAt, nil); s.ExpiresAt.Sub(clock.now()) != time.Minute {
		t.Errorf("resumed, it is paused in %s", s.ExpiresAt.Sub(clock.now()))
	}
	// An end that is taken back, and one that comes while nobody looks.
	updated := get[httpapi.Sandbox](r, http.MethodPut, softAt, httpapi.UpdateRequest{Config: &httpapi.Config{TTL: seconds(0)}})
	if !updated.ExpiresAt.IsZero() || updated.HardExpiresAt.IsZero() {
		t.Errorf("updated: %+v", updated)
	}
	get[httpapi.Sandbox](r, http.MethodPut, stays, httpapi.UpdateRequest{Config: &httpapi.Config{HardTTL: seconds(1)}})
	done()
	clock.add(2 * time.Hour)
	defer r.run()()
	r.eventually("destroyed", func() bool {
		return r.do(http.MethodGet, softAt, nil).status == 404 && r.do(http.MethodGet, stays, nil).status == 404
	})
}

// hung is a service in which a pause of a session hangs until it is given up.
type hung struct {
	*sandbox.Home

	session string
	calls   chan time.Time // gets until when each may take; it is never full
}

func (h hung) Pause(ctx context.Context, r api.PauseRequest) (api.Workspace, error) {
	if r.Session != h.session {
		return h.Home.Pause(ctx, r)
	}
	until, _ := ctx.Deadline()
	h.calls <- until
	<-ctx.Done()
	return api.Workspace{}, ctx.Err()
}

// TestEndsApart: sandboxes of a session that do not end hold nobody else's up, and are given up after a while.
func TestEndsApart(t *testing.T) {
	clock := newClock()
	r := open(t, httpapi.Options{Now: clock.now})
	minute := int64(60)
	claim := httpapi.ClaimRequest{Config: &httpapi.Config{TTL: &minute}}
	for range 10 {
		r.claim(claim)
	}
	other := *r
	other.secret = r.Token(t, "other").Secret
	_, at := other.claim(claim)
	clock.add(2 * time.Minute)
	h := hung{r.home, "main", make(chan time.Time, 100)}
	r.server = httpapi.New(h, httpapi.Options{Now: clock.now})
	done := r.run()
	r.eventually("paused", func() bool { return get[httpapi.Sandbox](&other, http.MethodGet, at, nil).Paused })
	r.eventually("begun", func() bool { return len(h.calls) > 0 })
	done()
	close(h.calls)
	if n := len(h.calls); n > 4 {
		t.Errorf("%d of one session are ended at the same time", n)
	}
	for until := range h.calls {
		if until.IsZero() {
			t.Error("an end has no bound")
		}
	}
}
