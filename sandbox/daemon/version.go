package daemon

import (
	"net/http"

	"snapfs/sandbox/api/wire"
)

// negotiate tells each client of which version the daemon is, and refuses those with which it has no version of the
// protocol in common.
func (s *server) negotiate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(wire.SpokenHeader, wire.Speaks.String())
		w.Header().Set(wire.VersionHeader, s.Version)
		theirs := wire.ParseSpoken(r.Header.Get(wire.SpokenHeader))
		if theirs.Common(wire.Speaks) == 0 {
			err := &wire.VersionError{
				Daemon: s.Version, Command: r.Header.Get(wire.VersionHeader), DaemonOlder: theirs.From > wire.Speaks.To,
			}
			_ = newStream(w).send(wire.Frame{Error: wire.NewError(err)}) // the client is gone
			return
		}
		next.ServeHTTP(w, r)
	})
}
