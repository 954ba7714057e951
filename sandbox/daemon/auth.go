package daemon

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
)

// noTokenError is for a request from the network that proves nothing.
type noTokenError struct{ error }

func (e noTokenError) Unwrap() error { return e.error }

// authenticate finds the token of a request from the network. Whoever shows none that counts is told why only so often.
func (s *server) authenticate(r *http.Request, from *asker) (*asker, error) {
	t, err := s.token(r)
	if err == nil {
		return &asker{network: true, remote: from.remote, token: &t, sessions: []string{t.Session}}, nil
	}
	if !errors.Is(err, sandbox.ErrRefused) {
		return from, err
	}
	if many := s.meters.stranger(from.remote); many != nil {
		return from, many
	}
	return from, noTokenError{err}
}

// token is that of a request.
func (s *server) token(r *http.Request) (api.Token, error) {
	text := r.Header.Get("X-API-Key")
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, rest, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return api.Token{}, fmt.Errorf("%w: the header Authorization is not of the scheme Bearer", sandbox.ErrRefused)
		}
		text = strings.TrimSpace(rest)
	}
	if text == "" {
		return api.Token{}, fmt.Errorf("%w: a token is needed: Authorization: Bearer TOKEN", sandbox.ErrRefused)
	}
	return s.home.Authenticate(r.Context(), text)
}

// sameSite refuses what pages of browsers have a user's browser ask: requests whose origin is another host, and, at an
// address of this machine alone, those for a name that somebody has made that of this machine (DNS rebinding).
func (s *server) sameSite(r *http.Request) error {
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		if err != nil || !strings.EqualFold(u.Host, r.Host) {
			return fmt.Errorf("%w: a page of another site may not ask, and its origin is %s", sandbox.ErrRefused, api.Quoted(origin))
		}
	}
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok || !at.IP.IsLoopback() {
		return nil
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if !loopback(host) && !slices.Contains(s.Network.hosts, host) {
		return fmt.Errorf("%w: this machine is called localhost here, not %s (see --allow-host)", sandbox.ErrRefused, api.Quoted(r.Host))
	}
	return nil
}
