package sandbox

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/caller"
	"snapfs/sandbox/internal/catalog"
)

// TestTokens: tokens are there after the home was closed, are known by their secrets alone, and are refused once they have
// expired or were revoked.
func TestTokens(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	now := time.Now()
	open := func() *Home {
		h, err := Open(t.Context(), dir, Options{clock: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := open()
	a, b := Access{Session: "a"}, Access{Session: "b"}
	stays, err := h.CreateToken(t.Context(), TokenRequest{Access: a, Description: "for ever", Scopes: []Scope{ScopeWrite, ScopeRead, ScopeRead}})
	if err != nil || !slices.Equal(stays.Scopes, []Scope{ScopeRead, ScopeWrite}) || stays.ExpiresAt != nil {
		t.Fatalf("%+v, %v", stays, err)
	}
	ends, err := h.CreateToken(t.Context(), TokenRequest{Access: b, TTL: time.Hour})
	if err != nil || len(ends.Scopes) != len(api.AllScopes()) {
		t.Fatalf("%+v, %v", ends, err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = open()
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, want := range []NewToken{stays, ends} {
		if got, err := h.Authenticate(t.Context(), want.Secret); err != nil || got.ID != want.ID || got.Session != want.Session {
			t.Errorf("%+v, %v; want %+v", got, err, want.Token)
		}
	}
	for _, bad := range []string{"", "x", stays.ID, stays.Secret + "A", stays.Secret[:40] + ends.Secret[40:]} {
		if _, err := h.Authenticate(t.Context(), bad); !errors.Is(err, ErrRefused) || err.Error() != errNoToken.Error() {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if page, err := h.Tokens(t.Context(), ListRequest{Access: a}); err != nil || len(page.Tokens) != 1 || page.Tokens[0].Description != "for ever" {
		t.Errorf("of a: %+v, %v", page, err)
	}
	all := Access{Session: "a", AllowCrossSession: true}
	page, err := h.Tokens(t.Context(), ListRequest{Access: all, Limit: 1})
	if err != nil || len(page.Tokens) != 1 || !page.More {
		t.Errorf("the first of all: %+v, %v", page, err)
	}
	if page, err = h.Tokens(t.Context(), ListRequest{Access: all, After: page.Tokens[0].ID}); err != nil || len(page.Tokens) != 1 || page.More {
		t.Errorf("the second: %+v, %v", page, err)
	}

	now = now.Add(time.Hour)
	if _, err := h.Authenticate(t.Context(), ends.Secret); !errors.Is(err, ErrRefused) {
		t.Errorf("expired: %v", err)
	}
	if err := h.sweepTokens(t.Context()); err != nil || h.catalog.Token(ends.ID) == nil {
		t.Errorf("one that has just expired is swept, or: %v", err)
	}
	now = now.Add(expiredTokens)
	if err := h.sweepTokens(t.Context()); err != nil || h.catalog.Token(ends.ID) != nil || h.catalog.Token(stays.ID) == nil {
		t.Errorf("after a day: %v", err)
	}

	if err := h.RevokeToken(t.Context(), RefRequest{Access: b, Ref: stays.ID}); !errors.Is(err, ErrRefused) {
		t.Errorf("another's: %v", err)
	}
	for _, ref := range []string{stays.ID[:20], stays.ID} { // the second time it is gone
		if err := h.RevokeToken(t.Context(), RefRequest{Access: a, Ref: ref}); err != nil {
			t.Errorf("revoke %s: %v", ref, err)
		}
	}
	if _, err := h.Authenticate(t.Context(), stays.Secret); !errors.Is(err, ErrRefused) {
		t.Errorf("revoked: %v", err)
	}
	for ref, class := range map[string]error{"x": ErrInvalid, "": ErrInvalid, "0000": ErrNotFound} {
		if err := h.RevokeToken(t.Context(), RefRequest{Access: a, Ref: ref}); !errors.Is(err, class) {
			t.Errorf("revoke %q: %v", ref, err)
		}
	}
	var kinds []string
	if err := h.Events(t.Context(), EventsRequest{Access: a}, func(e Event) error {
		kinds = append(kinds, string(e.Kind))
		return nil
	}); err != nil || strings.Join(kinds, " ") != "token_created token_revoked" {
		t.Errorf("events of a: %v, %v", kinds, err)
	}
}

func TestTokenBounds(t *testing.T) {
	h, err := Open(t.Context(), filepath.Join(t.TempDir(), "home"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, bad := range []TokenRequest{
		{Access: Access{Session: "/"}}, {TTL: -1}, {Scopes: []Scope{"fly"}}, {Description: strings.Repeat("x", 10_000)},
	} {
		if _, err := h.CreateToken(t.Context(), bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+.60v: %v", bad, err)
		}
	}
	past := h.now().Add(-time.Minute)
	_, err = h.catalog.Update(t.Context(), false, func(ch *catalog.Change) error {
		for i := range maxTokens {
			r := &catalog.Token{ID: h.catalog.NewID(), Session: "default"}
			if i == 0 {
				r.ExpiresAt = &past
			}
			ch.PutTokens = append(ch.PutTokens, r)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.CreateToken(t.Context(), TokenRequest{}); err != nil {
		t.Errorf("in the place of one that has expired: %v", err)
	}
	if _, err := h.CreateToken(t.Context(), TokenRequest{}); !errors.Is(err, ErrConflict) {
		t.Errorf("one too many: %v", err)
	}
	if _, err := h.CreateToken(t.Context(), TokenRequest{Access: Access{Session: "other"}}); err != nil {
		t.Errorf("of another session: %v", err)
	}
}

// TestCallersAreBound: the home itself holds callers to their sessions, whatever an adapter asks for them.
func TestCallersAreBound(t *testing.T) {
	h, err := Open(t.Context(), filepath.Join(t.TempDir(), "home"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := h.Create(t.Context(), CreateRequest{Access: Access{Session: "a"}, Name: "w"}); err != nil {
		t.Fatal(err)
	}
	ctx := caller.With(t.Context(), &caller.Caller{Session: "b", Sessions: []string{"b"}, Token: "t"})
	for _, bad := range []RefRequest{
		{Access: Access{Session: "a"}, Ref: "w"},
		{Access: Access{Session: "b", AllowCrossSession: true}, Ref: "w"},
		{Access: Access{Session: "b"}, Ref: "w"},
		{Access: Access{Session: "b"}, Ref: "/mnt"},
	} {
		if _, err := h.Show(ctx, bad); !errors.Is(err, ErrRefused) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := h.CreateToken(ctx, TokenRequest{Access: Access{Session: "b"}}); !errors.Is(err, ErrRefused) {
		t.Errorf("a token makes a token: %v", err)
	}
	trusted := caller.With(t.Context(), &caller.Caller{Trusted: true, Session: "b"})
	if _, err := h.Show(trusted, RefRequest{Access: Access{Session: "b", AllowCrossSession: true}, Ref: "w"}); err != nil {
		t.Errorf("who is trusted: %v", err)
	}
}
