package daemon

import (
	"net/http"

	"snapfs/sandbox/api/wire"
)

// negotiate tells each client of which version the daemon is, and refuses those with which it has no version of the
// protocol in common.
func (s *server) negotiate(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(wire.SpokenHeader, wire.Speaks.String())
		w.Header().Set(wire.VersionHeader, s.Version)
		theirs := wire.ParseSpoken(r.Header.Get(wire.SpokenHeader))
		if theirs.Common(wire.Speaks) == 0 {
			err := &wire.VersionError{
				Daemon: s.Version, Command: r.Header.Get(wire.VersionHeader), DaemonOlder: theirs.From > wire.Speaks.To,
			}
			x := exchangeOf(r)
			x.stream().fail(x, err)
			return
		}
		next(w, r)
	}
}
