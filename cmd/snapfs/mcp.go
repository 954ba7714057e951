package main

import (
	"context"
	"log/slog"
	"net/http"

	"snapfs/cmd/internal/cli"
	"snapfs/sandbox/api"
	"snapfs/sandbox/daemon"
	"snapfs/sandbox/mcp"
)

// mcpService serves agents over HTTP.
func (s *service) mcpService() daemon.Service {
	h := mcp.NewHandler(s.home, mcp.HTTPOptions{
		Options: mcp.Options{Version: s.Version, Home: s.home.Dir()}, Who: mcp.WhoOf,
	})
	return daemon.Service{Pattern: "/mcp", Handler: h, Lane: mcpLane}
}

// mcpLane tells the kind of a request to agents' tools.
func mcpLane(r *http.Request) daemon.Lane {
	switch {
	case r.Method == http.MethodGet:
		return daemon.FollowLane
	case mcp.Lasts(r):
		return daemon.LongLane
	}
	return daemon.ShortLane
}

// serveMCP serves an agent over the standard streams, as a client of the daemon.
func serveMCP(ctx context.Context, o cli.MCPOptions) error {
	who := mcp.Caller{
		Access: o.Access, Scopes: api.AllScopes(),
		Start: mcp.Start{Workspace: o.Workspace, Source: o.Source, State: o.State},
	}
	if o.ReadOnly {
		who.Scopes = mcp.ReadOnly()
	}
	info, err := o.Client.Info(ctx)
	if err != nil {
		return err
	}
	options := mcp.Options{Version: o.Version, Home: info.Home}
	if o.Log != nil {
		options.Log = slog.New(slog.NewTextHandler(o.Log, nil))
	}
	return mcp.Serve(ctx, o.Client, who, options, mcp.Streams{In: o.In, Out: o.Out, Reconnect: o.Reconnect})
}
