package daemon

import (
	"context"
	"io"
	"net/http"

	"snapfs/sandbox"
	"snapfs/sandbox/api/wire"
)

// documentRoutes maps the calls about documents of agents' sessions.
func (s *server) documentRoutes(add func(call string, h http.HandlerFunc)) {
	h := s.home
	add(wire.CallSaveDocument, handle(s, plain(h.SaveDocument)))
	add(wire.CallLoadDocument, handle(s, func(
		ctx context.Context, r sandbox.DocumentRequest, out *stream,
	) (wire.None, error) {
		return wire.None{}, h.ReadDocument(ctx, r, func(d sandbox.Document) (io.Writer, error) {
			return dataWriter{out}, out.send(wire.Frame{Document: &d})
		})
	}))
	add(wire.CallListDocuments, handle(s, plain(h.ListDocuments)))
	add(wire.CallDeleteDocument, handle(s, silent(h.DeleteDocument)))
	add(wire.CallDeleteAgentSession, handle(s, silent(h.DeleteAgentSession)))
}
