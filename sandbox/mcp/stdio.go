package mcp

import (
	"context"
	"errors"
	"io"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"snapfs/sandbox/api"
)

// Streams are those of a process that a client has started.
type Streams struct {
	In  io.ReadCloser
	Out io.WriteCloser
	// Reconnect starts the service again that a call has found gone; nil: nobody can.
	Reconnect func(context.Context) error
}

// Serve serves one agent over streams until In ends, or ctx. Calls that are under way then are cancelled.
func Serve(ctx context.Context, s Service, who Caller, o Options, over Streams) error {
	a := &agent{Caller: who, service: s, home: o.Home, turns: newTurns(), reconnect: over.Reconnect, mine: &memory{}}
	b := &builder{scopes: who.Scopes}
	b.agent = func(ctx context.Context, _ *mcp.CallToolRequest) (context.Context, *agent, func(), error) {
		return ctx, a, func() {}, nil
	}
	err := b.build(o).Run(ctx, &mcp.IOTransport{Reader: over.In, Writer: over.Out, MaxLineLength: maxRequest})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}

// ReadOnly are the scopes of a caller that may only look.
func ReadOnly() []api.Scope { return []api.Scope{api.ScopeRead} }
