package daemon_test

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/daemon"
	"snapfs/sandbox/daemon/daemontest"
)

// TestRefusedCallsAreEvents: who asked for what, and why it was refused, is in the log of the session.
func TestRefusedCallsAreEvents(t *testing.T) {
	d := daemontest.Start(t, nil)
	a, b := d.Token(t, "a"), d.Token(t, "b", sandbox.ScopeRead)
	d.Call(t, wire.CallCreate, a.Secret, sandbox.CreateRequest{Name: "w"})
	d.Call(t, wire.CallShow, b.Secret, sandbox.RefRequest{Ref: "w"})
	d.Call(t, wire.CallSnapshot, b.Secret, sandbox.SnapshotRequest{Workspace: "w"})
	d.Call(t, wire.CallStop, b.Secret, wire.StopRequest{})
	d.Call(t, wire.CallInfo, "nobody", wire.None{})
	got := strings.Join(events(t, d, 6), "\n") // with two of tokens
	for _, want := range []string{
		"token_created a info " + a.ID,
		"call_refused b warn POST /v1/show from 127.0.0.1, token " + b.ID, "not found",
		"call_refused b warn POST /v1/snapshot", "lacks the scope snapshots",
		"call_refused b warn POST /v1/stop",
		"call_refused  warn POST /v1/info from 127.0.0.1, request ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no event has %q:\n%s", want, got)
		}
	}
	// A session sees its own.
	r := d.Do(t, http.MethodGet, "/v1/events", b.Secret, nil)
	if text := string(r.Body); strings.Contains(text, a.ID) || !strings.Contains(text, b.ID) {
		t.Errorf("session b sees %s", text)
	}
}

// repeated finds how often a call was refused.
var repeated = regexp.MustCompile(`, (\d+) times: `)

// TestFloodOfRefusals: however often strangers and tokens are refused, the log grows by a few events, and the strangers
// are told to wait.
func TestFloodOfRefusals(t *testing.T) {
	d := daemontest.Start(t, nil)
	reads := d.Token(t, "a", sandbox.ScopeRead)
	statuses := [2]map[int]int{{}, {}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for range 50 {
				secret := []string{"", reads.Secret}[i%2]
				r := d.Call(t, wire.CallSnapshot, secret, sandbox.SnapshotRequest{Workspace: "w"})
				if r.Status == 429 && r.Header.Get("Retry-After") == "" {
					t.Error("429 without Retry-After")
				}
				mu.Lock()
				statuses[i%2][r.Status]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if s := statuses[0]; s[401] == 0 || s[429] == 0 || s[401]+s[429] != 500 {
		t.Errorf("strangers: %v", s)
	}
	if s := statuses[1]; s[403] != 500 {
		t.Errorf("a token without the scope: %v", s)
	}
	if got := events(t, d, 4); len(got) > 10 {
		t.Errorf("%d events: %q", len(got), got)
	}
	// What came since is written at the end.
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := sandbox.Open(t.Context(), d.Dir, sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	times := 0
	err = h.Events(t.Context(), sandbox.EventsRequest{Access: sandbox.Access{AllowCrossSession: true}}, func(e sandbox.Event) error {
		if e.Kind != sandbox.EventCallRefused {
			return nil
		}
		n := 1
		if m := repeated.FindStringSubmatch(e.Detail); m != nil {
			n, _ = strconv.Atoi(m[1])
		}
		times += n
		return nil
	})
	if err != nil || times != 1000 {
		t.Errorf("%d refusals are in events, of 1000; %v", times, err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// TestTokenLimits: a token that asks more than it may is told when to come again.
func TestTokenLimits(t *testing.T) {
	begun, end := make(chan bool, 1), make(chan bool)
	limits := daemon.Limits{Calls: 1}
	d := serving(t, func(http.ResponseWriter, *http.Request) { begun <- true; <-end }, func(o *daemon.Options) {
		o.Limits = func() daemon.Limits { return limits }
	})
	secret := d.Token(t, "a").Secret
	done := make(chan int)
	go func() { done <- d.Do(t, "GET", "/t/", secret, nil).Status }()
	<-begun
	if r := d.Call(t, wire.CallInfo, secret, wire.None{}); r.Status != 429 || r.Header.Get("Retry-After") == "" || r.Error(t).Class != "unavailable" {
		t.Errorf("beside another one: %d %s", r.Status, r.Body)
	}
	close(end)
	if status := <-done; status != 200 {
		t.Errorf("the first one: %d", status)
	}
	if r := d.Call(t, wire.CallInfo, secret, wire.None{}); r.Status != 200 {
		t.Errorf("after it: %d %s", r.Status, r.Body)
	}
}
